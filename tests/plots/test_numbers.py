"""Numbers and ticks: short, readable back, inside the axis; and the pages' JavaScript says the same as Python."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.plots import pages, short, span, ticks


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.0123"), (31.6227, "31.6"), (1230.4, "1230"), (99960.0, "1e5"), (9.999e-4, "0.001"),
        (1.5e-5, "1.5e-5"), (-2.0, "-2"), (1e300, "1e300"), (0.0, "0"), (-math.inf, "-∞"), (math.nan, "–"), (None, "–"),
    ],
)  # fmt: skip
def test_three_digits(value, text):
    assert short(value) == text


@given(st.floats(1e-300, 1e300), st.integers(2, 6))
def test_short_numbers_are_read_back_to_their_digits(value, digits):
    assert float(short(value, digits)) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))


def test_ranges():
    assert (span(0.01, 31.6227), span(0.1, 0.1), span(math.nan, math.nan)) == ("0.01 – 31.6", "0.1", "none")


@given(st.floats(-1e300, 1e300), st.floats(0, 1e300), st.integers(3, 12))
def test_linear_ticks_are_few_rising_and_inside(low, width, most):
    found = ticks(low, low + width, most=most)
    slack = 1e-6 * (abs(low) + width)
    assert 1 <= len(found) <= most + 1
    assert found == sorted(found)
    assert low - slack <= found[0]
    assert found[-1] <= low + width + slack


@given(st.floats(-300, 300), st.floats(0.5, 300), st.integers(3, 12))
def test_logarithmic_ticks_are_few_and_inside(low, decades, most):
    low, high = 10.0**low, 10.0 ** min(low + decades, 307.0)
    found = ticks(low, high, log=True, most=most)
    assert 1 <= len(found) <= most + 1
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in found)


AXES = [(0, 1000, False, 6), (-3, 8, False, 5), (0.02, 30, True, 6), (0.3, 0.5, True, 6), (1e-8, 1e3, True, 6)]
VALUES = [0.0123456, 31.6227, 1230.4, 99960.0, 9.999e-4, 1.5e-5, -2.0, 1e300, 0.0, 7.0]


def test_pages_write_numbers_and_ticks_as_python_does(browser):
    page = browser.new_page()
    page.add_script_tag(content=pages.part("plots", "numbers.js"))
    calls = json.dumps([VALUES, AXES])
    words, axes = page.evaluate(
        f"() => {{ const [values, axes] = {calls};"
        " return [values.map((value) => short(value)), axes.map((axis) => ticks(...axis))]; }"
    )
    assert words == [short(value) for value in VALUES]
    assert axes == [ticks(low, high, log=log, most=most) for low, high, log, most in AXES]
