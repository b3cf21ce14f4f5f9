"""JSON for machines."""

from __future__ import annotations

import math
from typing import Any


def without_nonfinite(value: Any) -> Any:
    """The value with ∞ and NaN as strings, because JSON has neither.

    >>> without_nonfinite({"loss": [1.0, float("inf")]})
    {'loss': [1.0, 'inf']}
    """
    if isinstance(value, dict):
        return {key: without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nonfinite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
