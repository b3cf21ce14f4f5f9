"""The monitor: it sees what happens, and changes nothing."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

import surefoot.optim as sfo
from surefoot.monitor import DeltaExplosion, NonFinite, PartialBound, StabilityMonitor

EVERYTHING = ("loss", "grad_sq", "step", "interval", "update_norm", "distance")
FOREIGN = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


@pytest.mark.parametrize("style", ["record", "closure"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_monitor_changes_nothing_of_a_trajectory(another, name, style):
    if name == "lbfgs" and style != "closure":
        style = "closure"
    alone, watched = another(), another()
    expected = alone.train(FOREIGN[name](alone.model.parameters()), 20, style=style)
    optimizer = FOREIGN[name](watched.model.parameters())
    with StabilityMonitor(optimizer, horizon=20, track=EVERYTHING, stop=[NonFinite()]) as monitor:
        assert watched.train(optimizer, 20, monitor, style) == expected
    assert torch.equal(alone.point(), watched.point())


@pytest.mark.parametrize("name", FOREIGN)
def test_loss_and_gradient_are_those_of_the_point_before_the_step(another, name):
    style = "closure" if name == "lbfgs" else "record"
    problem = another()
    optimizer = FOREIGN[name](problem.model.parameters())
    monitor = StabilityMonitor(optimizer).attach()
    for step in range(3):
        fresh = copy.deepcopy(problem)
        fresh.loss().backward()
        expected = sum(float(p.grad.double().square().sum()) for p in fresh.model.parameters())
        loss = problem.train(optimizer, 1, monitor, style)[0]
        trace = monitor.trace()
        assert trace.grad_sq.values[step] == pytest.approx(expected, rel=1e-5)
        assert trace.loss.values[step] == pytest.approx(loss, rel=1e-6)


def test_detaching_leaves_the_optimizer_as_it_was(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    before, state = dict(vars(optimizer)), copy.deepcopy(optimizer.state_dict())
    monitor = StabilityMonitor(optimizer).attach()
    assert optimizer._optimizer_step_pre_hooks
    monitor.detach()
    assert vars(optimizer).keys() == before.keys()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert optimizer.state_dict() == state


def test_attaching_twice_counts_once(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    monitor = StabilityMonitor(optimizer).attach().attach()
    problem.train(optimizer, 3, monitor)
    assert monitor.steps == 3
    monitor.detach()
    problem.train(optimizer, 3)
    assert monitor.steps == 3


@pytest.mark.parametrize("style", ["loss", "add_loss", "closure"])
def test_our_optimizers_tell_their_loss(problem, style):
    optimizer = sfo.NGN(problem.model.parameters(), lr=1.0)
    with StabilityMonitor(optimizer) as monitor:
        losses = problem.train(optimizer, 5, monitor, style)
    assert monitor.trace().loss.values == pytest.approx(losses, rel=1e-6)


@pytest.mark.parametrize("kind", [sfo.SGD, sfo.SPS, sfo.NGN, sfo.LogNGN, sfo.PowerStep])
def test_our_optimizers_tell_their_own_step(problem, kind):
    optimizer = kind(problem.model.parameters(), lr=2.0)
    with StabilityMonitor(optimizer) as monitor:
        for step in range(4):
            problem.train(optimizer, 1, monitor, "loss")
            trace = monitor.trace()
            assert trace.delta.values[step] == optimizer.last_step.delta.item()
            assert trace.size.values[step] == optimizer.last_step.size.item()
    assert trace.attrs["delta_source"] == "model"


def test_the_exact_model_tells_its_own_step(problem):
    optimizer = sfo.SPP(problem.model.parameters(), lr=1.0)
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        for step in range(3):
            problem.train(optimizer, 1, monitor, "closure")
            assert monitor.trace().delta.values[step] == optimizer.last_step.delta.item()
    assert monitor.delta_source == "model"


def test_an_optimizer_that_notes_its_gradient_is_not_measured_again(problem):
    class Noting(sfo.SGD):
        last_grad_sq = torch.tensor(123.0)

    optimizer = Noting(problem.model.parameters(), lr=0.5)
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 2, monitor, "loss")
    assert monitor.trace().grad_sq.values.tolist() == [123.0, 123.0]


def test_accumulated_losses_are_summed(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    total = 0.0
    with StabilityMonitor(optimizer) as monitor:
        for _ in range(4):
            loss = problem.loss() / 4
            loss.backward()
            monitor.record(loss)
            total += loss.item()
        optimizer.step()
    assert monitor.trace().loss.values == pytest.approx([total], rel=1e-6)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("by_closure", [False, True])
@pytest.mark.parametrize("make", [torch.optim.AdamW, sfo.NGN])
def test_the_loss_is_heard(problem, make, by_closure, parts):
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


def test_a_loss_that_was_not_told_is_missing_and_no_divergence(problem):
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


def test_a_stable_run_is_not_stopped(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    best = StabilityMonitor(optimizer, horizon=40).attach()
    problem.train(optimizer, 40, best)
    best.detach()
    rules = [NonFinite(), DeltaExplosion(), PartialBound(best.bound().total)]
    with StabilityMonitor(optimizer, horizon=40, stop=rules, flush_every=4) as monitor:
        problem.train(optimizer, 40, monitor)
    assert monitor.stopped is None


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
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        loss = table(torch.tensor([1, 1, 2])).square().sum()
        loss.backward()
        expected = float(table.weight.grad.to_dense().double().square().sum())
        monitor.record(loss)
        optimizer.step()
    assert monitor.trace().grad_sq.values == pytest.approx([expected], rel=1e-6)


def test_complex_parameters():
    x = torch.nn.Parameter(torch.tensor([3.0 + 4.0j]))
    optimizer = torch.optim.SGD([x], lr=0.1)
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        loss = 0.5 * x.abs().square().sum()
        loss.backward()
        monitor.record(loss)
        optimizer.step()
    trace = monitor.trace()
    assert trace.grad_sq.values == pytest.approx([25.0])
    assert trace.delta_high.values == pytest.approx([1.25])


def test_a_rate_that_is_a_tensor(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=torch.tensor(0.1))
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 2, monitor)
    assert monitor.trace().rate.values == pytest.approx([0.1, 0.1])


def test_as_on_a_device_the_numbers_are_the_same(another):
    """The path of other devices, with CPU tensors: values stay tensors until a block is full."""
    from surefoot.monitor._ring import Ring
    from surefoot.optim._arithmetic import Device

    traces = []
    for on_device in (False, True):
        problem = another()
        optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1, momentum=0.5)
        monitor = StabilityMonitor(optimizer, track=EVERYTHING, flush_every=4, stop=[NonFinite()])
        if on_device:
            device = torch.device("cpu")
            monitor._ops = Device(True, device, torch.float64)
            monitor._ring = Ring(len(monitor._ring._host[0]), 4, device)
        with monitor:
            problem.train(optimizer, 11, monitor)
        traces.append(monitor.trace())
    for name in traces[0]:
        np.testing.assert_allclose(traces[1][name], traces[0][name], rtol=1e-5, err_msg=str(name))


@pytest.mark.parametrize("make", [FOREIGN["lbfgs"], lambda p: sfo.SPP(p, lr=1.0)], ids=["lbfgs", "spp"])
def test_a_step_of_many_gradients_is_unknown_whatever_is_tracked(problem, make):
    optimizer = make(problem.model.parameters())
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        problem.train(optimizer, 2, monitor, "closure")
    assert monitor.verdict().state == "unknown"
    assert "several points" in monitor.verdict().reason


def test_a_verdict_says_what_it_would_have_to_track(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    with StabilityMonitor(optimizer, track=("loss", "grad_sq")) as monitor:
        problem.train(optimizer, 3, monitor)
    assert monitor.verdict().state == "unknown"
    assert '"step" in track' in monitor.verdict().reason


def test_a_dying_network_is_found_dead(problem):
    """All ReLUs die at a large rate; the gradients vanish, δ is tiny, and only the loss tells."""
    from surefoot.monitor import Dead

    torch.manual_seed(0)
    problem.model = torch.nn.Sequential(
        torch.nn.Linear(5, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 1, bias=False),
    )
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=2.0)
    with StabilityMonitor(optimizer, horizon=100, stop=[Dead(window=8)]) as monitor:
        problem.train(optimizer, 64, monitor)
    assert monitor.trace().delta.values[-1] == 0.0
    assert monitor.stopped is not None
    assert "squared gradient" in monitor.stopped.reason


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"horizon": 0}, ValueError, "horizon"),
        ({"distance": -1.0}, ValueError, "distance"),
        ({"distance": math.nan}, ValueError, "distance"),
        ({"track": ("los",)}, ValueError, "track"),
        ({"track": "loss"}, TypeError, "track"),
        ({"models": ["spz"]}, ValueError, "spz"),
        ({"models": "sgd"}, TypeError, "models"),
        ({"models": ["sgd", "sgd"]}, ValueError, "twice"),
        ({"models": ["power"]}, ValueError, "power"),
        ({"every": 1.5}, ValueError, "every"),
        ({"stop": ["no"]}, TypeError, "stop"),
        ({"schedule": [1.0, 1.0], "horizon": 3}, ValueError, "schedule"),
        ({"schedule": [0.0, 1.0]}, ValueError, "schedule"),
        ({"lower_bound": math.inf}, ValueError, "lower_bound"),
        ({"flush_every": 0}, ValueError, "flush_every"),
    ],
)
def test_bad_arguments_are_named(problem, options, error, name):
    with pytest.raises(error, match=name):
        StabilityMonitor(torch.optim.SGD(problem.model.parameters(), lr=0.1), **options)


def test_only_optimizers_can_be_watched():
    with pytest.raises(TypeError, match="optimizer"):
        StabilityMonitor(torch.nn.Linear(1, 1))
