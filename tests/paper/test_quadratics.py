from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.paper import quadratics
from surefoot.theory import models

losses, scales, rates = st.floats(1e-6, 1e6), st.floats(1e-3, 1e3), st.floats(1e-6, 1e6)


@pytest.mark.parametrize(
    ("closed", "model"),
    [
        (quadratics.sgd, models.Linear()),
        (quadratics.sps, models.Truncated()),
        (quadratics.ngn, models.SquareRoot()),
    ],
)
@given(loss=losses, s=scales, lr=rates)
def test_closed_form_is_the_models_step(closed, model, loss, s, lr):
    step = model.step(loss, 2 * s * s * loss, lr)
    result = closed(loss, s, lr)
    assert result.size == pytest.approx(step.size, rel=1e-12)
    assert result.delta == pytest.approx(step.delta, rel=1e-12)


@given(loss=losses, s=scales, lr=rates)
def test_spp_index_is_its_definition(loss, s, lr):
    step = quadratics.spp(loss, s, lr)
    moved_sq = step.size**2 * 2 * s * s * loss
    assert step.delta == pytest.approx(
        models.exact_delta(loss, step.next_loss, moved_sq, lr), rel=1e-6, abs=1e-12 * loss
    )


@given(loss=losses, s=scales, lr=rates)
def test_order_of_the_indices(loss, s, lr):
    spp, sps, sgd = (method(loss, s, lr).delta for method in (quadratics.spp, quadratics.sps, quadratics.sgd))
    assert spp <= sps * (1 + 1e-12)
    assert sps <= min(sgd, loss) * (1 + 1e-12)


def test_an_infinite_rate_goes_to_the_minimiser():
    assert quadratics.ngn(3.0, 2.0, np.inf) == (0.25, 3.0, 0.0)
    assert quadratics.spp(3.0, 2.0, np.array([0.25, np.inf])).delta.tolist() == [1.5, 3.0]


def test_arrays_broadcast():
    step = quadratics.sps(np.ones(3), 1.0, np.array([[0.1], [10.0]]))
    assert step.delta.shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "name"), [((-1.0, 1.0, 1.0), "loss"), ((1.0, np.inf, 1.0), "s"), ((1.0, 1.0, -1.0), "lr")]
)
def test_bad_input_is_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        quadratics.sgd(*arguments)
