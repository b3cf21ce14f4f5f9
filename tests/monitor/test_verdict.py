"""The verdict: on runs whose answer is known, with every kind of optimizer, and on any numbers at all."""

from __future__ import annotations

import gc
import math
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import surefoot.optim as sfo
from surefoot.monitor import Dead, StabilityMonitor, State, Verdict
from surefoot.monitor._judge import NEEDED, Evidence, Setting, judge, verdict_of

OPTIMIZERS = {
    "sgd": (lambda p, lr: torch.optim.SGD(p, lr=lr), 1e-4, 0.05, 30.0),
    "momentum": (lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9), 1e-5, 0.01, 10.0),
    "adamw": (lambda p, lr: torch.optim.AdamW(p, lr=lr), 1e-5, 5e-3, 1.0),
    "rmsprop": (lambda p, lr: torch.optim.RMSprop(p, lr=lr), 1e-6, 2e-3, 1.0),
    "muon": (lambda p, lr: sfo.Muon(p, lr=lr), 1e-5, 0.02, 3.0),
    "ngn": (lambda p, lr: sfo.NGN(p, lr=lr), 1e-4, 0.05, None),
    "ngn-adam": (lambda p, lr: sfo.NGNAdam(p, lr=lr), 1e-5, 5e-3, None),
}
HORIZON = 200


def watched(another, make, lr, steps=HORIZON // 10, horizon=HORIZON, scheduler=None, **options):
    problem = another()
    optimizer = make(problem.model.parameters(), lr)
    schedule = None if scheduler is None else scheduler(optimizer)
    style = "loss" if isinstance(optimizer, sfo.LossOptimizer) else "record"
    with StabilityMonitor(optimizer, horizon=horizon, **options) as monitor:
        for _ in range(steps):
            problem.train(optimizer, 1, monitor, style)
            if schedule is not None:
                schedule.step()
    return monitor


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rates_that_are_far_off_are_called_so_and_led_to_better_ones(another, name):
    make, small, good, large = OPTIMIZERS[name]
    verdict = watched(another, make, small).verdict()
    assert (verdict.state, verdict.direction) == ("too small", 1)
    assert small < verdict.lr_range[0]
    assert verdict.lr == pytest.approx(small)
    assert 0.3 < verdict.behind < 1.0
    verdict = watched(another, make, good).verdict()
    assert verdict.state == "holds"
    assert verdict.lr_range[0] <= good <= verdict.lr_range[1]
    if verdict.best_lr is not None:
        assert verdict.lr_range[0] < verdict.best_lr < verdict.lr_range[1]
    if large is not None:
        verdict = watched(another, make, large).verdict()
        assert (verdict.state, verdict.direction) == ("too large", -1)
        assert verdict.lr_range[1] < large


def test_before_a_tenth_of_the_horizon_it_says_how_many_steps_it_wants(another):
    verdict = watched(another, OPTIMIZERS["sgd"][0], 0.05, steps=13).verdict()
    assert verdict.state == "unknown"
    assert verdict.more_steps == 7
    assert str(verdict) == "Unknown: 13 of the 20 steps that a verdict needs are done. Ask again in 7 steps."
    assert verdict.lr_range is None


def test_a_blow_up_is_not_waited_for(another):
    verdict = watched(another, OPTIMIZERS["sgd"][0], 1e8, steps=8, horizon=1000).verdict()
    assert verdict.state == "too large"
    assert "not finite from step" in str(verdict)
    assert verdict.lr_range[1] < 1e8


def test_without_a_horizon_the_run_is_taken_to_be_ten_times_as_long(another):
    monitor = watched(another, OPTIMIZERS["adamw"][0], 1e-5, horizon=None)
    assert monitor.verdict().state == "too small"
    assert "if the run is to be ten times as long (200 steps)" in str(monitor.verdict())
    assert watched(another, OPTIMIZERS["adamw"][0], 1e-5, steps=4, horizon=None).verdict().more_steps == 16


def test_it_may_change_its_mind_and_says_so(another):
    monitor = watched(another, OPTIMIZERS["sgd"][0], 0.05, steps=60)
    assert monitor.verdict().state == "holds"
    assert "it was" not in str(monitor.verdict())
    columns = {name: column.copy() for name, column in monitor.numbers().items()}
    columns["loss"][40:] = 30.0
    verdict = judge(columns, Setting(HORIZON, 0.05, 100, 0.0))
    assert verdict.state == "too large"
    assert "after 60 steps the loss is" in verdict.reason
    assert verdict.reason.endswith('(after 20 steps it was "holds")')


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda p, lr: torch.optim.SGD(p, lr, momentum=0.99), 100.0),
        (lambda p, lr: torch.optim.AdamW(p, lr, betas=(0.5, 0.9)), 2.0),
        (lambda p, lr: torch.optim.RMSprop(p, lr), 1.0),
        (lambda p, lr: sfo.Muon(p, lr, beta=0.75), 4.0),
    ],
)
def test_the_steps_that_momentum_averages_over_are_evidence(another, make, steps):
    assert watched(another, make, 1e-3).verdict().details["memory"] == pytest.approx(math.log10(steps))


