"""Stop rules: pure functions of the numbers so far."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.rules import Dead, DeltaExplosion, History, NonFinite, PartialBound, StopRule, check_rules, first_stop
from surefoot.theory import bounds, schedules

RULES = [
    NonFinite(),
    PartialBound(1.0),
    DeltaExplosion(5.0, 3),
    DeltaExplosion(5.0, 4),
    Dead(0.1, 0.9, 3),
]

numbers = st.one_of(st.floats(0.0, 1e3), st.sampled_from([0.0, math.inf, math.nan, 1e-200, 1e300]))
rows = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=30)


def history(loss=1.0, grad_sq=1.0, delta=0.5, steps=10, rates=None, **options):
    columns = (np.broadcast_to(np.asarray(x, float), steps) for x in (loss, grad_sq, delta))
    return History(*columns, np.ones(steps) if rates is None else rates, **options)


def test_non_finite_names_what_broke():
    stop = NonFinite().first(history(grad_sq=[1.0, 1.0, math.inf, math.inf], steps=4))
    assert (stop.step, stop.value, stop.reason) == (2, math.inf, "the squared gradient is not finite")


def test_non_finite_ignores_what_was_not_measured():
    assert NonFinite().first(history(loss=math.nan)) is None


def test_partial_noise_ends_at_the_bound_of_the_finished_run():
    rng = np.random.default_rng(0)
    rates, deltas = rng.random(50) + 0.1, rng.random(50)
    done = history(delta=deltas, steps=50, rates=rates, distance=2.0)
    whole = bounds.last_iterate(rates, deltas, 2.0)
    assert done.partial_noise()[-1] == pytest.approx(whole.noise, rel=1e-12)
    assert done.bias() == whole.bias


def test_zero_rates_at_the_end_are_left_out_of_the_partial_bound():
    rates = np.array([1.0, 0.5, 0.0, 2.0, 0.0, 0.0])
    deltas = np.array([1.0, 2.0, 9.0, 3.0, 9.0, math.inf])
    whole = bounds.last_iterate(rates[:4], deltas[:4], 0.0).noise
    assert history(delta=deltas, steps=6, rates=rates).partial_noise()[-1] == pytest.approx(whole, rel=1e-12)


def test_partial_bound_needs_every_step():
    """Of every fifth index a sum is no lower bound of the whole, so that it would prove nothing."""
    kept = History([1.0, 1.0], [1.0, 1.0], [9.0, 9.0], np.ones(10), every=5)
    for refused in (
        lambda: check_rules([NonFinite(), PartialBound(1.0)], every=5),
        lambda: PartialBound(1.0).first(kept),
    ):
        with pytest.raises(ValueError, match="every must be 1 with PartialBound, which needs the index of every step"):
            refused()
    assert check_rules([NonFinite()], every=5) == (NonFinite(),)


def test_partial_bound_stops_at_the_first_step_above_slack_times_best():
    found = history(delta=[1.0, 1.0, 1.0, 1.0], steps=4)
    sums = found.partial_noise()
    stop = PartialBound(best=sums[1] / 2.0, slack=2.0).first(found)
    assert (stop.step, stop.value) == (2, sums[2])


def test_partial_bound_is_not_asked_at_the_end_of_a_run():
    deltas = np.where(np.arange(20) == 17, 1e3, 0.0)
    assert PartialBound(1.0).first(history(delta=deltas, steps=20)).step == 17
    assert PartialBound(1.0).first(history(delta=np.roll(deltas, 1), steps=20)) is None


def test_partial_bound_of_a_diverged_run_is_infinite():
    assert PartialBound(1.0).first(history(delta=[0.0, math.inf, math.inf], steps=3)).step == 1


def test_rates_that_are_all_zero_add_no_noise():
    assert PartialBound(1.0).first(history(delta=1e9, rates=np.zeros(10))) is None


def test_delta_explosion_sees_a_diverging_quadratic():
    deltas = 1.5 ** np.arange(40.0)
    stop = DeltaExplosion(30.0, 3).first(history(delta=deltas, steps=40))
    assert stop.step == 2 + math.ceil(math.log(30) / math.log(1.5))
    assert stop.value > 30


def test_a_warmup_is_no_explosion():
    rates = schedules.warmup(50, steps=40, start=1e-10)
    assert DeltaExplosion(30.0, 3).first(history(delta=0.5 * rates, steps=50, rates=rates)) is None


def test_a_single_bad_batch_is_no_explosion():
    deltas = np.ones(20)
    deltas[10] = 1e9
    assert DeltaExplosion(30.0, 3).first(history(delta=deltas, steps=20)) is None


def test_dead_needs_a_high_loss():
    gradients = np.where(np.arange(60) < 30, 1.0, 1e-9)
    assert Dead().first(history(loss=2.3, grad_sq=gradients, steps=60)).step == 40  # 11 of 20 are small
    assert Dead().first(history(loss=np.where(gradients < 1, 0.01, 2.3), grad_sq=gradients, steps=60)) is None


def test_the_earliest_rule_wins():
    found = history(loss=[1.0, 1.0, math.inf, math.inf], delta=[0.0, 9.0, math.inf, math.inf], steps=4)
    assert first_stop([NonFinite(), PartialBound(1.0)], found).rule == repr(PartialBound(1.0))


def test_every_scales_the_steps():
    found = History([1.0, math.inf], [1.0, 1.0], [0.0, 0.0], np.ones(20), every=10)
    assert NonFinite().first(found).step == 10


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(rows=rows, block=st.integers(1, 7))
def test_asking_block_by_block_gives_the_answer_of_the_whole(rule: StopRule, rows, block):
    loss, grad_sq, delta = np.array(rows).T
    rates = np.linspace(0.1, 1.0, len(rows))
    whole = rule.first(History(loss, grad_sq, delta, rates))
    found = None
    for begin in range(0, len(rows), block):
        part = slice(0, begin + block)
        found = rule.first(History(loss[part], grad_sq[part], delta[part], rates, since=begin))
        if found is not None:
            break
    assert found == whole


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: PartialBound(0.0), "best"),
        (lambda: PartialBound(math.inf), "best"),
        (lambda: PartialBound(1.0, slack=-1.0), "slack"),
        (lambda: DeltaExplosion(factor=0.0), "factor"),
        (lambda: DeltaExplosion(window=0), "window"),
        (lambda: Dead(grad_ratio=-1.0), "grad_ratio"),
        (lambda: Dead(window=2.5), "window"),
        (lambda: History([1.0], [1.0, 2.0], [1.0], [1.0]), "grad_sq"),
        (lambda: History([1.0, 1.0], [1.0, 2.0], [1.0, 1.0], [1.0]), "rates"),
    ],
)
def test_bad_arguments_are_named(make, name):
    with pytest.raises(ValueError, match=name):
        make()
