"""check_optimizer passes every optimizer of ours, and names what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import surefoot.optim as sfo
from surefoot.testing import check_optimizer

RATES = {"SGD": 0.05, "LogNGN": 0.1, "NGNMomentum": 0.2}


@pytest.mark.parametrize("name", ["SGD", "LogNGN", "NGNMomentum", "MoMoAdam", "SPSMuon"])  # every part of a step once
def test_optimizers_of_every_kind_pass(name: str) -> None:
    check_optimizer(lambda params: sfo.TABLE[name](params, RATES.get(name, 0.02)))  # type: ignore[call-arg]


def test_one_that_needs_a_closure_passes() -> None:
    check_optimizer(lambda params: sfo.SPP(params, 0.1, tolerance=1e-3, max_calls=30))


class Naive(torch.optim.Optimizer):
    """A Polyak step as one might write it in a hurry; each flaw can be switched on."""

    def __init__(self, params: Any, flaw: str = "") -> None:
        self.flaw, self.calls = flaw, 0
        super().__init__(params, {"lr": 0.1})

    def __getstate__(self) -> dict[str, Any]:
        kept = {} if self.flaw == "attributes lost in a copy" else {"flaw": self.flaw, "calls": self.calls}
        return {**super().__getstate__(), **kept}

    def train(self) -> None:
        """Nothing to bring back, or nothing brought back."""

    @torch.no_grad()
    def eval(self) -> None:
        if self.flaw == "stuck in eval mode":
            self.param_groups[0]["params"][0].zero_()

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None, *, loss: Tensor | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if loss is None or loss.numel() != 1:
            raise ValueError("one loss is needed")
        self.calls += 1
        groups = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        for group, params in zip(self.param_groups, groups, strict=True):
            of_step = params if self.flaw == "norm per group" else [p for others in groups for p in others]
            grad_sq = sum(float(p.grad.double().square().sum()) for p in of_step if p.grad is not None)
            if not (torch.isfinite(loss) and grad_sq < float("inf")) and self.flaw != "moves on nan":
                continue
            size = min(group["lr"], float(loss) / grad_sq)
            if self.flaw == "state outside state_dict":
                size /= self.calls
            for p in params:
                assert p.grad is not None
                p.add_(p.grad, alpha=-size)


def test_a_sound_optimizer_of_somebody_else_passes() -> None:
    check_optimizer(Naive)


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("norm per group", "two groups"),
        ("state outside state_dict", "state_dict"),
        ("moves on nan", "NaN"),
        ("attributes lost in a copy", "deep copy"),
        ("stuck in eval mode", r"train\(\) after eval\(\)"),
    ],
)
def test_flaws_are_named(flaw: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_optimizer(lambda params: Naive(params, flaw))