def test_a_warmup_counts_with_the_rate_that_it_leads_to(another):
    def warmup(optimizer):
        return torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, total_iters=40)

    constant = watched(another, OPTIMIZERS["sgd"][0], 1e-4).verdict()
    rising = watched(another, OPTIMIZERS["sgd"][0], 1e-4, scheduler=warmup).verdict()
    assert rising.state == constant.state == "too small"
    assert rising.lr_range[0] > 1e-4


def test_clipped_gradients_are_judged_too(another):
    make, *rates, _ = OPTIMIZERS["sgd"]

    def clipped(params, lr):
        optimizer = make(list(params), lr)

        def clip(*_):
            torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)

        optimizer.register_step_pre_hook(clip)
        return optimizer

    states = [watched(another, clipped, lr).verdict().state for lr in (*rates, 30.0)]
    assert states == ["too small", "holds", "too large"]


def test_losses_below_zero_are_judged_by_what_they_change(another):
    """A loss that is moved by a constant has the same steps; only its size in comparison changes."""
    columns = _columns(watched(another, OPTIMIZERS["sgd"][0], 0.05))
    columns["loss"] = columns["loss"] - 2.0
    verdict = judge(columns, Setting(HORIZON, 0.05, 100, 0.0))
    assert verdict.state == "holds"
    assert "the loss has gone from -" in verdict.reason


def test_what_a_stop_rule_has_said_is_the_reason(another):
    monitor = watched(another, OPTIMIZERS["sgd"][0], 0.05, stop=[Dead(grad_ratio=1e9, window=2)], flush_every=2)
    assert monitor.verdict().state == "too large"
    assert "squared gradient" in str(monitor.verdict())


def minimised(optimizer, loss_of, steps, horizon):
    """The verdict on a loss that is minimised for some steps."""
    with StabilityMonitor(optimizer, horizon=horizon) as monitor:
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of().backward()
            optimizer.step()
    return monitor.verdict()


def test_parameters_that_start_at_zero_have_a_usual_size():
    def state(lr):
        weights, generator = torch.nn.Parameter(torch.zeros(20)), torch.Generator().manual_seed(0)

        def loss():
            inputs = torch.randn(16, 20, generator=generator)
            return (inputs @ weights - inputs[:, :3].sum(1)).square().mean()

        return minimised(torch.optim.SGD([weights], lr=lr), loss, 30, 300).state

    assert [state(lr) for lr in (1e-4, 0.01, 30.0)] == ["too small", "holds", "too large"]


RANGE = (0.01, 0.1)


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            Verdict(State.TOO_SMALL, "it falls", RANGE, 0.03, 0.001, 0.4),
            "Too small: it falls. Best near 0.03 (0.01 to 0.1); yours, 0.001, is about 40 % of the gain behind.",
        ),
        (Verdict(State.HOLDS, "it falls", RANGE, 0.03), "Holds: it falls. Keep it: best near 0.03 (0.01 to 0.1)."),
        (
            Verdict(State.HOLDS, "it falls", RANGE, 0.03, 0.01, 0.02),
            "Holds: it falls. It works, but a larger rate is likely better: best near 0.03 (0.01 to 0.1); yours, 0.01, "
            "is about 2 % of the gain behind.",
        ),
        (
            Verdict(State.AT_THE_EDGE, "it falls", RANGE, 0.05),
            "At the edge: it falls. It may still work, but a smaller rate is safer: best near 0.05 (0.01 to 0.1).",
        ),
        (
            Verdict(State.TOO_LARGE, "it rises", RANGE, None),
            "Too large: it rises. Try 0.01 to 0.1, and far less if that is too large as well.",
        ),
    ],
)
def test_a_verdict_says_what_to_do(verdict, text):
    assert str(verdict) == text


