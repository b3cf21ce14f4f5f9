"""Copies of the parameters, for what is measured on all of them: the distance from the start, and the step taken."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.monitor import _reading
from surefoot.optim import Arithmetic


class Copies:
    """The start of a run and the point before a step, as far as ``track`` asks for them."""

    def __init__(self, optimizer: Optimizer, ops: Arithmetic, track: tuple[str, ...]) -> None:
        self._optimizer, self._ops = optimizer, ops
        self._keeps_start, self._has_inner = "distance" in track, "interval" in track
        self._keeps_point = self._has_inner or "update_norm" in track
        self._before: dict[Tensor, Tensor] = {}
        self._start: dict[Tensor, Tensor] = {}

    def before(self) -> dict[str, Any]:
        """Look at the point before a step: its distance from the start."""
        if not (self._keeps_start or self._keeps_point):
            return {}
        here = _reading.parameters(self._optimizer)
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
                    moved.append(self._before[p] - _reading.real(p.detach()))
                    gradients.append(_reading.real(p.grad.to_dense()))
            if not moved:
                continue
            square = self._ops.sum_sq(moved)
            update += square
            scaled += square / rate if isinstance(rate, Tensor) or rate > 0 else 0.0
            if self._has_inner:
                inner += self._ops.inner(gradients, moved)
        found = {"update_sq": update}
        return found | {"inner": inner, "scaled_update_sq": scaled} if self._has_inner and has_gradient else found

    def forget(self) -> None:
        """Let go of the point before a step."""
        self._before = {}
