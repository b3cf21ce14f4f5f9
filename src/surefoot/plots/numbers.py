"""How numbers and axes read: in tables, in verdicts, and, by ``page/numbers.js``, on pages."""

from __future__ import annotations

import math
from typing import Any


def short(value: float | None, digits: int = 3) -> str:
    """A number in a few digits, which Python and a spec can read back; a power of ten only where zeros would hide it.

    >>> [short(value) for value in (0.0123456, 31.6227, 99960.0, 1.5e-5, 0.0, math.inf, math.nan)]
    ['0.0123', '31.6', '1e5', '1.5e-5', '0', '∞', '–']
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if float(mantissa) == 0:
        return "0"
    if -3 <= int(exponent) < 5:
        return f"{float(f'{mantissa}e{exponent}'):.{digits + 5}g}"
    return f"{float(mantissa):g}e{int(exponent)}"


def span(low: float, high: float, digits: int = 3) -> str:
    """A range of rates; ``none`` if there is no such rate.

    >>> span(0.01, 31.6227), span(0.1, 0.1), span(math.nan, math.nan)
    ('0.01 – 31.6', '0.1', 'none')
    """
    if math.isnan(low):
        return "none"
    return short(low, digits) if low == high else f"{short(low, digits)} – {short(high, digits)}"


def plain(value: Any) -> Any:
    """A value for strict JSON, which has neither ∞ nor NaN: they become the texts "inf", "-inf" and "nan".

    >>> plain({"loss": (1.0, math.inf), "lr": None})
    {'loss': [1.0, 'inf'], 'lr': None}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # an array
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)


def ticks(low: float, high: float, *, log: bool = False, most: int = 6) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``most`` of them, for an axis.

    >>> ticks(0.0, 1000.0)
    [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
    >>> ticks(0.02, 30.0, log=True), ticks(1e-8, 1e3, log=True)
    ([0.1, 1.0, 10.0], [1e-08, 1e-06, 0.0001, 0.01, 1.0, 100.0])
    """
    if not log:
        return _linear_ticks(low, high, most)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in _DIGITS:
        inside = [value for k in range(first, last + 1) for d in digits if low <= (value := float(f"{d}e{k}")) <= high]
        if len(inside) <= most:
            return inside if len(inside) > 1 else _linear_ticks(low, high, most)
    stride = -(-len(inside) // most)
    return [value for k in range(first, last + 1) if k % stride == 0 and low <= (value := float(f"1e{k}")) <= high]


_DIGITS = ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = high / most - low / most  # their difference may overflow
    if not 1e-300 < rough < math.inf:
        return [low]
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, min(last, first + most) + 1)]
