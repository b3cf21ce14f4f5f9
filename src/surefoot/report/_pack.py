"""A study as one compressed block of text: a JSON header and the raw arrays that it points to.

Base64 holds no character that means anything in HTML, so nothing that a study is called can leave its block.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import struct
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

DECADE = 1000
"""Steps of a decade in the codes of :func:`decades`: 0.2 % apart, finer than any screen."""
LIMIT = 32_000
INFINITE, ZERO, MISSING = 32_767, -32_767, -32_768


class Pack:
    """Collects the arrays of a header.

    >>> pack = Pack()
    >>> pack.array(np.array([1.0, np.inf]))
    {'at': 0, 'type': 'f8', 'shape': [2]}
    >>> text = pack.text({"title": "two numbers"})
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._end = 0

    def array(self, values: ArrayLike) -> dict[str, Any]:
        """Take an array in, and give what stands for it in the header."""
        array = np.ascontiguousarray(values)
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        reference = {"at": self._end, "type": f"{array.dtype.kind}{array.dtype.itemsize}", "shape": list(array.shape)}
        self._parts.append(data)
        self._end += len(data)
        return reference

    def text(self, header: dict[str, Any]) -> str:
        """Header and arrays, compressed, as ASCII; the same bytes for the same study."""
        head = json.dumps(header, allow_nan=False).encode()
        data = b"".join([struct.pack("<I", len(head)), head, *self._parts])
        return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def number(value: float | None) -> float | str | None:
    """A number for JSON, which has no ∞ and no NaN: they become the text that JavaScript's ``Number`` reads.

    >>> number(1.5), number(float("-inf")), number(None)
    (1.5, '-Infinity', None)
    """
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def decades(values: ArrayLike) -> NDArray[np.int16]:
    """Positive numbers as thousandths of a decade, for plots: two bytes that compress well.

    What is above 10³² counts as infinite, what is below 10⁻³² as zero; no plot of ours reaches there.

    >>> decades([1.0, 0.1, 1e99, 0.0, np.nan]).tolist()
    [0, -1000, 32767, -32767, -32768]
    """
    numbers = np.asarray(values, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.rint(DECADE * np.log10(np.maximum(numbers, 0.0)))
    codes = np.where(codes > LIMIT, INFINITE, np.where(codes < -LIMIT, ZERO, codes))
    return np.where(np.isnan(codes), MISSING, codes).astype(np.int16)
