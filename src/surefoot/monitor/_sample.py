"""The step that was taken, measured on a sample of the parameters.

What Adam, Muon or momentum did to the parameters cannot be known from rate and gradient; it takes the point before the
step. A verdict needs a few inner products of it only, and those of an evenly spread sample serve as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from surefoot.monitor._records import widest

LIMIT = 1 << 18
"""Elements of the sample, about; smaller networks are measured as a whole."""


class StepSample:
    """Inner products of gradients and steps, on every k-th element of the parameters.

    It keeps four vectors at most: the start, the point, the way between them, and the last step. Numbers are 0-d
    tensors on the device of the parameters; nobody waits for them here.
    """

    def __init__(self) -> None:
        self._start: Tensor | None = None
        self._point: Tensor | None = None
        self._away: Tensor | None = None
        self._gradient: Tensor | None = None
        self._moved: Tensor | None = None
        self.elements = 0
        """The number of elements in the sample."""

    def before(self, params: Sequence[Tensor]) -> dict[str, Tensor]:
        """Measure the point before a step."""
        self._gradient = None
        self._point = point = _sampled(params)
        if self._start is None or self._start.shape != point.shape:  # the first step, or a group was added
            self._start, self._moved, self.elements = point, None, len(point)
        self._away = point - self._start
        return {"point_sq": point @ point, "away_sq": self._away @ self._away}

    def gradient(self, params: Sequence[Tensor], scale: Any) -> dict[str, Tensor]:
        """Measure the gradient at the point before a step, divided by ``scale`` if there is one."""
        gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in params)
        gradient = _sampled(grad if grad.layout is torch.strided else grad.to_dense() for grad in gradients)
        self._gradient = gradient = gradient if scale is None else gradient / scale
        moved, self._moved = self._moved, None
        away, self._away = self._away, None
        found = {} if away is None else {"back": gradient @ away}
        return found if moved is None else {**found, "carried": gradient @ moved}

    def after(self, params: Sequence[Tensor]) -> dict[str, Tensor]:
        """Measure the step that was taken; the next gradient is compared with it."""
        if self._point is None or self._gradient is None:
            return {}
        self._moved = moved = self._point - _sampled(params)
        values = {"slope": self._gradient @ moved, "moved_sq": moved @ moved}
        self._point = self._gradient = None
        return values

    def forget(self) -> None:
        """Drop everything but the start."""
        self._point = self._away = self._gradient = self._moved = None


def real(tensor: Tensor) -> Tensor:
    """A tensor as a real one that shares its memory; of a sparse tensor, its values."""
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _sampled(tensors: Iterable[Any]) -> Tensor:
    """Every k-th element of all tensors in one vector; k is a prime, which no width of a layer is a multiple of.

    Of a DTensor it is the piece that this rank holds, which is a sample too.
    """
    local = (t.to_local() if hasattr(t, "device_mesh") else t for t in (tensor.detach() for tensor in tensors))
    pieces = [real(tensor) for tensor in local]
    stride = _prime(-(-sum(piece.numel() for piece in pieces) // LIMIT))
    device = pieces[0].device if pieces else torch.device("cpu")
    dtype = widest(device)
    samples = [piece.reshape(-1)[::stride].to(device, dtype, non_blocking=True) for piece in pieces]
    return torch.cat(samples) if samples else torch.zeros(0, dtype=dtype)


def _prime(least: int) -> int:
    """The smallest prime of at least this size, or 1."""
    while any(least % divisor == 0 for divisor in range(2, int(least**0.5) + 1)):
        least += 1
    return max(1, least)
