"""The paper's theory as pure functions of numbers and arrays: models, bounds, schedules, closed forms."""

from surefoot.theory import bounds, forecast, level, models, proximal, quadratics, schedules, special, toy

__all__ = ["bounds", "forecast", "level", "models", "proximal", "quadratics", "schedules", "special", "toy"]
