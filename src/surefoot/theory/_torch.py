"""torch's part of the array operations; imported only where there is a tensor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from surefoot.theory.arrays import Array, Limits, Namespace, functions_of

# A table, because finfo is not something that a compiler can follow.
_LIMITS = {
    dtype: Limits(torch.finfo(dtype).eps, torch.finfo(dtype).tiny, torch.finfo(dtype).max)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}

_SEQUENCES = (np.ndarray, list, tuple)  # not a union: a compiler cannot follow that one either


def _derivative(function: Callable[[Array], Array], x: Array) -> Array:
    return torch.func.jvp(function, (x,), (torch.ones_like(x),))[1]


def _coerce(values: tuple[Array, ...]) -> list[Array]:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    device = next((tensor.device for tensor in tensors if tensor.ndim), tensors[0].device)
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    if dtype.is_complex:
        raise TypeError(f"expected real numbers, got tensors of dtype {dtype}")
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    return [_tensor(value, dtype, device) for value in values]


def _tensor(value: Array, dtype: torch.dtype, device: torch.device) -> Array:
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    if isinstance(value, _SEQUENCES):
        return torch.as_tensor(value, dtype=dtype, device=device)
    return torch.full((), value, dtype=dtype, device=device)  # a copy from the host might wait for the device


TORCH = Namespace(
    name="torch",
    **functions_of(torch),
    detach=lambda x: x.detach(),
    derivative=_derivative,
    concrete=False,
    limits=lambda x: _LIMITS[x.dtype],
    coerce=_coerce,
)
