"""A monitor where the optimizer's groups change, a loss is wrong, or gradients are scaled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import surefoot.optim as sfo
from surefoot.monitor import NonFinite, StabilityMonitor

EVERYTHING = ("loss", "grad_sq", "step", "interval", "update_norm", "distance")


def test_the_size_is_right_where_the_first_group_has_no_gradient(problem):
    first, _, last = problem.model
    first.requires_grad_(False)
    optimizer = sfo.NGN([{"params": first.parameters()}, {"params": last.parameters()}], lr=2.0)
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 3, monitor, "loss")
    trace = monitor.trace()
    assert trace["size"].values == pytest.approx(trace.counterfactual_size.sel(algorithm="ngn").values)


def test_a_first_group_may_be_empty(problem):
    optimizer = torch.optim.SGD([{"params": []}, {"params": list(problem.model.parameters())}], lr=0.1)
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        losses = problem.train(optimizer, 3, monitor)
    assert monitor.trace().loss.values == pytest.approx(losses)


def test_a_group_may_be_added_later(another):
    points = []
    for watched in (False, True):
        problem = another()
        first, _, last = problem.model
        optimizer = torch.optim.SGD(last.parameters(), lr=0.1)
        monitor = StabilityMonitor(optimizer, track=EVERYTHING)
        if watched:
            monitor.attach()
        problem.train(optimizer, 2, monitor)
        joined = torch.cat([problem.point()])
        optimizer.add_param_group({"params": list(first.parameters())})
        problem.train(optimizer, 1, monitor)
        points.append(problem.point())
    assert torch.equal(*points)
    assert monitor.trace().update_norm.values[2] == pytest.approx(float((points[1] - joined).norm()), rel=1e-5)


def test_a_monitor_that_is_attached_again_still_knows_the_start(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    monitor, start = StabilityMonitor(optimizer, track=("loss", "distance")), problem.point()
    for _ in range(2):
        with monitor:
            before = problem.point()
            problem.train(optimizer, 1, monitor)
    assert monitor.trace().distance.values == pytest.approx([0.0, float((before - start).norm())], rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (torch.ones(3), ValueError, r"loss must have one element, got a tensor of shape \(3,\)"),
        ("low", TypeError, "loss must be a number or a tensor of one element, got str"),
        (None, TypeError, "loss must be a number or a tensor of one element, got NoneType"),
    ],
)
def test_a_bad_loss_is_named_when_it_is_recorded(problem, loss, error, message):
    monitor = StabilityMonitor(torch.optim.SGD(problem.model.parameters(), lr=0.1)).attach()
    with pytest.raises(error, match=message):
        monitor.record(loss)


SCALED = {
    "plain": lambda p: torch.optim.SGD(p, lr=0.1),
    "fused": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "fused adam": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
}


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("name", SCALED)
def test_losses_and_gradients_that_were_scaled_are_measured_unscaled(another, name, is_told):
    traces = []
    for scale in (1.0, 1024.0):
        problem = another()
        optimizer, scaler = SCALED[name](problem.model.parameters()), torch.amp.GradScaler("cpu", init_scale=scale)
        with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
            for _ in range(3):
                optimizer.zero_grad()
                loss = problem.loss()
                scaler.scale(loss).backward()
                if is_told:
                    monitor.record(loss)
                scaler.step(optimizer)
                scaler.update()
        traces.append(monitor.trace())
    for column in ("loss", "grad_sq", "delta", "delta_high"):
        assert traces[1][column].values == pytest.approx(traces[0][column].values, rel=1e-4)


@pytest.mark.parametrize("name", SCALED)
def test_an_overflow_of_scaled_gradients_is_no_divergence(problem, name):
    optimizer, scaler = SCALED[name](problem.model.parameters()), torch.amp.GradScaler("cpu", init_scale=4.0)
    losses = []
    with StabilityMonitor(optimizer, track=EVERYTHING, stop=[NonFinite()], flush_every=1) as monitor:
        for step in range(3):
            optimizer.zero_grad()
            monitor.forget()
            loss = problem.loss()
            losses.append(loss.item())
            scaler.scale(loss).backward()
            if step == 1:
                problem.model[0].weight.grad[0, 0] = math.inf
            monitor.record(loss)
            scaler.step(optimizer)
            scaler.update()
    assert monitor.stopped is None
    assert monitor.trace().loss.values[-1] == pytest.approx(losses[2])


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, sfo.SGD])
def test_of_a_loss_that_should_grow_nothing_is_said(problem, make):
    optimizer = make(problem.model.parameters(), lr=0.01, maximize=True)
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 5, monitor)
    verdict = monitor.verdict()
    assert verdict.state == "unknown"
    assert "with maximize=True the loss should grow" in verdict.reason


def test_complex_gradients_may_be_conjugates():
    z = torch.nn.Parameter(torch.ones(4, dtype=torch.cfloat))
    optimizer = torch.optim.SGD([z], lr=0.1)
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        (z.conj() @ torch.full((4,), 1j)).real.backward()
        assert z.grad.is_conj()
        optimizer.step()
    assert monitor.trace().grad_sq.values == pytest.approx([4.0])


def test_groups_without_a_rate_are_refused(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = None
    with pytest.raises(ValueError, match="optimizer must have a learning rate 'lr' in every group, got SGD"):
        StabilityMonitor(optimizer)


def test_sharded_parameters_of_foreign_optimizers_are_sampled(problem, tmp_path):
    import torch.distributed as distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        fully_shard(problem.model, mesh=init_device_mesh("cpu", (1,)))
        optimizer = torch.optim.AdamW(problem.model.parameters(), lr=0.01)
        with StabilityMonitor(optimizer, horizon=20) as monitor:
            losses = problem.train(optimizer, 5, monitor)
        assert monitor.trace().loss.values == pytest.approx(losses)
        assert monitor.verdict().state != "unknown"
        assert np.isnan(monitor.trace().grad_sq.values).all()
        with pytest.raises(ValueError, match="track must be some of loss, grad_sq, step where parameters are DTensors"):
            StabilityMonitor(optimizer, track=EVERYTHING)
    finally:
        distributed.destroy_process_group()


def test_a_recorded_loss_that_is_changed_before_the_step_counts_as_it_was(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    with StabilityMonitor(optimizer) as monitor:
        loss = problem.loss()
        loss.backward()
        monitor.record(loss)
        value = loss.item()
        loss.detach().mul_(10.0)
        optimizer.step()
    assert monitor.trace().loss.values == pytest.approx([value])
