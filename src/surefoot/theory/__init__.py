"""The paper's theory as pure functions of numbers and arrays: models, bounds, schedules, closed forms."""

from surefoot.theory import bounds, models, quadratics, schedules, special

__all__ = ["bounds", "models", "quadratics", "schedules", "special"]
