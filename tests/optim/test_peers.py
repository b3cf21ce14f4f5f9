"""The same trajectories as other people's implementations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.optim.optim_problem import Problem, distance, train

import surefoot.optim as sfo


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_sgd_is_torchs_to_rounding(dtype: torch.dtype) -> None:
    ours, theirs = Problem(dtype), Problem(dtype)
    left = train(ours, sfo.SGD(ours.params, 0.05), range(30))
    peer = torch.optim.SGD(theirs.params, 0.05)
    for index in range(30):
        theirs.backward(index)
        peer.step()
    assert distance(left, theirs.values()) <= {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 0.02}[dtype]


def test_decoupled_decay_is_that_of_adamw() -> None:
    # One step from the same state: AdamW's direction is MoMoAdam's while the cap holds.
    ours, theirs = Problem(), Problem()
    left = train(ours, sfo.MoMoAdam(ours.params, 1e-3, weight_decay=0.1), range(5))
    peer = torch.optim.AdamW(theirs.params, 1e-3, weight_decay=0.1)
    for index in range(5):
        theirs.backward(index)
        peer.step()
    assert distance(left, theirs.values()) <= 1e-12


THEIR_ROUNDING = 1e-5
"""With bias correction, momo-opt keeps its inner products in float32, whatever the parameters' dtype."""

ESTIMATE = sfo.Estimate(cap=None)
"""MoMo's own rule."""

MOMO = [
    {},
    {"bias_correction": True},
    {"lower_bound": 0.2},
    {"lower_bound": ESTIMATE},
    {"beta": 0.5},
]


@pytest.mark.parametrize("options", MOMO, ids=str)
@pytest.mark.parametrize("lr", [0.05, 0.5, 20.0])
def test_momo_is_the_authors(lr: float, options: dict[str, Any]) -> None:
    momo = pytest.importorskip("momo", reason="the comparison needs momo-opt")
    ours, theirs = Problem(), Problem()
    theirs_options = {
        "lb": options.get("lower_bound", 0.0),
        "beta": options.get("beta", 0.9),
        "bias_correction": options.get("bias_correction", False),
    }
    if theirs_options["lb"] == ESTIMATE:
        theirs_options |= {"lb": 0.0, "use_fstar": True}
    optimizer = sfo.MoMo(ours.params, lr, **options)
    peer = momo.Momo(theirs.params, lr, **theirs_options)
    for index in range(25):
        optimizer.step(loss=ours.backward(index))
        peer.step(loss=theirs.backward(index))
    assert distance(ours.values(), theirs.values()) <= (THEIR_ROUNDING if options.get("bias_correction") else 1e-9)


@pytest.mark.parametrize("options", [{}, {"lower_bound": ESTIMATE}], ids=str)
@pytest.mark.parametrize("lr", [1e-3, 0.03, 1.0])
def test_momo_adam_is_the_authors(lr: float, options: dict[str, Any]) -> None:
    momo = pytest.importorskip("momo", reason="the comparison needs momo-opt")
    ours, theirs = Problem(), Problem()
    optimizer = sfo.MoMoAdam(ours.params, lr, **options)
    estimated = options.get("lower_bound") == ESTIMATE
    peer = momo.MomoAdam(theirs.params, lr, use_fstar=estimated)
    for index in range(25):
        optimizer.step(loss=ours.backward(index))
        peer.step(loss=theirs.backward(index))
    assert distance(ours.values(), theirs.values()) <= THEIR_ROUNDING
