"""``surefoot init``: a commented spec that ``surefoot study`` runs as it is."""

from __future__ import annotations

from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

from surefoot._base.arguments import unknown
from surefoot._base.files import write_whole


@dataclass(frozen=True)
class _Start:
    """Values that a spec of some problem starts from."""

    about: str
    methods: str
    lrs: str
    seeds: int
    epochs: int
    batch_size: int
    data: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    """Lines under ``[problem_options]`` and what they say; those with ``#`` are there to be uncommented."""


_MODELS = '["sgd", "sps", "ngn"]'
_DECADES = "{ from = 1e-2, to = 1e2, count = 9 }"

STARTS = {
    "logistic-regression": _Start(
        "Logistic regression: seconds.",
        _MODELS, _DECADES, seeds=3, epochs=10, batch_size=16, data="dna",
        options=(("# ridge = 1e-3", "λ of the penalty λ/2‖x‖²"),),
    ),
    "linear-regression": _Start(
        "Least squares on synthetic data: seconds.",
        '["sgd", "sps", "spp"]', "{ from = 1e-3, to = 1e2, count = 16 }", seeds=5, epochs=10, batch_size=5,
        options=(("# n = 50", "rows"), ("# d = 10", "features"), ("# noise = 1.0", "of the targets")),
    ),
    "digits-mlp": _Start(
        "A perceptron on handwritten digits that come with the package: a minute.",
        _MODELS, _DECADES, seeds=1, epochs=5, batch_size=32,
        options=(("# hidden = [64, 64]", "width of each hidden layer"),),
    ),
    "digits-cnn": _Start(
        "A convolutional network on handwritten digits that come with the package: minutes.",
        _MODELS, _DECADES, seeds=1, epochs=5, batch_size=32,
    ),
    "resnet20": _Start(
        "ResNet20 on CIFAR-10 (`surefoot data get cifar10`): tens of minutes without a GPU.",
        _MODELS, _DECADES, seeds=1, epochs=5, batch_size=128,
        options=(
            ("rows = 10000", "the first images only; leave it out for all 50,000"),
            ('# device = "cuda"', "where it trains"),
            ('# autocast = "bfloat16"', "mixed precision, for a GPU"),
        ),
    ),
    "characters": _Start(
        "A small transformer that predicts the next character of a text: tens of minutes without a GPU.",
        _MODELS, _DECADES, seeds=1, epochs=1, batch_size=32,
        options=(("# context = 64", "characters that it sees"), ("# d = 96", "its width")),
    ),
}  # fmt: skip
"""Problems that there is a spec for."""

_OWN = _Start(
    "A problem of yours.",
    _MODELS, "{ from = 1e-2, to = 1e2, count = 5 }", seeds=1, epochs=3, batch_size=32,
    options=(("# width = 64", "an argument of the factory"),),
)  # fmt: skip

_SPEC = """\
# {about}
#
{commands}

# What is minimised: {problems};
# or "module:factory", a function in a Python file beside this one that returns a problem: running the spec runs it.
problem = "{problem}"
{data}
# What is compared; each may have parameters, as in "sps(lower_bound=-2)". All models: sgd, sps, ngn, log-ngn,
# "power(p=0.75)", and spp on convex problems. Networks also: surefoot, momo, ngn-momentum, sps-adam, ngn-adam,
# momo-adam, ngn-momentum-adam, muon, sps-muon, ngn-muon, ngn-momentum-muon, sgd-momentum, adam, adamw.
methods = {methods}

# Learning rates, evenly in log; or a list, [0.1, 1.0, 10.0].
lrs = {lrs}

# How many data orders, or a list of seeds. All runs start at the same point.
seeds = {seeds}

epochs = {epochs}
batch_size = {batch_size}

# What follows can be left out.
# schedule = "constant"      # or "warmup(steps=100)", "cosine", "linear", "wsd", "inverse_sqrt", or a factor a step
# sampling = "shuffle"       # or "iid": independent batches, which is what the theorems need
# lower_bound = 0.0          # below every loss; for methods that are given without one of their own
# every = 1                  # keep every k-th step of the traces
# distance = 10.0            # D of the bound; without it the true one where it is known, else a bias that needs none
# version = "1"              # a word of yours for what cannot be identified: another one computes all runs anew

[problem_options]            # what only this problem knows
{options}
"""

_DATA = """\
# `surefoot data list` shows what is here, `surefoot data get NAME` gets more.
data = "{data}"
"""

_MODULE = '''\
"""The problem of {spec}: any torch model, data and loss. Put your own in."""

from functools import partial

from torch import nn

from surefoot.data import digits
from surefoot.problems import NetworkProblem


def network(width):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def {factory}(width=64):
    """What the spec's `problem` names; it is called with the [problem_options]."""
    # Rows are pairs of tensors (inputs, targets), a torch Dataset, or images, as here. The loss is cross entropy
    # unless you give a function of outputs and targets as third argument.
    return NetworkProblem(partial(network, width), digits("train"), validation=digits("test"), name="{module}")
'''


def init(spec: Path, problem: str, force: bool) -> list[Path]:
    """Write the spec and, for a problem of the user's that does not exist yet, a module to start from."""
    module, colon, factory = problem.partition(":")
    if problem not in STARTS and not colon:
        raise unknown("problem", problem, [*STARTS, "module:factory"])
    if colon and not all(part.isidentifier() and not iskeyword(part) for part in (*module.split("."), factory)):
        raise ValueError(f"problem must be 'module:factory', two names of Python, got {problem!r}")
    if spec.suffix == ".db":
        raise ValueError(f"the spec must not be called {spec.name!r}: that is where its runs will be")
    if not spec.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(spec.parent)!r} does not exist")
    if spec.exists() and not force:
        raise FileExistsError(f"{str(spec)!r} exists already: choose another name, or --force to overwrite it")
    write_whole(spec, _text(spec, problem), "a spec")
    beside = spec.parent / f"{module}.py"
    if not colon or "." in module or beside.exists():
        return [spec]
    write_whole(beside, _MODULE.format(spec=spec.name, module=module, factory=factory), "a module")
    return [spec, beside]


def _text(spec: Path, problem: str) -> str:
    start = STARTS.get(problem, _OWN)
    commands = {
        f"study {spec.name}": "train with all of them, as far as that is not done yet; which rates hold",
        f"report {spec.with_suffix('.db').name}": "one interactive page of it",
        f"tune {spec.name}": "look for the best method and rate only, at a fraction of the steps",
    }
    width = max(map(len, commands))
    parts = {
        "commands": "\n".join(f"#   surefoot {command:<{width}}   {what}" for command, what in commands.items()),
        "problems": ", ".join(STARTS),
        "problem": problem,
        "data": _DATA.format(data=start.data) if start.data else "",
        "options": "\n".join(f"{line:<28} # {what}" for line, what in start.options),
    }
    return _SPEC.format(**{**vars(start), **parts})
