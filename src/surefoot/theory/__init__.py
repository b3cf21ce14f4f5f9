"""The paper's theory as pure functions of numbers and arrays: models, stability indices, bounds, rates, schedules."""

from surefoot.theory import bounds, level, models, rates, schedules

__all__ = ["bounds", "level", "models", "rates", "schedules"]