def test_no_loss_is_promised_to_fall_by_so_much_at_most():
    """On a plateau the slopes promise little of what the run gains in the end."""
    x = torch.nn.Parameter(torch.full((4,), 7.0))
    text = str(minimised(torch.optim.SGD([x], lr=50.0), lambda: torch.sigmoid(x).mean(), 100, 1000))
    assert "at most" not in text
    assert "%" not in text


def test_a_loss_that_stays_is_unchanged():
    x = torch.nn.Parameter(torch.ones(8))
    verdict = minimised(torch.optim.SGD([x], lr=1e-5), lambda: x.square().mean(), 10, 100)
    assert verdict.state == "too small"
    assert "the loss is unchanged" in verdict.reason


# When nothing can be said of a rate.


@pytest.mark.parametrize("lr", [0.01, 1.0, 1e4])
def test_surefoot_has_no_rate(another, lr):
    """Its rate has no effect, so nobody is told to change it; how it is doing is said instead."""
    verdict = watched(another, lambda p, lr: sfo.Surefoot(p, lr=lr), lr, steps=40).verdict()
    assert verdict.state == "unknown"
    assert verdict.lr_range is None
    assert str(verdict).startswith("Unknown: Surefoot has no rate; after 40 steps the loss is 0.")


@pytest.mark.parametrize("make", [lambda p, lr: torch.optim.Adadelta(p, lr=lr), lambda p, lr: torch.optim.Rprop(p, lr)])
def test_a_rate_that_is_only_a_factor_is_not_compared(another, make):
    verdict = watched(another, make, 1.0).verdict()
    assert verdict.state == "unknown"
    assert "finds the length of its steps itself" in verdict.reason


@pytest.mark.parametrize("make", [lambda p: torch.optim.LBFGS(p, max_iter=3), lambda p: Searching(p, lr=0.1)])
def test_a_step_of_several_evaluations_is_not_judged(problem, make):
    optimizer = make(problem.model.parameters())
    with StabilityMonitor(optimizer, horizon=100) as monitor:
        problem.train(optimizer, 12, monitor, "closure")
    assert monitor.verdict().state == "unknown"
    assert "several" in monitor.verdict().reason


class Searching(torch.optim.SGD):
    """Evaluates its closure twice per step, as a line search does."""

    @torch.no_grad()
    def step(self, closure):
        with torch.enable_grad():
            closure()
        return super().step(closure)


def turns(play, *, freeze=False, joint=False):
    """Two optimizers that step one after the other; the monitors of both."""
    torch.manual_seed(0)
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3) for net in (first, second)]
    monitors = [StabilityMonitor(optimizer, horizon=100).attach() for optimizer in optimizers]
    for _ in range(12):
        x = torch.randn(8, 4)
        if joint:  # one loss, two optimizers, as Muon for matrices and AdamW for the rest
            for optimizer in optimizers:
                optimizer.zero_grad()
            second(first(x)).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
            continue
        optimizers[1].zero_grad()
        (second(first(x).detach()) - second(x)).mean().backward() if play else second(x).square().mean().backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        second.requires_grad_(not freeze)
        (-second(first(x)).mean() if play else first(x).square().mean()).backward()
        optimizers[0].step()
        second.requires_grad_(True)
    for monitor in monitors:
        monitor.detach()
    return [monitor.verdict() for monitor in monitors]


@pytest.mark.parametrize("freeze", [False, True])
def test_optimizers_that_take_turns_are_not_judged(freeze):
    for verdict in turns(True, freeze=freeze):
        assert verdict.state == "unknown"
        assert "it takes turns with another optimizer" in verdict.reason


@pytest.mark.parametrize("joint", [False, True])
def test_optimizers_of_one_loss_and_of_separate_models_are_judged(joint):
    assert all(verdict.state != "unknown" for verdict in turns(False, joint=joint))


def test_two_monitors_of_one_optimizer_take_no_turns(another):
    problem = another()
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.05)
    with StabilityMonitor(optimizer, horizon=HORIZON) as first, StabilityMonitor(optimizer, horizon=HORIZON) as second:
        problem.train(optimizer, 20, style="plain")
    assert first.verdict() == second.verdict()
    assert first.verdict().state == "holds"


@pytest.mark.parametrize("make", [torch.optim.AdamW, sfo.SGD])
def test_a_loss_that_should_grow_is_not_judged(problem, make):
    optimizer = make(problem.model.parameters(), lr=0.01, maximize=True)
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 5, monitor)
    assert monitor.verdict().state == "unknown"
    assert "with maximize=True the loss should grow" in monitor.verdict().reason


