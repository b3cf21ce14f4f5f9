"""The step that was taken, measured on a sample of the parameters, or on copies of all of them.

What Adam, Muon or momentum did to the parameters is not to be had from rate and gradient; it takes the point before the
step. A verdict needs a few inner products of it only, and those of an evenly spread sample serve as well: the sample
has about ``LIMIT`` elements at most, so that its memory (four vectors: start, point, the way between them, last step)
and time do not grow with the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.monitor import _optimizers
from surefoot.optim import Arithmetic

LIMIT = 1 << 18
"""Elements of the sample, about; smaller networks are looked at as a whole."""


class StepSample:
    """Inner products of gradients and steps, on every k-th element of the parameters.

    Numbers are 0-d tensors on the device of the parameters; nobody waits for them here.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._point: Tensor | None = None
        self._away: Tensor | None = None
        self._gradient: Tensor | None = None
        self._moved: Tensor | None = None
        self._start: Tensor | None = None
        self.elements = 0
        """The number of elements in the sample."""

    def before(self) -> dict[str, Tensor]:
        """Look at the point before a step."""
        self._gradient = None
        self._point = point = self._present_point()
        if self._start is None or self._start.shape != point.shape:  # the first step, or a group was added
            self._start, self._moved, self.elements = point, None, len(point)
        self._away = point - self._start
        return {"point_sq": point @ point, "away_sq": self._away @ self._away}

    def gradient(self) -> dict[str, Tensor]:
        """Look at the gradient of the point before a step."""
        self._gradient = gradient = self._present_gradient()
        away, self._away = self._away, None
        back = {} if away is None else {"back": gradient @ away}
        return {"sample_sq": gradient @ gradient} | back | self.remainder()

    def remainder(self) -> dict[str, Tensor]:
        """The slope along the last step that was looked at, at its end and on another batch; once a step."""
        if self._moved is None:
            return {}
        gradient = self._present_gradient() if self._gradient is None else self._gradient
        moved, self._moved = self._moved, None
        return {"carried": gradient @ moved} if gradient.shape == moved.shape else {}

    def after(self) -> dict[str, Tensor]:
        """Look at the step that was taken; the next gradient is held against it."""
        if self._point is None or self._gradient is None:
            return {}
        moved = self._point - self._present_point()
        values = {"slope": self._gradient @ moved, "moved_sq": moved @ moved}
        self._point = self._gradient = None
        self._moved = moved
        return values

    def forget(self) -> None:
        """Drop everything but the start."""
        self._point = self._away = self._gradient = self._moved = None

    def _present_point(self) -> Tensor:
        return _sampled(p.detach() for p in _optimizers.parameters(self._optimizer))

    def _present_gradient(self) -> Tensor:
        params = _optimizers.parameters(self._optimizer)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in params]
        gradient = _sampled(grad if grad.layout is torch.strided else grad.to_dense() for grad in gradients)
        scale = getattr(self._optimizer, "grad_scale", None)  # of a GradScaler that leaves the division to the step
        return gradient if scale is None else gradient / scale


class Copies:
    """Copies of the start of a run and of the point before a step, as far as ``track`` asks for them."""

    def __init__(self, optimizer: Optimizer, ops: Arithmetic, track: tuple[str, ...]) -> None:
        self._optimizer, self._ops = optimizer, ops
        self._keeps_start, self._has_inner = "distance" in track, "interval" in track
        self._keeps_point = self._has_inner or "update_norm" in track
        if (self._keeps_start or self._keeps_point) and _optimizers.is_sharded(optimizer):
            raise ValueError(f"track must be some of loss, grad_sq, step where parameters are DTensors, got {track}")
        self._before: dict[Tensor, Tensor] = {}
        self._start: dict[Tensor, Tensor] = {}

    def before(self) -> dict[str, Any]:
        """Look at the point before a step: its distance from the start."""
        if not (self._keeps_start or self._keeps_point):
            return {}
        here = {p: _optimizers.real(p.detach()) for p in _optimizers.parameters(self._optimizer)}
        if self._keeps_point and self._before.keys() == here.keys():
            torch._foreach_copy_([self._before[p] for p in here], list(here.values()))
        elif self._keeps_point:  # the first step, or one after a group was added
            self._before = {p: x.clone() for p, x in here.items()}
        if not self._keeps_start:
            return {}
        self._start = {p: self._start[p] if p in self._start else x.clone() for p, x in here.items()}
        away = torch._foreach_sub(list(here.values()), list(self._start.values())) if here else ()
        return {"distance_sq": self._ops.sum_sq(away) if away else 0.0}

    def after(self, rates: list[Any], has_gradient: bool) -> dict[str, Any]:
        """⟨g, Δ⟩ and ‖Δ‖² of the step that was taken, group by group; the first only if g is still there."""
        if not self._before:
            return {}
        inner, update, scaled = 0.0, 0.0, 0.0
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            moved, gradients = [], []
            for p in group["params"]:
                if p.grad is not None:
                    moved.append(self._before[p] - _optimizers.real(p.detach()))
                    gradients.append(_optimizers.real(p.grad.to_dense()))
            if not moved:
                continue
            square = self._ops.sum_sq(moved)
            update += square
            scaled += square / rate if isinstance(rate, Tensor) or rate > 0 else 0.0
            if self._has_inner:
                inner += self._ops.inner(gradients, moved)
        if not (self._has_inner and has_gradient):
            return {"update_sq": update}
        return {"update_sq": update, "inner": inner, "scaled_update_sq": scaled}

    def forget(self) -> None:
        """Drop the point before a step."""
        self._before = {}


def _sampled(tensors: Iterable[Tensor]) -> Tensor:
    """Every k-th element of all tensors in one vector; k is a prime, which no width of a layer is a multiple of."""
    pieces = [_optimizers.real(_local(tensor)) for tensor in tensors]
    total = sum(piece.numel() for piece in pieces)
    stride = _prime(-(-total // LIMIT))
    device = pieces[0].device if pieces else torch.device("cpu")
    dtype = _optimizers.widest(device)
    samples = [piece.reshape(-1)[::stride].to(device, dtype, non_blocking=True) for piece in pieces]
    return torch.cat(samples) if samples else torch.zeros(0, dtype=dtype)


def _local(tensor: Any) -> Tensor:
    """The piece of a DTensor that this rank holds, which is a sample too; any other tensor itself."""
    piece: Tensor = tensor.to_local() if hasattr(tensor, "device_mesh") else tensor
    return piece


def _prime(least: int) -> int:
    """The smallest prime of at least this size, or 1."""
    while any(least % divisor == 0 for divisor in range(2, int(least**0.5) + 1)):
        least += 1
    return max(1, least)
