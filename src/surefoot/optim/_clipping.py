"""What gradients were multiplied by after their backward pass: clipped by hand, for example."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.optim._distributed import is_distributed, local
from surefoot.optim._tensors import scalar_dtype

_FEW = 4
"""Elements of every gradient that are remembered."""


class GradientSample:
    """A few elements of every gradient as a backward pass has left them, to tell what they were multiplied by since.

    Only one factor for all tensors counts as such: a network of which a part was scaled has other gradients.
    Changes that autograd does not count (``p.grad.data.mul_``) are not seen.
    """

    def __init__(self, params: list[Tensor], then: Tensor) -> None:
        self._params, self._then = params, then
        self._versions = [version(p.grad) for p in params]

    @classmethod
    def of(cls, params: list[Tensor]) -> GradientSample | None:
        """A sample, or None where the gradients are on several devices, sparse or sharded."""
        params = [p for p in params if p.grad is not None]
        then = _elements(params)
        return None if then is None else cls(params, then)

    def factor(self) -> Tensor | None:
        """The one factor c of all elements; 1 where they were changed in another way, None if they were not."""
        if [version(p.grad) for p in self._params] == self._versions:
            return None
        now = _elements(self._params)
        if now is None or now.shape != self._then.shape:
            return None
        dtype = scalar_dtype(now.device)
        rounding = 4 * torch.finfo(now.dtype).eps
        now, then = now.to(dtype), self._then.to(dtype)
        factor = torch.dot(now, then) / torch.dot(then, then)
        equal = (now - factor * then).abs() <= rounding * now.abs()
        is_factor = (then.count_nonzero() >= 3) & (factor > 0) & factor.isfinite() & equal.all()
        return torch.where(is_factor, factor, 1.0)


def _elements(params: list[Tensor]) -> Tensor | None:
    """A few elements of every gradient as one vector."""
    parts = []
    for p in params:
        grad = p.grad
        if grad is None or is_distributed(grad) or grad.layout is not torch.strided:
            return None
        size = grad.numel()
        if size <= _FEW:
            parts.append(grad.detach().reshape(-1))
        elif grad.is_contiguous():
            parts.append(torch.as_strided(grad.detach(), (_FEW,), (size // _FEW,)))
        else:
            parts.append(grad.detach().select(-1, 0).reshape(-1)[:_FEW])
    if not parts or any(part.device != parts[0].device for part in parts):
        return None
    return torch.cat(parts)


def version(gradient: Tensor | None) -> tuple[int, int] | None:
    """Two numbers of which one changes with the gradient."""
    return None if gradient is None else (id(gradient), local(gradient)._version)
