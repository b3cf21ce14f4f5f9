from __future__ import annotations

import math

import mpmath as mp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surefoot.theory import special
from surefoot.theory.arrays import FLOATS


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_lambert_w_is_within_4_ulp(z):
    exact = mp.lambertw(mp.mpf(z)).real
    assert abs(mp.mpf(special.lambert_w(z)) - exact) <= 4 * math.ulp(float(exact))


@given(st.floats(min_value=1.0, max_value=1e300))
def test_wright_omega_is_within_4_ulp(y):
    w = mp.mpf(special.omega_above_one(FLOATS, y))
    exact = mp.mpf(y) - mp.log(w) if y > 1e6 else mp.findroot(lambda v: v + mp.log(v) - mp.mpf(y), w)
    assert abs(w - exact) <= 4 * math.ulp(float(exact))


def test_edges_of_lambert_w():
    values = special.lambert_w(np.array([0.0, math.inf, -0.1, math.nan, 5e-324]))
    np.testing.assert_array_equal(values, [0.0, math.inf, math.nan, math.nan, 5e-324])


def test_arrays_of_any_size_agree_with_floats():
    z = np.geomspace(1e-10, 1e10, 40_001)
    picked = z[::4000]
    np.testing.assert_allclose(special.lambert_w(z)[::4000], [special.lambert_w(float(v)) for v in picked], rtol=1e-15)
