"""The few operations that ``theory`` needs, for Python floats, NumPy, torch and JAX alike.

A formula is written once, against a :class:`Namespace`. Two habits make that work everywhere:

* both sides of a ``where`` are evaluated, so the side that is not taken must be harmless: operands are replaced
  *before* a division or a logarithm. Python floats then never raise, NumPy never warns, gradients never turn NaN;
* nothing depends on the values of an array (no ``if``), unless the namespace is ``concrete``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np

Array = Any
"""A Python float, or an array of NumPy, torch or JAX."""


class Limits(NamedTuple):
    """The floating-point limits that the formulas need."""

    eps: float
    tiny: float
    max: float


class Namespace(NamedTuple):
    """Elementwise functions of one array library."""

    name: str
    where: Callable[..., Array]
    minimum: Callable[..., Array]
    maximum: Callable[..., Array]
    exp: Callable[..., Array]
    expm1: Callable[..., Array]
    log: Callable[..., Array]
    log1p: Callable[..., Array]
    isfinite: Callable[..., Array]
    detach: Callable[[Array], Array]
    """The value without its gradient."""
    derivative: Callable[[Callable[[Array], Array], Array], Array] | None
    """Derivative of an elementwise function, where the library can differentiate."""
    all: Callable[..., Any]
    """Whether a mask holds everywhere; only asked of ``concrete`` namespaces."""
    concrete: bool
    """Values can be looked at without waiting for a device or breaking a trace."""
    limits: Callable[[Array], Limits]
    coerce: Callable[[tuple[Array, ...]], list[Array]]
    """Values as arrays of one floating-point dtype."""
    quiet: Callable[[], AbstractContextManager[Any]] = nullcontext


@cache
def limits_of(dtype: Any) -> Limits:
    """The limits of a NumPy or JAX dtype."""
    # ml_dtypes (a part of JAX) knows bfloat16, NumPy does not.
    info = np.finfo(dtype) if np.dtype(dtype).kind == "f" else sys.modules["ml_dtypes"].finfo(dtype)
    return Limits(float(info.eps), float(info.tiny), float(info.max))


_DOUBLE = limits_of(np.dtype(np.float64))


FLOATS = Namespace(
    name="float",
    where=lambda condition, yes, no: yes if condition else no,
    minimum=min,
    maximum=max,
    exp=lambda x: math.exp(x) if x < 709.7 else math.inf,
    expm1=math.expm1,
    log=math.log,
    log1p=math.log1p,
    isfinite=math.isfinite,
    detach=lambda x: x,
    derivative=None,
    all=bool,
    concrete=True,
    limits=lambda x: _DOUBLE,
    coerce=lambda values: [float(value) for value in values],
)


def functions_of(library: Any) -> dict[str, Callable[..., Array]]:
    """The elementwise functions that NumPy, torch and JAX have under the same names."""
    names = ("where", "minimum", "maximum", "exp", "expm1", "log", "log1p", "isfinite", "all")
    return {name: getattr(library, name) for name in names}


def _numpy_arrays(values: tuple[Array, ...]) -> list[Array]:
    arrays = [float(value) if type(value) in (float, int, bool) else np.asarray(value) for value in values]
    dtype = np.result_type(*arrays)
    if dtype.kind not in "fbiu":
        raise TypeError(f"expected real numbers, got arrays of dtype {dtype}")
    return [np.asarray(value, dtype if dtype.kind == "f" else np.float64) for value in arrays]


NUMPY = Namespace(
    name="numpy",
    **functions_of(np),
    detach=lambda x: x,
    derivative=None,
    concrete=True,
    limits=lambda x: limits_of(x.dtype),
    coerce=_numpy_arrays,
    quiet=lambda: np.errstate(all="ignore"),
)


def namespace(*values: Array) -> Namespace:
    """The namespace that can hold all of the values; Python numbers go along with any array.

    >>> namespace(1.0, 2).name
    'float'
    >>> namespace(1.0, np.ones(3)).name
    'numpy'
    """
    xp = FLOATS
    for value in values:
        kind = type(value)
        if kind is float or kind is int or kind is bool:
            continue
        root = kind.__module__.partition(".")[0]
        # Imported here, so that neither library is a must, and each is looked at outside any trace.
        if root == "torch":
            from surefoot.theory._torch import TORCH

            return TORCH
        if root in ("jax", "jaxlib"):
            from surefoot.theory._jax import JAX

            return JAX
        xp = NUMPY
    return xp


def coerce(*values: Array) -> tuple[Namespace, list[Array]]:
    """The values as floating-point arrays of their common namespace; Python numbers take the arrays' dtype."""
    for value in values:
        if type(value) is not float:
            break
    else:  # a short way for scalars
        return FLOATS, list(values)
    xp = namespace(*values)
    return xp, xp.coerce(values)


def scalar(values: Any) -> Any:
    """A Python float for a single number, an array as it is."""
    return float(values) if np.ndim(values) == 0 else values