def test_the_loss_of_reinforcement_learning_is_not_its_goal(another, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", types.ModuleType("gymnasium"))
    verdict = watched(another, OPTIMIZERS["adamw"][0], 1e-3).verdict()
    assert verdict.state == "unknown"
    assert "gymnasium is imported" in verdict.reason


def test_an_optimizer_that_is_gone_still_has_its_verdict(another):
    problem = another()
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.05)
    monitor = StabilityMonitor(optimizer, horizon=HORIZON).attach()
    problem.train(optimizer, 20, monitor)
    before = monitor.verdict()
    del optimizer
    gc.collect()
    assert monitor.optimizer is None
    assert monitor.verdict() == before
    assert before.state == "holds"


@pytest.mark.parametrize(("lr", "state", "word"), [(1e-9, "too small", "more"), (1e4, "too large", "less")])
def test_a_range_that_is_a_first_guess_says_so(another, lr, state, word):
    verdict = watched(another, OPTIMIZERS["adamw"][0], lr).verdict()
    assert verdict.state == state
    assert verdict.best_lr is None
    assert str(verdict).endswith(f", and far {word} if that is {state} as well.")
    assert watched(another, OPTIMIZERS["adamw"][0], 1e-5).verdict().best_lr is not None


def test_a_monitor_that_does_not_watch_says_so():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    monitor = StabilityMonitor(optimizer)
    assert "call monitor.attach() first" in monitor.verdict().reason
    assert "0 of the 20 steps" in monitor.attach().verdict().reason
    monitor.detach()


def test_a_notebook_shows_the_same_words(another):
    verdict = watched(another, OPTIMIZERS["sgd"][0], 0.05).verdict()
    assert f">{verdict}</p>" in verdict._repr_html_()


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.tuples(*[numbers] * (len(NEEDED) + 1)), min_size=1, max_size=40),
    st.one_of(st.none(), st.integers(1, 500)),
    st.floats(1e-12, 1e6),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_any_numbers_get_a_verdict(rows, horizon, peak, momentum):
    values = np.array(rows).T
    columns = dict(zip((*NEEDED, "carried"), values, strict=True))
    columns["size"] = columns["rate"]
    for name in ("rate", "size", "moved_sq", "point_sq", "away_sq"):
        columns[name] = np.abs(columns[name])
    verdict = judge(columns, Setting(horizon, peak, 10, momentum))
    assert verdict.state in tuple(State)
    assert str(verdict)
    if verdict.lr_range is not None:
        low, high = verdict.lr_range
        assert 0 < low <= high < math.inf
        assert math.log10(high / low) <= 1.0 + 1e-6
        assert verdict.state != "too small" or low > peak
        assert verdict.state != "holds" or low <= peak * (1 + 1e-9) <= high * (1 + 1e-6)
        assert verdict.state not in ("at the edge", "too large") or high < peak


def _columns(monitor):
    columns = dict(monitor.numbers())
    return columns | {"size": columns["rate"]}


@pytest.mark.filterwarnings("ignore:.*lower_bound")
def test_steps_that_were_skipped_are_told():
    x = torch.nn.Parameter(torch.tensor(1.0))
    optimizer = sfo.NGN([x], lr=0.1, on_nonfinite="skip")
    verdict = minimised(optimizer, lambda: x - 5.0, 8, 40)
    assert verdict.state == "unknown"
    assert "8 of 8 steps did not move the parameters" in str(verdict)
    assert "lower_bound" in str(verdict)


@pytest.mark.parametrize("estimate", [-2.0, -0.5, 0.0, 0.5, 0.7, 3.0])
def test_a_rate_that_works_is_never_told_to_be_smaller(estimate):
    evidence = Evidence(share=-1.0, promised=-0.5, learned=0.3, away=-1.0, uphill=0.0, left=0.0, falls=0.0, memory=0.0)
    weights = {name: (0.0, 0.0, estimate * (name == "constant")) for name in ("constant", *Evidence._fields)}
    verdict = verdict_of(State.HOLDS, "it falls", evidence, 0.01, False, weights)
    assert verdict.direction == (estimate > 0.3)
    assert ("a larger rate is likely better" in str(verdict)) == (verdict.behind is not None) == (estimate > 0.3)
    assert (
        verdict.lr_range[0] <= min(0.0100001, verdict.best_lr) <= max(0.0099999, verdict.best_lr) <= verdict.lr_range[1]
    )
