from __future__ import annotations

import math

import numpy as np
import pytest
from tests.forecasting.forecast_cases import curves_of, make, row, true_loss

import surefoot as sf

LATER = [
    (0.003, "linear", 2400, {}),
    (0.01, "cosine", 2400, {}),
    (0.02, "wsd", 2400, {"cooldown": 0.4}),
    (0.01, "constant", 2400, {}),
]


@pytest.mark.parametrize("seed", range(3))
def test_unseen_rates_schedules_and_lengths_are_forecast(seed):
    fit = sf.forecast(make(seed))
    for lr, schedule, steps, options in LATER:
        expected = true_loss(lr, schedule, steps, **options)
        found = fit.predict(lr=lr, schedule=schedule, steps=steps, **options)
        assert found.loss == pytest.approx(expected, rel=0.01)
        assert found.low < expected < found.high


def test_curves_narrow_the_interval_and_their_offset_is_found(rows):
    without = sf.forecast(rows)
    fit = sf.forecast(rows, curves=curves_of(rows, offset=0.03))
    assert fit.parameters()["offset"] == pytest.approx(0.03, abs=0.004)
    for lr, schedule, steps, options in LATER:
        found = fit.predict(lr=lr, schedule=schedule, steps=steps, **options)
        assert found.loss == pytest.approx(true_loss(lr, schedule, steps, **options), rel=0.005)
        plain = without.predict(lr=lr, schedule=schedule, steps=steps, **options)
        assert found.high - found.low < plain.high - plain.low


def test_partial_runs_count_by_their_curves(rows):
    for each in rows[::2]:
        each["final_loss"] = math.nan
    fit = sf.forecast(rows, curves=curves_of(rows))
    found = fit.predict(lr=0.01, schedule="cosine", steps=2400)
    assert found.loss == pytest.approx(true_loss(0.01, "cosine", 2400), rel=0.01)


def test_curves_alone_are_enough(rows):
    table = [{**each, "lr": 0.01 if each["run"] % 2 else 0.02} for each in curves_of(rows)]
    fit = sf.forecast(table)
    assert len(fit.fits[()].runs) == len(rows)
    assert fit.parameters()["offset"] == 0


def test_diverged_runs_are_left_out_and_named(rows):
    clean = sf.forecast(rows).predict(lr=0.01, schedule="cosine", steps=2400)
    blown = [
        {**row(0.08, "cosine", 1200, 100), "final_loss": 7.5},
        {**row(0.1, "cosine", 600, 101), "final_loss": math.inf},
    ]
    fit = sf.forecast([*rows, *blown])
    assert fit.predict(lr=0.01, schedule="cosine", steps=2400).loss == pytest.approx(clean.loss, rel=0.003)
    assert "Left out as diverged: run 101 (lr 0.1, loss inf), run 100 (lr 0.08, loss 7.5)." in fit.notes
    assert fit.best(steps=1200).lr < 0.08


def test_units_of_the_rates_do_not_matter(rows):
    """Rates a hundred times larger, with a hundredth of the weight decay, are the same runs."""
    scaled = [{**each, "lr": 100 * each["lr"], "weight_decay": each["weight_decay"] / 100} for each in rows]
    one = sf.forecast(rows).predict(lr=0.01, schedule="linear", steps=2400)
    other = sf.forecast(scaled).predict(lr=1.0, schedule="linear", steps=2400)
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_wider_where_nothing_was_measured(rows):
    fit = sf.forecast(rows)

    def width(**ask):
        found = fit.predict(**{"lr": 0.01, "schedule": "cosine", "steps": 1200, **ask})
        return found.high - found.low

    assert width() < width(steps=2400) < width(steps=9600)
    assert width() < width(lr=0.1)
    assert fit.predict(lr=0.01, schedule="cosine", steps=1200).note == ""
    assert "outside of what the runs cover in steps" in fit.predict(lr=0.01, schedule="cosine", steps=2400).note


def test_one_rate_is_enough_if_the_schedules_differ(rows):
    fit = sf.forecast([each for each in rows if each["lr"] == 0.01])
    found = fit.predict(lr=0.01, schedule="linear", steps=1200)
    assert found.loss == pytest.approx(true_loss(0.01, "linear", 1200), rel=0.01)
