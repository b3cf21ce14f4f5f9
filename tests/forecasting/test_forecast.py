from __future__ import annotations

import numpy as np
import pytest
from tests.forecasting.forecast_cases import make, true_loss

import surefoot as sf
from surefoot.forecasting import Prediction, forecast


@pytest.fixture(scope="module")
def fit():
    return sf.forecast(make())


def test_sf_forecast_is_the_function_after_its_package_was_imported():
    assert sf.forecast is forecast
    assert "forecast" in dir(sf)


def test_a_forecast_is_three_numbers_with_names(fit):
    found = fit.predict(lr=0.01, schedule="cosine", steps=1000)
    loss, low, high = found
    assert isinstance(found, Prediction)
    assert (loss, low, high) == (found.loss, found.low, found.high)
    assert low < loss < high


def test_names_arrays_and_functions_of_a_schedule_agree(fit):
    factors = np.linspace(1.0, 0.1, 800)
    array = fit.predict(lr=0.01, schedule=factors)
    assert array == fit.predict(lr=0.01, schedule=factors.tolist(), steps=800)
    assert array == fit.predict(lr=0.01, schedule=lambda T: np.linspace(1.0, 0.1, T), steps=800)
    named = fit.predict(lr=0.01, schedule="wsd", steps=800, cooldown=0.3)
    assert named == fit.predict(lr=0.01, schedule="wsd(cooldown=0.3)", steps=800)
    assert named == fit.predict(lr=0.01, schedule="wsd(cooldown=0.3)", steps=800, warmup=20)


def test_best_is_the_smallest_of_what_was_asked_for(fit):
    choice = fit.best(steps=2400, schedules=["constant", "wsd(cooldown=0.2)"], lrs=[0.003, 0.01, 0.03])
    asked = {
        (lr, schedule): fit.predict(lr, schedule, 2400).loss
        for lr in (0.003, 0.01, 0.03)
        for schedule in ("constant(warmup=20)", "wsd(cooldown=0.2, warmup=20)")  # the warmup of the runs
    }
    assert (choice.lr, choice.schedule) == min(asked, key=asked.get)
    assert choice.loss == pytest.approx(min(asked.values()))
    assert [each.loss for each in choice.table] == sorted(each.loss for each in choice.table)
    assert fit.best(steps=2400).loss <= choice.loss + 1e-9
    np.testing.assert_array_equal(fit.best(steps=2400, schedules=[np.ones]).factors, np.ones(2400))


def test_best_is_close_to_the_truth(fit):
    choice = fit.best(steps=2400, schedules=["cosine", "linear", "constant"])
    truth = min(true_loss(lr, each, 2400) for lr in np.geomspace(0.003, 0.06, 12) for each in ("cosine", "linear"))
    assert true_loss(choice.lr, choice.schedule, 2400) - truth < 0.01


def test_choices_stay_within_the_rates_of_the_runs_and_say_where_these_end(rows):
    large = [each for each in rows if each["lr"] > 0.003]
    fit = sf.forecast(large)
    choice = fit.best(steps=1200, schedules=["cosine"])
    assert choice.lr == pytest.approx(0.01)
    assert choice.note == "the smallest rate of the runs, others may be better"
    assert choice.note in str(choice)
    asked = fit.best(steps=1200, schedules=["cosine"], lrs=[0.005])
    assert asked.note == "outside of what the runs cover in lr"
    longer = fit.best_schedule(steps=2400)
    assert 0.0099 <= longer.lr <= 0.03
    assert "outside of what the runs cover in steps" in longer.note
    assert longer.note in repr(longer)
    one = sf.forecast([each for each in rows if each["lr"] == 0.01])
    assert "the only rate of the runs" in one.best(steps=1200).note
    assert one.plot(steps=1200).axes


def test_a_choice_inside_of_the_runs_has_no_note():
    def measured(lr, steps):
        return 1 + (lr * steps) ** -0.5 + 2 * lr

    cases = [(lr, steps) for lr in (0.01, 0.03, 0.1) for steps in (200, 400, 800)]
    runs = [{"lr": lr, "schedule": "linear", "steps": T, "loss": measured(lr, T)} for lr, T in cases]
    choice = sf.forecast(runs).best(steps=800, schedules=["linear"])
    assert choice.lr == pytest.approx(0.043, rel=0.1)
    assert choice.note == ""


