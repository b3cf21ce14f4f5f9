"""Checks of the arguments of studies and searches, from Python and TOML alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from surefoot._base.arguments import number as number
from surefoot._base.arguments import one_of
from surefoot._base.arguments import whole as whole

Floats = np.ndarray[Any, np.dtype[np.float64]]

MOST_RATES = 100_000
"""More rates, or seeds, than any study has: a slip of the pen would fill the memory."""
MOST_STEPS = 100_000_000
"""More steps than any run here has."""
MOST_KEPT = 10_000_000
"""Steps of a run whose numbers can be kept: they take 48 bytes each."""
LARGEST_SEED = 2**31 - 1
"""The largest whole number that every file format of results can hold."""


def sampling(value: Any) -> str:
    """The name of a sampling, ``shuffle`` or ``iid``."""
    return one_of("sampling", value, ("shuffle", "iid"))


def rates(value: Any) -> tuple[float, ...]:
    """Distinct positive learning rates, sorted; from a number, a sequence, or ``{from, to, count}`` (evenly in log)."""
    if isinstance(value, Mapping):
        value = _log_spaced(value)
    elif hasattr(value, "__array__"):  # NumPy, xarray, pandas, torch; an array of one number becomes a number
        value = np.asarray(value).tolist()
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"lrs must be a list of rates or {{from, to, count}}, got {value!r}")
    lrs = [number(f"lrs[{position}]", rate, positive=True) for position, rate in enumerate(value)]
    if not lrs:
        raise ValueError("lrs must hold at least one rate, got none")
    _distinct("lrs", lrs)
    return tuple(sorted(lrs))


def seeds(value: Any) -> tuple[int, ...]:
    """Distinct seeds, from a list, or 0 … n − 1 from a number n."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if whole("seeds", value, 1) > MOST_RATES:
            raise ValueError(f"seeds must be at most {MOST_RATES}, or a list of them, got {value}")
        return tuple(range(int(value)))
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"seeds must be a number of seeds or a list of them, got {value!r}")
    checked = [whole(f"seeds[{position}]", seed, 0) for position, seed in enumerate(value)]
    if not checked:
        raise ValueError("seeds must hold at least one seed, got none")
    if max(checked) > LARGEST_SEED:
        raise ValueError(f"seeds must be at most {LARGEST_SEED}, got {max(checked)}")
    _distinct("seeds", checked)
    return tuple(checked)


def horizon(value: Any) -> int:
    """The steps of a run."""
    steps = whole("horizon", value, 1)
    if steps > MOST_STEPS:
        raise ValueError(f"horizon must be at most {MOST_STEPS}, got {steps}")
    return steps


def _log_spaced(value: Mapping[str, Any]) -> list[float]:
    allowed = ("from", "to", "count")
    for key in value:
        one_of("key of lrs", key, allowed)
    for key in allowed:
        if key not in value:
            raise ValueError(f"lrs must have the keys from, to and count, got {dict(value)!r}")
    low, high = (number(f"lrs.{key}", value[key], positive=True) for key in ("from", "to"))
    count = whole("lrs.count", value["count"], 1)
    if count > MOST_RATES:
        raise ValueError(f"lrs.count must be at most {MOST_RATES}, got {count}")
    if count > 1 and not low < high:
        raise ValueError(f"lrs.from must be below lrs.to, got {low!r} and {high!r}")
    return [float(rate) for rate in np.geomspace(low, high, count)]


def _distinct(name: str, values: list[Any]) -> None:
    value, times = Counter(values).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{name} must be distinct, got {value!r} {times} times")
