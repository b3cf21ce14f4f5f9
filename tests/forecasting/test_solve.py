"""The runs decide: tables of the form are fitted whatever the prior expects."""

from __future__ import annotations

import numpy as np
import pytest
from tests.forecasting.forecast_cases import make

import surefoot as sf
from surefoot.forecasting import _fit, _read, _schedules, _solve
from surefoot.forecasting import curve as form

LENGTHS = (500, 1000, 2000, 4000)


def plain(seed):
    """Noise-free runs without growth: floor + a·S^-p + b·N^q, with numbers far from the prior's."""
    random = np.random.default_rng(seed)
    rate, p, q = 10 ** random.uniform(-3, 0.5), random.uniform(0.3, 1.0), random.uniform(0.6, 1.4)
    floor, bias, noise = random.uniform([0.0, 0.2, 0.1], [3.0, 1.0, 0.5])

    def loss(lr, steps):
        found = form.sums(form.trace(lr * _schedules.factors("linear", steps)))
        return floor + bias * float(found.total / (rate * 1000)) ** -p + noise * float(found.noise / rate) ** q

    lrs = rate * np.geomspace(0.1, 10, 6)
    runs = [{"lr": lr, "schedule": "linear", "steps": T, "loss": loss(lr, T)} for lr in lrs for T in LENGTHS]
    return runs, loss, lrs


@pytest.mark.parametrize("seed", range(6))
def test_tables_of_the_form_are_fitted_and_the_best_rate_is_found(seed):
    runs, loss, lrs = plain(seed)
    fit = sf.forecast(runs)
    only = fit.fits[()]
    assert np.abs(only.residuals).max() < 0.05 * only.spread
    assert only.typical < 0.01 * only.spread
    assert fit.notes == []
    for steps in (1000, 4000):
        chosen = fit.best(steps=steps, schedules=["linear"]).lr
        truth = min(loss(lr, steps) for lr in np.geomspace(lrs[0], lrs[-1], 40))
        assert loss(chosen, steps) - truth < 0.01 * only.spread


def test_a_steep_noise_is_found_where_the_prior_expects_weights_that_grow():
    def loss(lr, steps):
        return 2.5 + 0.5 * (lr * steps) ** -0.5 + 40 * lr

    rates, lengths = np.geomspace(3e-4, 3e-2, 10), (1000, 2000, 4000, 8000, 16000)
    runs = [{"lr": lr, "schedule": "linear", "steps": T, "loss": loss(lr, T)} for lr in rates for T in lengths]
    fit = sf.forecast(runs)
    assert fit.fits[()].typical < 0.005
    chosen = fit.best(steps=16000, schedules=["linear"]).lr
    assert loss(chosen, 16000) - loss(np.geomspace(3e-4, 3e-2, 200), 16000).min() < 0.002


@pytest.mark.parametrize("table", [make, lambda: plain(0)[0]])
def test_with_enough_runs_another_prior_changes_little(table):
    runs = _read.read(table())[0]
    other = {name: (centre + width, width) for name, (centre, width) in _solve.PRIOR.items()}
    ends = form.stack([form.trace(run.rates, [run.steps], weight_decay=run.weight_decay) for run in runs])
    one, two = (_fit.fit(runs, prior) for prior in (_solve.PRIOR, other))
    assert np.abs(one.losses(ends) - two.losses(ends)).max() < 0.02 * one.spread
