"""check_model passes what is right and names what is wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from surefoot.testing import check_model
from surefoot.theory import models


@pytest.mark.parametrize(
    "model",
    [
        models.Linear(),
        models.Truncated(),
        models.Truncated(lower_bound=-2.0),
        models.Truncated(lower_bound=-math.inf),
        models.SquareRoot(),
        models.SquareRoot(lower_bound=-math.inf),
        models.Exponential(lower_bound=0.5),
        models.Power(0.75),
        models.Power(-0.5),
    ],
    ids=repr,
)
def test_the_models_of_the_theory_pass(model: models.Model) -> None:
    check_model(model)


@dataclass(frozen=True)
class Broken(models.Model):
    """Passes an inner model on, with one of its outputs changed."""

    size_factor: float = 1.0
    delta_factor: float = 1.0
    lower_bound: float = field(default=0.0)

    def solve(self, xp: Any, point: Any) -> tuple[Any, Any]:
        size, delta = models.SquareRoot().solve(xp, point)
        return self.size_factor * size, self.delta_factor * delta

    def relative_value(self, xp: Any, drop: Any) -> Any:
        return models.SquareRoot().relative_value(xp, drop)


def test_a_step_that_does_not_minimise_is_named() -> None:
    with pytest.raises(AssertionError, match="does not minimise"):
        check_model(Broken(size_factor=0.5))


def test_a_step_beyond_the_rate_is_named() -> None:
    with pytest.raises(AssertionError, match="is not in \\[0, lr\\]"):
        check_model(Broken(size_factor=3.0))


def test_a_wrong_index_is_named() -> None:
    with pytest.raises(AssertionError, match="is not f\\(x\\)"):
        check_model(Broken(delta_factor=0.9))


def test_a_negative_index_is_named() -> None:
    with pytest.raises(AssertionError, match="delta"):
        check_model(Broken(delta_factor=-1.0))


def test_composite_of_math_functions_fails_on_torch_alone() -> None:
    model = models.Composite(math.log, lambda x: 1 / x, math.exp, math.exp)
    with pytest.raises((AssertionError, TypeError, ValueError, RuntimeError)):
        check_model(model)
