"""The paper's convex experiments as studies, with its settings; the methods that it left out run along."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from surefoot._base.arguments import one_of
from surefoot.problems import Constants, constants
from surefoot.study import Result, Study

_REGRESSION: dict[str, Any] = {
    "problem": "linear-regression",
    "methods": ["sgd", "sps", "spp", "ngn", "log-ngn"],
    "lrs": np.logspace(-3, 2, 16).tolist(),
    "seeds": 5,
    "epochs": 10,
    "batch_size": 5,
    "distance": 1.0,
    "problem_options": {"start": "zeros"},  # so that ‖x₁ − x̂‖ = 1 = D
}
_CLASSIFICATION: dict[str, Any] = {
    "problem": "logistic-regression",
    "methods": ["sgd", "sps", "ngn", "spp", "log-ngn"],
    "lrs": np.logspace(-2, 2, 9).tolist(),
    "seeds": 3,
    "batch_size": 16,
}
_NOISY = {"start": "zeros", "noise": 1.0}
_VARIANT: dict[str, Any] = {"methods": ["sgd", "sps", "spp"], "seeds": 100}
"""V1 to V3. The paper has 5 seeds, which is a lottery at large rates: SPS at α = 100 on V2 ends between 0.4 and 0.9,
depending on the seeds and on the processor."""


class Experiment(NamedTuple):
    """A convex study of the paper, and what its figure shows."""

    title: str
    settings: dict[str, Any]
    """Arguments of :class:`~surefoot.study.Study`."""
    shown: tuple[str, ...]
    """The methods of the paper's figure."""
    rates: tuple[float, ...]
    """Rates whose δ_t are drawn over time."""
    lower_bound: float = 0.0
    """C of the truncated model, for ε_lb."""


def _regression(title: str, **changes: Any) -> Experiment:
    return Experiment(title, {**_REGRESSION, **changes}, ("sgd", "sps", "spp"), (0.1, 0.46, 10.0))


def _classification(data: str, **settings: Any) -> Experiment:
    settings = {**_CLASSIFICATION, "data": data, **settings}
    return Experiment(f"Logistic regression on {data}", settings, ("sgd", "sps", "ngn"), (1.0, 10.0, 100.0))


EXPERIMENTS = {
    "linear-regression": _regression("Linear regression with interpolation"),
    "v1": _regression("V1: noise on the targets", problem_options=_NOISY, **_VARIANT),
    "v2": _regression("V2: noise, batches of 25", problem_options=_NOISY, batch_size=25, epochs=50, **_VARIANT),
    "v3": _regression(
        "V3: no noise, C = −2", **{**_VARIANT, "methods": ["sgd", "sps(lower_bound=-2)", "spp"]}
    )._replace(shown=("sgd", "sps(lower_bound=-2)", "spp"), lower_bound=-2.0),
    "vowel": _classification("vowel", epochs=20, distance=100.0),
    "dna": _classification("dna", epochs=10, distance=50.0),
}


def study(name: str, **changes: Any) -> Study:
    """The study behind an experiment, with some settings changed.

    >>> study("linear-regression", sampling="iid").plan().total
    400
    """
    return Study(**{**EXPERIMENTS[one_of("experiment", name, EXPERIMENTS)].settings, **changes})


def run(name: str, folder: Path | None = None, **changes: Any) -> Result:
    """The experiment's result; with a folder it is kept there as NAME.db, and later calls only read it."""
    store = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        store = folder / f"{name}.db"
    return study(name, **changes).run(store, progress=False)


def constants_of(name: str, batch_size: int | None = None) -> Constants:
    """σ² and ε_lb of an experiment, over 200 batches; of its own batch size, or another one."""
    chosen = EXPERIMENTS[name]
    size = chosen.settings["batch_size"] if batch_size is None else batch_size
    return constants(study(name).problem, size, lower_bound=chosen.lower_bound)
