"""The policy alone: who goes on, given histories of losses on the same batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.search._notes import confidence, notes
from surefoot.search._race import Race, mean_and_error

LRS = np.geomspace(1e-3, 1e1, 13)
HORIZON = 400


def run(losses, schedule=None, lrs=LRS):
    """Play a race on whole curves; the race as it ended."""
    race = Race(list(lrs), [""] * len(lrs), losses.shape[1], schedule)
    for places, step in race.requests():
        for i in places:
            bad = ~np.isfinite(losses[i, :step])
            end = int(bad.argmax()) + 1 if bad.any() else step
            if end > race.taken(i):
                race.histories[i] = np.where(np.isfinite(losses[i, :end]), losses[i, :end], np.inf)
    return race


def finished(race):
    return [i for i in range(len(race.rates)) if race.taken(i) == race.horizon and not race.lost(i)]


def cost(race):
    return sum(map(len, race.histories)) / (len(race.rates) * race.horizon)


def flow(noise, floor=0.0, wait=0.0, seed=0):
    """Bias and noise: a loss that falls with rate × steps after ``wait``, and a level that rises with the rate."""
    random = np.random.default_rng(seed)
    way = np.maximum(LRS[:, None] * np.arange(HORIZON) - wait, 0.0)
    batches = noise * random.normal(size=HORIZON)
    return 1.0 / (1.0 + way) + 0.1 * LRS[:, None] + batches + floor


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.3])
def test_it_finds_the_balance_of_bias_and_noise(noise):
    losses = flow(noise)
    race = run(losses)
    best = int(np.argmin(losses[:, -40:].mean(axis=1)))
    assert best in finished(race)
    assert cost(race) < 0.35


@settings(max_examples=30, deadline=None)
@given(shift=st.floats(-100, 100), scale=st.floats(1e-3, 1e3))
def test_neither_shift_nor_scale_of_the_loss_matters(shift, scale):
    """Losses below zero are losses like others."""
    plain, other = run(flow(0.05)), run(scale * flow(0.05) + shift)
    assert [plain.taken(i) for i in range(13)] == [other.taken(i) for i in range(13)]


def test_a_plateau_at_the_start_is_waited_for():
    """Nothing moves for a long way, and the largest rates leave it first; a smaller one is the best in the end."""
    losses = flow(0.02, wait=20.0)
    race = run(losses)
    best = int(np.argmin(losses[:, -40:].mean(axis=1)))
    assert best in finished(race)


def test_nobody_is_dropped_while_nobody_gains():
    """As in batches of two: losses of 0 and far above, and a gain much smaller than their noise."""
    random = np.random.default_rng(0)
    batches = random.exponential(1.0, HORIZON)
    losses = batches + 0.3 * LRS[:, None] * random.normal(size=(13, HORIZON)) - 1e-4 * LRS[:, None]
    race = run(losses)
    begun = [i for i in range(13) if race.taken(i)]
    assert finished(race) == begun
    assert len(begun) > 6
    chosen = finished(race)[-1]
    assert confidence(race, chosen, is_evaluated=True) < 0.5
    assert any(text.startswith("No rate can be told apart") for text in notes(race, chosen))


def test_noise_keeps_those_that_cannot_be_told_apart():
    """Independent noise far above the differences: more are followed than without."""
    quiet, loud = flow(0.0), flow(0.0) + 3.0 * np.random.default_rng(1).normal(size=(13, HORIZON))
    assert cost(run(loud)) > cost(run(quiet))


def test_a_schedule_that_falls_favours_larger_rates():
    """Until the end the smaller one leads; the noise of the larger one goes away with the schedule."""
    schedule = np.linspace(1.0, 0.01, HORIZON)
    way = LRS[:, None] * np.cumsum(schedule)
    losses = 1.0 / (1.0 + way) ** 0.5 + 0.1 * LRS[:, None] * schedule**2
    told, untold = finished(run(losses, schedule)), finished(run(losses))
    assert losses[told, -1].min() < losses[untold, -1].min()
    assert losses[told, -1].min() - losses[:, -1].min() <= 0.05


def test_a_larger_rate_that_was_left_before_much_was_gained_is_taken_up_again():
    """Its noise looks large beside the little that anybody has gained in the first quarter."""
    gained = np.maximum(np.arange(HORIZON) - HORIZON / 4, 0.0)
    speed = 0.5 ** abs(np.arange(13)[:, None] - 8.0)
    losses = 2.0 - 1e-4 * np.arange(HORIZON) - 4e-3 * speed * gained
    losses[8:] += 0.05 * np.exp(-gained / 10)
    race = run(losses)
    assert 8 in finished(race)
    assert race.taken(9) in (0, HORIZON)


def test_a_run_that_explodes_is_dropped_long_before_it_is_infinite():
    losses = flow(0.3)
    losses[9:] += np.exp(0.2 * np.arange(HORIZON))
    race = run(losses)
    assert all(race.taken(i) <= HORIZON / 8 for i in range(9, 13))


def test_reasons_say_what_was_seen():
    """While nobody has gained, nobody is left, and there is no share of a gain to be behind."""
    losses = flow(0.0, wait=1500.0)
    losses[-1] += np.geomspace(1.0, 1e9, HORIZON)
    reasons = run(losses).reasons
    assert reasons[12].startswith("more than 1000 % of the gain behind at step")
    assert not any(reason.startswith("0 %") for reason in reasons.values())


def test_lost_runs_are_left_and_others_take_their_place():
    losses = flow(0.0)
    losses[[0, 2, 4, 6, 8, 10, 12], 3:] = np.nan  # all that the race starts with
    race = run(losses)
    assert finished(race)
    assert all(race.taken(i) == 4 for i in (0, 2, 4))


def test_nothing_is_left_if_all_are_lost():
    race = run(np.full((13, HORIZON), np.nan))
    assert not finished(race)
    assert all(race.lost(i) for i in range(13))


@pytest.mark.parametrize("horizon", [1, 2, 7, 10, 11, 30])
def test_short_runs_get_to_their_end(horizon):
    assert finished(run(flow(0.0)[:, :horizon]))


def test_methods_compete_by_their_leaders():
    losses = np.concatenate([flow(0.0), flow(0.0) + 0.5])
    race = Race([*LRS, *LRS], ["a"] * 13 + ["b"] * 13, HORIZON)
    for places, step in race.requests():
        for i in places:
            race.histories[i] = losses[i, :step]
    assert finished(race)
    assert all(race.methods[i] == "a" for i in finished(race))


def test_the_error_of_a_mean_counts_neighbours_that_resemble_each_other():
    random = np.random.default_rng(0)
    apart = random.normal(size=400)
    alike = np.repeat(apart[:100], 4)
    assert mean_and_error(alike)[1] > 1.5 * mean_and_error(apart)[1]
    assert mean_and_error(np.ones(10)) == (1.0, 0.0)
    assert mean_and_error(np.ones(2)) == (1.0, np.inf)


def test_confidence_falls_with_the_noise_and_is_low_where_nothing_is_seen():
    quiet, loud = run(flow(0.01)), run(flow(0.0) + 3.0 * np.random.default_rng(1).normal(size=(13, HORIZON)))
    sure, unsure = (confidence(race, finished(race)[0], is_evaluated=False) for race in (quiet, loud))
    assert 0.0 < unsure < 0.7 < 0.9 < sure <= 1.0


class TestNotes:
    def test_a_run_that_learns_is_not_worth_a_word(self):
        race = run(flow(0.01))
        middle = next(i for i in finished(race) if 0 < i < 12)
        assert notes(race, middle) == []

    def test_a_run_that_learns_nothing(self):
        random = np.random.default_rng(0)
        race = run(
            1.0 + 0.01 * random.normal(size=HORIZON) * np.ones((13, 1)) + 1e-4 * random.normal(size=(13, HORIZON))
        )
        assert any("start" in text for text in notes(race, finished(race)[0]))


@pytest.mark.filterwarnings("error")
def test_a_schedule_may_begin_with_zeros():
    schedule = np.r_[np.zeros(30), np.ones(HORIZON - 30)]
    losses = np.exp(-np.outer(LRS, np.cumsum(schedule) / 100))
    race = run(losses, schedule)
    assert finished(race)
