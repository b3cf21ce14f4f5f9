"""torch's part of the array operations; imported only where there is a tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch

from surefoot.theory._arrays import Array, Limits, Namespace

# A table, because finfo is not something that a compiler can follow.
_LIMITS = {
    dtype: Limits(torch.finfo(dtype).eps, torch.finfo(dtype).tiny, torch.finfo(dtype).max)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}


def _derivative(function: Callable[[Array], Array], x: Array) -> Array:
    return torch.func.jvp(function, (x,), (torch.ones_like(x),))[1]


def _coerce(values: tuple[Array, ...]) -> list[Array]:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    device = next((tensor.device for tensor in tensors if tensor.ndim), tensors[0].device)
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    return [
        # A number becomes a tensor by a fill: a copy from the host might wait for the device.
        value.to(dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype, device=device)
        for value in values
    ]


TORCH = Namespace(
    name="torch",
    where=torch.where,
    minimum=torch.minimum,
    maximum=torch.maximum,
    exp=torch.exp,
    expm1=torch.expm1,
    log=torch.log,
    log1p=torch.log1p,
    isfinite=torch.isfinite,
    detach=lambda x: x.detach(),
    derivative=_derivative,
    all=torch.all,
    concrete=False,
    limits=lambda x: _LIMITS[x.dtype],
    coerce=_coerce,
)
