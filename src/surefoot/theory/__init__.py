"""The paper's theory as pure functions of numbers and arrays: models, bounds, schedules, closed forms."""

from surefoot.theory import bounds, level, models, schedules

__all__ = ["bounds", "level", "models", "schedules"]
