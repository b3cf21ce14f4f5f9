"""Windows, overlap and correlation on hand-made curves."""

import math

import numpy as np
import pytest

from surefoot.study import measure_windows

LRS = np.array([0.01, 0.1, 1.0, 10.0, 100.0])


def table(losses, totals, **options):
    return measure_windows(["m"], LRS, np.array([losses]), np.array([totals]), 1.0, 0.0, **options)["m"]


def test_every_column_of_a_hand_made_example():
    row = table([0.5, 0.25, 0.2, 0.3, np.inf], [2.0, 1.0, 1.05, 1.2, np.inf])
    assert row.best_rate == 1.0
    assert row.best_loss == 0.2
    assert (row.low, row.high) == (0.1, 10.0)  # within 0.1·(1 − 0) of 0.2
    assert row.decades == pytest.approx(2.0)
    assert row.bound_rate == 0.1
    assert row.bound_value == 1.0
    assert (row.bound_low, row.bound_high) == (0.1, 1.0)
    assert row.bound_decades == pytest.approx(1.0)
    assert row.overlap == pytest.approx(2 / 3)
    assert row.expected_excess == pytest.approx((0.3 + 0.05 + 0.0 + 0.1 + 0.8) / 5)
    assert row.rank_correlation == pytest.approx(0.9)  # ranks 4 2 1 3 5 and 4 1 2 3 5: 1 − 6·2/120


def test_a_gap_ends_the_window():
    row = table([0.2, 0.9, 0.2, 0.1, 0.1], [1.0] * 5)
    assert (row.low, row.high) == (1.0, 100.0)


def test_tolerance_widens_the_window():
    assert table([0.5, 0.2, 0.5, 0.9, 1.0], [1.0] * 5, tolerance=0.3).decades == pytest.approx(2.0)


def test_a_method_without_a_finite_loss_has_no_window():
    row = table([np.inf] * 5, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert math.isnan(row.best_rate)
    assert math.isnan(row.expected_excess)
    assert row.decades == -math.inf
    assert row.overlap == 0.0


def test_a_constant_bound_has_no_correlation():
    assert math.isnan(table([0.5, 0.4, 0.3, 0.2, 0.1], [1.0] * 5).rank_correlation)


def test_the_table_becomes_pandas():
    found = measure_windows(["a", "b"], LRS, np.ones((2, 5)), np.ones((2, 5)), 2.0, 0.0)
    assert found.to_frame().loc["b", "decades"] == pytest.approx(4.0)
    assert [row.algorithm for row in found] == ["a", "b"]


@pytest.mark.parametrize("tolerance", [0.0, -1.0, math.nan])
def test_a_bad_tolerance_is_refused(tolerance):
    with pytest.raises(ValueError, match="tolerance must be"):
        table([1.0] * 5, [1.0] * 5, tolerance=tolerance)


def test_the_best_rate_is_in_its_window_also_where_the_start_was_lower():
    row = measure_windows(["m"], LRS, np.full((1, 5), 2.4) + 0.01 * LRS, np.ones((1, 5)), 2.30, 2.31)["m"]
    assert (row.best_rate, row.low) == (0.01, 0.01)


@pytest.mark.filterwarnings("error")
def test_nothing_is_finite():
    row = measure_windows(["m"], LRS, np.full((1, 5), np.inf), np.full((1, 5), np.inf), np.inf, np.inf)["m"]
    assert math.isnan(row.best_rate)