def test_runs_that_the_form_does_not_fit_are_said(rows):
    random = np.random.default_rng(0)
    anyhow = [{**each, "final_loss": 3 + random.random()} for each in rows]
    fit = sf.forecast(anyhow)
    assert any(note.startswith("The form does not fit these runs well: residuals of") for note in fit.notes)
    assert "the form does not fit these runs well" in fit.best(steps=1200).note
    assert "does not fit" in fit.summary()


def test_best_schedule_never_rises_after_the_warmup_and_beats_the_named_ones(fit):
    found = fit.best_schedule(steps=2000)
    assert found.factors.shape == (2000,)
    assert found.factors.max() == 1
    assert (found.factors > 0).all()
    assert (np.diff(found.factors[20:]) <= 1e-12).all()
    assert (np.diff(found.factors[:20]) > 0).all()
    assert found.loss <= fit.best(steps=2000).loss + 2e-4
    again = fit.predict(lr=found.lr, schedule=found.factors)
    assert again.loss == pytest.approx(found.loss)
    assert fit.best_schedule(steps=2000, lr=0.01).lr == pytest.approx(0.01, rel=0.01)


def test_groups_are_fitted_apart_and_asked_for_by_name(rows):
    harder = [{**each, "dataset": "b", "final_loss": each["final_loss"] + 0.5} for each in rows]
    both = [{**each, "dataset": "a"} for each in rows] + harder + [{**rows[0], "dataset": "c"}]
    fit = sf.forecast(both)
    ask = {"lr": 0.01, "schedule": "linear", "steps": 1200}
    with pytest.raises(ValueError, match=r"group must say which of 2 models or data sets is meant: dataset='a'"):
        fit.predict(**ask)
    with pytest.raises(ValueError, match="was not fitted: a forecast wants at least 4 runs"):
        fit.predict(**ask, group={"dataset": "c"})
    with pytest.raises(ValueError, match=r"group must fit one of the groups, got .*'d'.*\(fits 0\)"):
        fit.predict(**ask, group={"dataset": "d"})
    with pytest.raises(TypeError, match="group must be a mapping"):
        fit.predict(**ask, group="a")
    gap = fit.predict(**ask, group={"dataset": "b"}).loss - fit.predict(**ask, group={"dataset": "a"}).loss
    assert gap == pytest.approx(0.5, abs=0.01)
    assert "exponents lean on those of the largest" in fit.summary()
    assert len(sf.forecast(both[: len(rows)], groups=[]).fits) == 1


def test_plot_shows_the_fit_and_the_forecast(fit):
    left, right = fit.plot(steps=2400).axes
    assert left.get_xlabel() == "fitted final loss"
    assert len(right.get_lines()) == 3
    assert "2400 steps" in right.get_ylabel()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ({"lr": 0}, "lr must be above 0, got 0"),
        ({"lr": 10.0}, "lr must be between .* got 10: add runs with such rates"),
        ({"steps": 10**6}, r"steps must be at most 10 times the longest run \(1200\), got 1000000"),
        ({"steps": 20}, "warmup must be less than the T=20 steps of the schedule, got 20"),
        ({"steps": None}, "steps must be given"),
        ({"schedule": "cosin"}, "schedule must be .*, got 'cosin'; did you mean 'cosine'"),
        ({"schedule": "wsd", "cooldown": 20}, "cooldown must be at most 1, got 20"),
        ({"schedule": "wsd", "shape": "cubic"}, "shape must be .*, got 'cubic'"),
        ({"schedule": "wsd", "decay": 0.2}, "option of schedule 'wsd' must be .*, got 'decay'"),
        ({"schedule": [1.0, 1.0]}, "a name or 1000 factors, one per step, got an array of shape"),
        ({"schedule": [-1.0] * 1000}, "finite factors of at least 0"),
        ({"schedule": [1.0] * 1000, "end": 0.1}, "options such as 'end' go with a schedule's name"),
    ],
)
def test_bad_questions_are_named(fit, ask, message):
    with pytest.raises(ValueError, match=message):
        fit.predict(**{"lr": 0.01, "schedule": "cosine", "steps": 1000, **ask})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fit: fit.best(steps=0), "steps must be a whole number"),
        (lambda fit: fit.best(steps=1000, lrs=[]), "lrs must have at least one rate"),
        (lambda fit: fit.best(steps=1000, schedules=[]), "schedules must have at least one"),
        (lambda fit: fit.best_schedule(steps=10), "steps must be more than the 20 of warmup"),
        (lambda fit: fit.best_schedule(steps=10**6), "steps must be at most"),
    ],
)
def test_bad_choices_are_named(fit, call, message):
    with pytest.raises(ValueError, match=message):
        call(fit)
