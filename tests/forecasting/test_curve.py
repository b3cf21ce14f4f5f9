from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from surefoot.forecasting import curve
from surefoot.theory import bounds, schedules

PARAMETERS = np.array([2.0, 0.1, 0.4, -1.0, 0.7, -0.2, 0.1, 0.6])
RATES = arrays(float, st.integers(1, 400), elements=st.floats(1e-6, 1.0))


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "wsd", "warmup"])
def test_noise_is_that_of_the_bound_for_all_horizons_at_once(name):
    factors = schedules.from_name(name, 20_000)
    horizons = [1, 7, 500, 5_000, 20_000]
    exact = [bounds.last_iterate(factors[:T], factors[:T], 1.0).noise for T in horizons]
    np.testing.assert_allclose(curve.sums(curve.trace(factors, horizons)).noise, exact, rtol=0.005)


@given(rates=RATES)
def test_noise_is_at_most_that_of_the_bound(rates):
    found = curve.sums(curve.trace(rates))
    assert found.noise <= bounds.last_iterate(rates, rates, 1.0).noise * (1 + 1e-9)
    assert found.total == pytest.approx(rates.sum())
    assert rates.min() * (1 - 1e-9) <= found.typical <= rates.max() * (1 + 1e-9)


@given(rates=RATES, decay=st.sampled_from([0.0, 0.1, 3.0]))
def test_horizons_are_the_schedules_that_end_there(rates, decay):
    horizons = sorted({1, (len(rates) + 1) // 2, len(rates)})
    together = curve.trace(rates, horizons, weight_decay=decay)
    for place, horizon in enumerate(horizons):
        alone = curve.trace(rates[:horizon], weight_decay=decay)
        one = curve.Trace(*(part[place] for part in together))
        assert curve.loss(PARAMETERS, one) == pytest.approx(float(curve.loss(PARAMETERS, alone)), rel=1e-6)


def test_schedules_are_batched():
    rates = np.stack([0.01 * schedules.cosine(300), 0.02 * schedules.wsd(300)])
    together = curve.loss(PARAMETERS, curve.trace(rates, weight_decay=0.5))
    alone = [float(curve.loss(PARAMETERS, curve.trace(row, weight_decay=0.5))) for row in rates]
    np.testing.assert_allclose(together, alone)
    rows = curve.loss(np.stack([PARAMETERS, PARAMETERS + 0.1]), curve.trace(rates, weight_decay=0.5))
    assert rows.shape == (2, 2)
    np.testing.assert_allclose(rows[0], together)


@pytest.mark.parametrize("decay", [0.0, 0.1, 20.0])
def test_weights_grow_by_steps_and_shrink_by_decay(decay):
    rates = 0.5 * schedules.cosine(3000)
    grown, expected = 0.0, []
    for rate in rates:
        grown = grown * math.exp(-2 * decay * rate) + rate**2
        expected.append(grown)
    parts = curve.trace(rates, weight_decay=decay)
    np.testing.assert_allclose(parts.growths, curve.part_means(expected), rtol=0.03, atol=1e-3 * max(expected))


def test_without_growth_rates_stay_as_they_are_and_the_form_is_the_bound():
    rates = 0.1 * schedules.linear(1000)
    bound = bounds.last_iterate(rates, rates, math.sqrt(2.0))
    plain = [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, -math.inf]
    assert float(curve.loss(plain, curve.trace(rates))) == pytest.approx(bound.total, rel=0.01)


def test_a_schedule_is_its_parts():
    rates = 0.02 * schedules.cosine(5000)
    parts = curve.coarse(5000, curve.part_means(rates), weight_decay=2.0)
    assert float(curve.loss(PARAMETERS, parts)) == pytest.approx(
        float(curve.loss(PARAMETERS, curve.trace(rates, weight_decay=2.0)))
    )


def test_a_schedule_may_end_at_zero():
    rates = np.concatenate([np.ones(50), np.zeros(10)])
    assert curve.sums(curve.trace(rates)).noise == pytest.approx(5.48, rel=0.001)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: curve.trace([]), "lrs must have"),
        (lambda: curve.trace([1.0, -1.0]), "lrs must be finite and at least 0"),
        (lambda: curve.trace([1.0, math.nan]), "lrs must be finite"),
        (lambda: curve.trace([1.0], [2]), "horizons must be a sequence of whole numbers from 1 to 1"),
        (lambda: curve.trace([1.0], []), "horizons must be"),
        (lambda: curve.trace([1.0], weight_decay=-1.0), "weight_decay must be"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
