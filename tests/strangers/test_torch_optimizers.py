"""What torch demands of its own optimizers, for ours: generic tests with torch's database of optimizers and inputs.

The database, ``OptimizerInfo``, ships with torch. Not asked for, because our optimizers have no such argument or refuse
it by name: complex parameters, sparse gradients, differentiable, capturable, foreach, fused, and the arguments of
other methods.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import lr_scheduler, swa_utils

import surefoot.optim as sfo

pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest")
from torch.testing._internal.common_optimizers import (
    OptimizerInfo,
    OptimizerInput,
    get_error_inputs_for_all_optims,
    optim_db,
)

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of", "ignore:To get the last learning rate")

RATES = {"SGD": 0.1, "SPS": 0.5, "NGN": 0.5, "LogNGN": 0.3, "MoMo": 0.5, "NGNMomentum": 0.5}
ADAMS = ("NGNAdam", "MoMoAdam", "NGNMomentumAdam")
KINDS = ("NGN", "MoMo", "NGNMomentum", "MoMoAdam", "NGNMomentumAdam", "SPSMuon")
"""One of every momentum and geometry: their arguments are those of all."""
NAMES = ("SGD", "SPS", "LogNGN", "NGNAdam", "Muon", *KINDS)


def inputs_of(name: str) -> list[OptimizerInput]:
    lr = RATES.get(name, 0.05)
    cases: dict[str, dict[str, Any]] = {"default": {}}
    if name in KINDS:
        cases |= {
            "tensor lr": {"lr": torch.tensor(lr)},
            "nonzero weight_decay": {"lr": lr, "weight_decay": 0.1},
            "maximize": {"lr": lr, "maximize": True},  # of the negative loss
            "clipped": {"lr": lr, "max_grad_norm": 1.0},
            "estimated bound": {"lr": lr, "lower_bound": "estimate"},
            "momentum": {"lr": lr, "betas": (0.5, 0.9), "eps": 1e-6} if name in ADAMS else {"lr": lr, "beta": 0.5},
        }
    return [OptimizerInput(params=None, kwargs=kwargs, desc=desc) for desc, kwargs in cases.items()]


def marks(fast: bool) -> Any:
    """Only NGN with its default arguments is tested in every run."""
    return () if fast else pytest.mark.slow


INFOS = {
    name: OptimizerInfo(
        sfo.TABLE[name],
        optim_inputs_func=lambda device=None, dtype=None, name=name: inputs_of(name),
        scheduler_inputs=next(info for info in optim_db if info.optim_cls is torch.optim.SGD).scheduler_inputs,
        supports_complex=False,
    )
    for name in NAMES
}
EACH = [pytest.param(info, id=name, marks=marks(name == "NGN")) for name, info in INFOS.items()]
CASES = [
    pytest.param(info, given, id=f"{name}-{given.desc}", marks=marks(name == "NGN" and given.desc == "default"))
    for name, info in INFOS.items()
    for given in info.optim_inputs_func(device="cpu")
]


class Task:
    """A weight and a bias that should fit random data; the loss is bounded below by 0."""

    def __init__(self, dtype: torch.dtype = torch.float64, contiguous: bool = True) -> None:
        generator = torch.Generator().manual_seed(2024)
        weight = torch.rand((10, 5), generator=generator, dtype=torch.float64)
        bias = torch.rand(10, 2, generator=generator, dtype=torch.float64)[:, 0]
        self.inputs = torch.rand(5, generator=generator, dtype=torch.float64).to(dtype)
        self.params = [
            Parameter(weight.to(dtype)),
            Parameter(bias.to(dtype) if not contiguous else bias.clone().to(dtype)),
        ]

    def loss(self) -> Tensor:
        return (self.params[0].mv(self.inputs) + self.params[1]).square().sum()

    def train(self, optimizer: Any, steps: int, schedulers: Any = (), sign: float = 1.0) -> list[Tensor]:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = self.loss()
            (sign * loss).backward()
            optimizer.step()
            for scheduler in schedulers:
                if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
                    scheduler.step(loss.detach())
                else:
                    scheduler.step()
        return [p.detach().clone() for p in self.params]


def build(info: Any, given: Any, params: Any) -> Any:
    return info.optim_cls(params, **copy.deepcopy(given.kwargs))


def equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(("info", "given"), CASES)
def test_goes_in_the_right_direction(info: Any, given: Any) -> None:
    sign = -1.0 if given.kwargs.get("maximize") else 1.0
    default = given.desc == "default"
    for schedulers in ((), *info.scheduler_inputs) if default else ((),):
        task = Task(contiguous=not default)
        optimizer = build(info, given, task.params)
        before = task.loss().item()
        task.train(optimizer, 20, [make(optimizer) for make in schedulers], sign)
        assert task.loss().item() < before


@pytest.mark.parametrize("again", ["state_dict", "deepcopy", "pickle"])
@pytest.mark.parametrize(("info", "given"), CASES)
def test_goes_on_bitwise_from_a_copy(info: Any, given: Any, again: str) -> None:
    sign = -1.0 if given.kwargs.get("maximize") else 1.0
    task = Task()
    optimizer = build(info, given, task.params)
    task.train(optimizer, 3, sign=sign)
    if again == "state_dict":
        other = copy.deepcopy(task)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        twin = build(info, given, other.params)
        twin.load_state_dict(torch.load(file, weights_only=True))
    else:
        other, twin = (copy.deepcopy if again == "deepcopy" else lambda x: pickle.loads(pickle.dumps(x)))(
            (task, optimizer)
        )
    assert equal(task.train(optimizer, 3, sign=sign), other.train(twin, 3, sign=sign))


@pytest.mark.parametrize("info", EACH)
def test_groups_have_rates_and_decay_of_their_own(info: Any) -> None:
    task = Task()
    groups = [{"params": [task.params[0]], "lr": 0.0}, {"params": [task.params[1]], "weight_decay": 0.1}]
    optimizer = info.optim_cls(groups, lr=0.05)
    before = [p.detach().clone() for p in task.params]
    task.train(optimizer, 2)
    assert torch.equal(before[0], task.params[0])
    assert not torch.equal(before[1], task.params[1])
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.05]


@pytest.mark.parametrize("info", EACH)
def test_a_group_may_be_added(info: Any) -> None:
    task = Task()
    optimizer = info.optim_cls([task.params[0]], lr=0.05)
    task.train(optimizer, 2)
    optimizer.add_param_group({"params": task.params[1:]})
    before = task.params[1].detach().clone()
    task.train(optimizer, 1)
    assert not torch.equal(before, task.params[1])


@pytest.mark.parametrize("info", EACH)
def test_gradients_are_left_as_they_are_and_need_not_be_there(info: Any) -> None:
    task = Task()
    unused = Parameter(torch.ones(3, dtype=torch.float64))
    empty = Parameter(torch.empty(0, dtype=torch.float64))
    optimizer = info.optim_cls([*task.params, unused, empty], lr=0.05)
    task.loss().backward()
    empty.grad = torch.empty_like(empty)
    grads = [p.grad.clone() for p in task.params if p.grad is not None]
    optimizer.step()
    assert equal(grads, [p.grad for p in task.params if p.grad is not None])
    assert unused.grad is None
    assert bool((unused == 1).all())
    assert not any(p.grad.requires_grad for p in task.params if p.grad is not None)
    optimizer.zero_grad(set_to_none=False)
    assert all(bool((p.grad == 0).all()) for p in task.params if p.grad is not None)
    optimizer.zero_grad()
    assert all(p.grad is None for p in task.params)


@pytest.mark.parametrize("info", EACH)
def test_hooks_are_called_in_order(info: Any) -> None:
    task = Task()
    optimizer = info.optim_cls(task.params, lr=0.05)
    seen: list[str] = []

    def note(word: str) -> Callable[..., None]:
        return lambda *_: seen.append(word)

    optimizer.register_step_pre_hook(note("before step"))
    optimizer.register_step_post_hook(note("after step"))
    optimizer.register_state_dict_pre_hook(note("before saving"))
    optimizer.register_state_dict_post_hook(note("after saving"))
    optimizer.register_load_state_dict_pre_hook(note("before loading"))
    optimizer.register_load_state_dict_post_hook(note("after loading"))
    task.train(optimizer, 1)
    optimizer.load_state_dict(optimizer.state_dict())
    words = ("step", "saving", "loading")
    assert seen == [f"{when} {word}" for word in words for when in ("before", "after")]


@pytest.mark.parametrize("info", EACH)
def test_a_closure_is_called_once_with_gradients_enabled(info: Any) -> None:
    task = Task()
    optimizer = info.optim_cls(task.params, lr=0.05)
    calls = []

    def closure() -> Tensor:
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = task.loss()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure) is not None
    assert calls == [True]


@pytest.mark.parametrize("info", EACH)
def test_errors_that_all_optimizers_share(info: Any) -> None:
    for case in get_error_inputs_for_all_optims("cpu", torch.float32):
        given = case.optimizer_error_input
        with pytest.raises(case.error_type) as caught:
            info.optim_cls(given.params if given.params is not None else Task().params, **given.kwargs)
        assert str(caught.value)


@pytest.mark.parametrize("info", EACH)
def test_what_is_not_supported_is_refused_by_name(info: Any) -> None:
    assert not info.supports_complex
    with pytest.raises(TypeError, match="complex"):
        info.optim_cls([Parameter(torch.ones(2, dtype=torch.complex64))])
    x = Parameter(torch.ones(3, 2))
    optimizer = info.optim_cls([x])
    x.grad = torch.ones(3, 2).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step(loss=1.0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        info.optim_cls([x], differentiable=True)


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.01),
}


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("kind", [sfo.NGN, sfo.MoMoAdam, sfo.SPSMuon, sfo.Surefoot])  # one per geometry, and Surefoot
def test_every_scheduler_constructs_runs_and_resumes(kind: Any, scheduler: Callable[[Any], Any]) -> None:
    task = Task()
    optimizer = kind(task.params, lr=0.05)
    made = scheduler(optimizer)
    task.train(optimizer, 4, [made])
    state = optimizer.state_dict()
    made.load_state_dict(made.state_dict())
    optimizer.load_state_dict(state)
    task.train(optimizer, 2, [made])
    assert all(bool(p.isfinite().all()) for p in task.params)
