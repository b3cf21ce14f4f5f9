"""JAX's part of the array operations; imported only where there is a JAX array."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from surefoot.theory.arrays import Array, Namespace, functions_of, limits_of


def _derivative(function: Callable[[Array], Array], x: Array) -> Array:
    return jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def _coerce(values: tuple[Array, ...]) -> list[Array]:
    dtype = jnp.result_type(*values)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(f"expected real numbers, got arrays of dtype {dtype}")
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    return [jnp.asarray(value, dtype) for value in values]


JAX = Namespace(
    name="jax",
    **functions_of(jnp),
    detach=jax.lax.stop_gradient,
    derivative=_derivative,
    concrete=False,
    limits=lambda x: limits_of(x.dtype),
    coerce=_coerce,
)
