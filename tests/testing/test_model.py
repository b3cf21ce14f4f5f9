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
        models.Truncated(lower_bound=-2.0),
        models.SquareRoot(lower_bound=-math.inf),
        models.Exponential(lower_bound=0.5),
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


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ({"size_factor": 0.5}, "does not minimise"),
        ({"size_factor": 3.0}, r"is not in \[0, lr\]"),
        ({"delta_factor": 0.9}, r"is not f\(x\)"),
        ({"delta_factor": -1.0}, "delta"),
    ],
)
def test_what_is_wrong_is_named(factors: dict[str, float], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_model(Broken(**factors))
