"""Our rows in torch's own database of optimizers, which ships with the wheel: ``OptimizerInfo`` and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import surefoot.optim as sfo

pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest")
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput, optim_db

RATES = {"SGD": 0.1, "SPS": 0.5, "NGN": 0.5, "LogNGN": 0.3, "PowerStep": 0.5, "MoMo": 0.5, "NGNMomentum": 0.5}
ADAMS = ("SPSAdam", "NGNAdam", "MoMoAdam", "NGNMomentumAdam")

NOT_APPLICABLE = {
    "complex parameters": "refused: the models are of real losses of real parameters, TypeError names the dtype",
    "sparse gradients": "refused: RuntimeError names the layout",
    "differentiable": "no argument: steps are taken under no_grad",
    "capturable": "no argument: steps on devices never read a value, and torch.compile takes them as they are",
    "momentum, dampening, nesterov": "no arguments: our averages weigh gradients by 1 - beta (the groups hold beta)",
    "amsgrad, eta, lambd, rho, ...": "other methods' arguments",
    "a step without any loss": "refused with a reason: the step depends on the loss, which backward() tells it",
}
"""What torch's database asks of others and cannot ask of these optimizers, and why."""


def inputs_of(name: str) -> Callable[..., list[OptimizerInput]]:
    lr = RATES.get(name, 0.05)

    def inputs(device: Any = None, dtype: Any = None) -> list[OptimizerInput]:
        cases: dict[str, dict[str, Any]] = {
            "default": {},
            "non-default lr": {"lr": 0.5 * lr},
            "tensor lr": {"lr": torch.tensor(lr)},
            "nonzero weight_decay": {"lr": lr, "weight_decay": 0.1},
            "maximize": {"lr": lr, "maximize": True},  # of the negative loss
            "clipped": {"lr": lr, "max_grad_norm": 1.0},
        }
        if name in ADAMS:
            cases["betas"] = {"lr": lr, "betas": (0.5, 0.9), "eps": 1e-6}
        else:
            cases["beta"] = {"lr": lr, "beta": 0.5}
        if name not in ("SGD", "Muon"):
            cases["estimated bound"] = {"lr": lr, "lower_bound": "estimate"}
        return [OptimizerInput(params=None, kwargs=kwargs, desc=desc) for desc, kwargs in cases.items()]

    return inputs


INFOS = {
    name: OptimizerInfo(
        row,
        optim_inputs_func=inputs_of(name),
        scheduler_inputs=next(info for info in optim_db if info.optim_cls is torch.optim.SGD).scheduler_inputs,
        supported_impls=("foreach", "fused") if name in ADAMS else ("foreach",),
        not_og_supported_flags=("foreach", "maximize"),
        supports_complex=False,
        supports_fused_on=("cpu",) if name in ADAMS else (),
    )
    for name, row in sfo.TABLE.items()
}

KINDS = ("NGN", "MoMo", "NGNMomentum", "MoMoAdam", "NGNMomentumAdam", "SPSMuon")
"""A row of every averaging and geometry: their arguments are those of all."""
CASES = [
    pytest.param(info, given, id=f"{name}-{given.desc}")
    for name, info in INFOS.items()
    for given in info.optim_inputs_func(device="cpu")
    if name in KINDS or given.desc == "default"
]
