"""Mixed precision: autocast, and the gradient scaler that forwards the loss."""

from __future__ import annotations

import pytest
import torch
from tests.optim.optim_problem import NAMES, Problem, distance, make, train


@pytest.mark.parametrize("name", NAMES)
def test_the_scaler_gives_the_same_steps(name: str) -> None:
    plain, scaled = Problem(torch.float32), Problem(torch.float32)
    left = train(plain, make(name, plain.params), range(5))
    optimizer = make(name, scaled.params)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for index in range(5):
        optimizer.zero_grad()
        loss = scaled.loss(index)
        scaler.scale(loss).backward()
        scaler.step(optimizer, loss=loss)
        scaler.update()
    assert distance(left, scaled.values()) <= 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_autocast_to_bfloat16_trains(name: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = make(name, net.parameters())
    inputs = torch.randn(64, 4)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (net(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step(loss=loss)
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert optimizer.skipped == 0


def test_a_scaler_of_ones_own_is_followed_once() -> None:
    class Scaler(torch.amp.GradScaler):
        def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
            super().unscale_(optimizer)

    problem = Problem(torch.float32)
    optimizer, scaler = make("SPS", problem.params), Scaler("cpu", init_scale=1024.0)
    loss = problem.loss(0)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    assert optimizer.pending_loss == loss.detach()


def test_the_scaler_of_sharded_parameters_is_followed() -> None:
    """Its class does not call the one that it is made from."""
    from torch import distributed
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        problem = Problem(torch.float32)
        optimizer, scaler = make("SPS", problem.params), ShardedGradScaler("cpu", init_scale=1024.0)
        loss = problem.loss(0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        assert optimizer.pending_loss == loss.detach()
    finally:
        distributed.destroy_process_group()
