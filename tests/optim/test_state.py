"""Runs continue bitwise from whatever was saved."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from tests.optim.optim_problem import KINDS, NAMES, UNBOUNDED, Problem, equal, make, train
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
OPTIONS: list[dict[str, Any]] = [
    {"lower_bound": "estimate"},
    {"lower_bound": "level"},
    {"weight_decay": 0.1, "max_grad_norm": 1.0},
]


def saved_and_loaded(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


@pytest.mark.parametrize(
    ("name", "dtype", "options"),
    [
        *((name, dtype, {}) for name in NAMES for dtype in DTYPES),
        *((name, torch.float32, options) for name in (*KINDS, "Surefoot") for options in OPTIONS),
    ],
    ids=str,
)
def test_save_and_load_continue_bitwise(name: str, dtype: torch.dtype, options: dict[str, Any]) -> None:
    if name in (*UNBOUNDED, "Surefoot"):
        options = {key: value for key, value in options.items() if key != "lower_bound"}
    unbroken = Problem(dtype)
    whole = train(unbroken, make(name, unbroken.groups(name), **options), range(8))
    first, second = Problem(dtype), Problem(dtype, seed=7)
    optimizer = make(name, first.groups(name), **options)
    train(first, optimizer, range(4))
    saved = saved_and_loaded({"params": first.values(), "optimizer": optimizer.state_dict()})
    with torch.no_grad():
        for p, value in zip(second.params, saved["params"], strict=True):
            p.copy_(value)
    resumed = make(name, second.groups(name), **options)
    resumed.load_state_dict(saved["optimizer"])
    assert torch.equal(resumed.last_step.size, optimizer.last_step.size)
    assert equal(whole, train(second, resumed, range(4, 8)))


@pytest.mark.parametrize("name", NAMES)
def test_a_full_distributed_checkpoint_continues_bitwise_and_in_silence(name: str) -> None:
    def step(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        network(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()

    torch.manual_seed(0)
    network, other = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    optimizer, resumed = make(name, network.parameters()), make(name, other.parameters())
    step(network, optimizer)
    step(network, optimizer)
    options = StateDictOptions(full_state_dict=True)
    saved = copy.deepcopy(get_optimizer_state_dict(network, optimizer, options=options))
    other.load_state_dict(network.state_dict())
    set_optimizer_state_dict(other, resumed, saved, options=options)
    for _ in range(3):
        step(network, optimizer)
        step(other, resumed)
    assert torch.equal(network.weight, other.weight)
    assert torch.equal(resumed.last_step.delta, optimizer.last_step.delta)


def test_scalars_are_not_rounded_to_the_parameters_dtype() -> None:
    problem = Problem(torch.bfloat16)
    optimizer = make("MoMo", problem.params)
    train(problem, optimizer, range(3))
    fresh = make("MoMo", problem.params)
    fresh.load_state_dict(optimizer.state_dict())
    assert fresh.param_groups[0]["memory"].dtype is torch.float64
    assert torch.equal(fresh.param_groups[0]["memory"], optimizer.param_groups[0]["memory"])
