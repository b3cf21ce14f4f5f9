"""What gradients were multiplied by after their backward pass: clipped by hand, for example."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from surefoot.optim._arithmetic import scalar_dtype
from surefoot.optim._distributed import local


class Sample:
    """Some numbers of two gradients as a backward pass has left them, to tell what they were multiplied by afterwards.

    Two, because a part of a network may be clipped alone, and the gradient of one parameter may be zero. Changes that
    autograd does not count (``p.grad.data.mul_``) are not seen.
    """

    FEWEST, MOST = 4, 64
    """Numbers of a gradient to keep; with fewer, or fewer than three nonzero ones, other changes look like a factor."""

    def __init__(self, params: list[Tensor]) -> None:
        self._params, self._versions = params, [version(p.grad) for p in params]
        self._then = [now.clone() for now in self._now()]

    @classmethod
    def serving(cls, params: Iterator[Tensor]) -> list[Tensor]:
        """The smallest parameter that serves, of the first half of them and of the second."""
        serving = [p for p in params if serves(p) and p.numel() >= cls.FEWEST]
        halves = serving[: len(serving) // 2], serving[len(serving) // 2 :]
        smallest = sorted((min(half, key=Tensor.numel) for half in halves if half), key=Tensor.numel)
        return [p for p in smallest if p.device == smallest[0].device]

    def factor(self) -> Tensor | None:
        """What the gradients were multiplied by; 1 where they were changed in another way, None if they were not."""
        if [version(p.grad) for p in self._params] == self._versions or not all(map(serves, self._params)):
            return None
        dtype = scalar_dtype(self._then[0].device)
        vectors = ([a.reshape(-1).to(dtype) for a in tensors] for tensors in (self._now(), self._then))
        pairs = list(zip(*vectors, strict=True))
        factor = torch.zeros((), dtype=dtype, device=self._then[0].device)
        for now, then in reversed(pairs):
            factor = torch.where(then.count_nonzero() >= 3, now @ then / (then @ then), factor)
        is_factor = (factor > 0) & factor.isfinite()
        for (now, then), sampled in zip(pairs, self._then, strict=True):
            rounding = 4 * torch.finfo(sampled.dtype).eps * now.abs().amax()
            is_factor = is_factor & ((now - factor * then).abs().amax() <= rounding)
        return torch.where(is_factor, factor, 1.0)

    def _now(self) -> list[Tensor]:
        grads = [p.grad.detach() for p in self._params if p.grad is not None]
        return [grad if grad.numel() <= self.MOST else grad.reshape(-1)[: self.MOST] for grad in grads]


def serves(param: Tensor) -> bool:
    """Whether numbers of the parameter's gradient can be looked at."""
    return param.grad is not None and param.grad.layout is torch.strided


def version(gradient: Tensor | None) -> tuple[int, int] | None:
    """Two numbers of which one changes with the gradient."""
    return None if gradient is None else (id(gradient), local(gradient)._version)
