"""The monitor: it sees what happens, and changes nothing."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

import surefoot.optim as sfo
from surefoot.monitor import DeltaExplosion, NonFinite, StabilityMonitor

FOREIGN = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


@pytest.mark.parametrize(("name", "style"), [*((name, "closure") for name in FOREIGN), ("adamw", "record")])
def test_a_monitor_sees_every_point_and_changes_nothing(another, name, style):
    alone, watched = another(), another()
    reference, optimizer = (FOREIGN[name](problem.model.parameters()) for problem in (alone, watched))
    monitor = StabilityMonitor(optimizer, horizon=20, stop=[NonFinite()]).attach().attach()  # once is enough
    losses, squares = [], []
    for _ in range(12):
        here = copy.deepcopy(alone)
        here.loss().backward()
        squares.append(sum(float(p.grad.double().square().sum()) for p in here.model.parameters()))
        losses += alone.train(reference, 1, style=style)
        watched.train(optimizer, 1, monitor, style)
    assert torch.equal(alone.point(), watched.point())
    assert monitor.steps == 12
    assert monitor.trace().loss.values == pytest.approx(losses, rel=1e-6)
    assert monitor.trace().grad_sq.values == pytest.approx(squares, rel=1e-5)
    monitor.detach()
    watched.train(optimizer, 3, style=style)
    assert monitor.steps == 12


def test_the_losses_of_a_new_group_are_received(problem):
    """Also where its parameters are the only ones that get a gradient from then on."""
    first, _, last = problem.model
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 2, style="plain")
        optimizer.add_param_group({"params": last.parameters()})
        problem.train(optimizer, 1, style="plain")
        first.requires_grad_(False)
        losses = problem.train(optimizer, 3, style="plain")
    assert monitor.trace().loss.values[-3:] == pytest.approx(losses, rel=1e-6)


@pytest.mark.parametrize("style", ["loss", "add_loss", "closure"])
@pytest.mark.parametrize("kind", [sfo.SGD, sfo.NGN])
def test_our_optimizers_give_their_loss_and_their_own_step(problem, kind, style):
    """Also where their first group has no gradient."""
    first, _, last = problem.model
    first.requires_grad_(False)
    optimizer = kind([{"params": first.parameters()}, {"params": last.parameters()}], lr=2.0)
    losses, deltas, sizes = [], [], []
    with StabilityMonitor(optimizer) as monitor:
        for _ in range(4):
            losses += problem.train(optimizer, 1, monitor, style)
            deltas.append(optimizer.last_step.delta.item())
            sizes.append(optimizer.last_step.size.reshape(-1)[0].item())
    trace = monitor.trace()
    assert trace.loss.values == pytest.approx(losses, rel=1e-6)
    assert (trace.delta.values.tolist(), trace["size"].values.tolist()) == (deltas, sizes)
    assert trace.attrs["delta_source"] == "model"


def test_recorded_losses_are_summed_as_they_were(problem):
    optimizer = torch.optim.SGD([{"params": []}, {"params": problem.model.parameters()}], lr=torch.tensor(0.1))
    total = 0.0
    with StabilityMonitor(optimizer) as monitor:
        for _ in range(4):
            loss = problem.loss() / 4
            loss.backward()
            monitor.record(loss)
            total += loss.item()
            loss.detach().mul_(10.0)
        optimizer.step()
    assert monitor.trace().loss.values == pytest.approx([total], rel=1e-6)
    assert monitor.trace().rate.values == pytest.approx([0.1])


@pytest.mark.parametrize(
    ("make", "by_closure", "parts"),
    [(torch.optim.AdamW, False, 1), (torch.optim.AdamW, True, 3), (sfo.NGN, False, 3), (sfo.NGN, True, 3)],
)
def test_the_loss_of_backward_is_taken(problem, make, by_closure, parts):
    """Of all micro batches, also where a closure does the last of them, as in Lightning."""
    optimizer, expected = make(problem.model.parameters(), lr=0.1), []

    def part():
        loss = problem.loss() / parts
        loss.backward()
        expected[-1] += loss.item()
        return loss

    with StabilityMonitor(optimizer) as monitor:
        for _ in range(4):
            optimizer.zero_grad()
            expected.append(0.0)
            for _ in range(parts - by_closure):
                part()
            optimizer.step(*([part] if by_closure else []))
    assert monitor.trace().loss.values == pytest.approx(expected, rel=1e-6)


def test_a_loss_that_is_not_known_is_missing_and_no_divergence(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    with StabilityMonitor(optimizer, stop=[NonFinite()], flush_every=2, listen=False) as monitor:
        problem.train(optimizer, 4)
    trace = monitor.trace()
    assert np.isnan(trace.loss).all()
    assert np.isfinite(trace.delta).all()
    assert np.isnan(trace.counterfactual_size.sel(algorithm="sps")).all()
    assert not monitor.should_stop
    assert monitor.verdict().state == "unknown"


def test_an_unstable_run_is_stopped_within_a_few_steps(problem):
    problem.model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=3.0)
    with StabilityMonitor(optimizer, stop=[DeltaExplosion()], flush_every=4) as monitor:
        while not monitor.should_stop and monitor.steps < 100:
            problem.train(optimizer, 1, monitor)
    assert monitor.steps <= 8
    assert monitor.stopped.step < monitor.steps
    assert "stability index" in monitor.verdict().reason


def test_creating_state_at_rate_zero_is_no_step(problem):
    """torch.distributed.checkpoint does this: no loss, zero gradients, rate 0."""
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.0)
    for p in problem.model.parameters():
        p.grad = torch.zeros_like(p)
    with StabilityMonitor(optimizer) as monitor:
        optimizer.step(closure=None)
    assert monitor.steps == 0


def test_sparse_gradients():
    table = torch.nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    with StabilityMonitor(optimizer) as monitor:
        loss = table(torch.tensor([1, 1, 2])).square().sum()
        loss.backward()
        expected = float(table.weight.grad.to_dense().double().square().sum())
        monitor.record(loss)
        optimizer.step()
    assert monitor.trace().grad_sq.values == pytest.approx([expected], rel=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"horizon": 0}, ValueError, "horizon"),
        ({"distance": -1.0}, ValueError, "distance"),
        ({"distance": math.nan}, ValueError, "distance"),
        ({"models": ["spz"]}, ValueError, "spz"),
        ({"models": "sgd"}, ValueError, "models"),
        ({"models": ["power"]}, ValueError, "power"),
        ({"stop": ["no"]}, TypeError, "stop"),
        ({"schedule": [1.0, 1.0], "horizon": 3}, ValueError, "schedule"),
        ({"schedule": [0.0, 0.0]}, ValueError, "schedule"),
        ({"flush_every": 0}, ValueError, "flush_every"),
    ],
)
def test_bad_arguments_are_named(problem, options, error, name):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    with pytest.raises(error, match=name):
        StabilityMonitor(optimizer, **options)


def test_only_optimizers_with_rates_can_be_watched(problem):
    with pytest.raises(TypeError, match="optimizer"):
        StabilityMonitor(problem.model)
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = None
    with pytest.raises(ValueError, match="optimizer must have a learning rate 'lr' in every group, got SGD"):
        StabilityMonitor(optimizer)


def test_a_group_may_be_added_later(another):
    points = []
    for watched in (False, True):
        problem = another()
        first, _, last = problem.model
        optimizer = torch.optim.SGD(last.parameters(), lr=0.1)
        monitor = StabilityMonitor(optimizer)
        if watched:
            monitor.attach()
        problem.train(optimizer, 2, monitor)
        joined = torch.cat([problem.point()])
        optimizer.add_param_group({"params": list(first.parameters())})
        problem.train(optimizer, 1, monitor)
        points.append(problem.point())
    assert torch.equal(*points)
    assert monitor.numbers()["moved_sq"][2] == pytest.approx(float((points[1] - joined).square().sum()), rel=1e-5)
    assert monitor.numbers()["away_sq"].tolist()[2] == 0.0  # the sample has started again


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


@pytest.mark.parametrize(("name", "is_recorded"), [("plain", True), ("fused", False), ("fused adam", False)])
def test_losses_and_gradients_that_were_scaled_are_measured_unscaled(another, name, is_recorded):
    traces = []
    for scale in (1.0, 1024.0):
        problem = another()
        optimizer, scaler = SCALED[name](problem.model.parameters()), torch.amp.GradScaler("cpu", init_scale=scale)
        with StabilityMonitor(optimizer) as monitor:
            for _ in range(3):
                optimizer.zero_grad()
                loss = problem.loss()
                scaler.scale(loss).backward()
                if is_recorded:
                    monitor.record(loss)
                scaler.step(optimizer)
                scaler.update()
        traces.append(monitor.trace())
    for column in ("loss", "grad_sq", "delta"):
        assert traces[1][column].values == pytest.approx(traces[0][column].values, rel=1e-4)


@pytest.mark.parametrize("name", ["plain", "fused"])
def test_an_overflow_of_scaled_gradients_is_no_divergence(problem, name):
    optimizer, scaler = SCALED[name](problem.model.parameters()), torch.amp.GradScaler("cpu", init_scale=4.0)
    losses = []
    with StabilityMonitor(optimizer, stop=[NonFinite()], flush_every=1) as monitor:
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


def test_complex_gradients_may_be_conjugates():
    z = torch.nn.Parameter(torch.ones(4, dtype=torch.cfloat))
    optimizer = torch.optim.SGD([z], lr=0.1)
    with StabilityMonitor(optimizer) as monitor:
        (z.conj() @ torch.full((4,), 1j)).real.backward()
        assert z.grad.is_conj()
        optimizer.step()
    assert monitor.trace().grad_sq.values == pytest.approx([4.0])


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
    finally:
        distributed.destroy_process_group()


def test_inner_products_are_those_of_the_step_and_of_the_gradient_after_it(problem):
    optimizer = torch.optim.AdamW(problem.model.parameters(), lr=1e-2)
    gradients, points = [], [problem.point().double()]
    with StabilityMonitor(optimizer) as monitor:
        for _ in range(5):
            problem.train(optimizer, 1, monitor)
            gradients.append(torch.cat([p.grad.reshape(-1) for p in problem.model.parameters()]).double())
            points.append(problem.point().double())
    expected = {name: [] for name in ("slope", "moved_sq", "point_sq", "away_sq", "back", "carried")}
    for step, gradient in enumerate(gradients):
        point, moved, away = points[step], points[step] - points[step + 1], points[step] - points[0]
        before = points[step - 1] - point if step else torch.full_like(point, math.nan)
        products = (gradient @ moved, moved @ moved, point @ point, away @ away, gradient @ away, gradient @ before)
        for values, product in zip(expected.values(), products, strict=True):
            values.append(float(product))
    for name, values in expected.items():
        assert monitor.numbers()[name] == pytest.approx(values, rel=1e-5, nan_ok=True), name


def test_a_large_network_is_measured_in_part():
    """A step along the gradient has the same slope per squared gradient on every sample."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(900, 900), torch.nn.Linear(900, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with StabilityMonitor(optimizer) as monitor:
        model(torch.randn(4, 900)).square().mean().backward()
        optimizer.step()
    found = {name: float(values[0]) for name, values in monitor.numbers().items()}
    assert 0.1 < found["slope"] / (0.1 * found["grad_sq"]) < 0.6  # about every third element
    assert found["moved_sq"] == pytest.approx(0.1 * found["slope"], rel=1e-4)
