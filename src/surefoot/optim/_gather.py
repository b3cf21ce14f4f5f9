"""What a step works on: parameters, their gradients and buffers, gathered from the groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim._arithmetic import Arithmetic, Scalar
from surefoot.optim._geometry import Geometry
from surefoot.optim._settings import Settings
from surefoot.optim._shards import Pieces, pieces
from surefoot.optim._share import Share


class Gathering(Optimizer):
    """The part of an optimizer that gathers the shares of a step."""

    _settings: Settings
    _sharded: bool
    _scratch: dict[Tensor, Tensor]

    def _shares(self, ops: Arithmetic) -> list[Share]:
        """One share a group and geometry, or several if the parameters are spread over different ranks."""
        shares = []
        name = self._settings.averaging.memory_name
        for index, group in enumerate(self.param_groups):
            lr, memory = ops.rate(group["lr"]), 0.0 if name is None else ops.scalar(group[name])
            pace: Scalar = 1.0
            if self._settings.averaging.compares:  # the schedule is apart from the rate that the group began with
                cap = group["cap"]
                pace, lr = lr / cap if cap else 0.0, ops.most(lr, cap)
            decay = group["weight_decay"]
            params, grads = self._differentiated(group)
            for geometry, found in self._settings.geometry.split(params, group):
                gradients = grads if found is params else [p.grad for p in found if p.grad is not None]
                if self._settings.maximize:
                    gradients = list(torch._foreach_neg(gradients))
                state = self._buffers(geometry, found)
                parts = [Pieces(None, found, found, gradients, state)]
                if self._sharded:
                    parts = pieces(found, gradients, state)
                for spread, originals, local_params, local_grads, buffers in parts:
                    average = [] if self._settings.averaging.buffer_name is None else buffers.pop(0)
                    last = buffers.pop(0) if self._settings.averaging.compares and geometry.costly else None
                    scratch: list[Tensor] = []
                    if self._settings.fused and ops.fuses:
                        pairs = zip(local_params, originals, strict=True)
                        scratch = [self._scratch_for(p, original) for p, original in pairs]
                        local_grads = [_laid_out_as(g, p) for g, p in zip(local_grads, local_params, strict=True)]
                    own = (local_params, local_grads, average, buffers, scratch)
                    shares.append(Share(index, geometry, lr, decay, *own, memory, pace, last, spread, originals))
        return shares

    def _scratch_for(self, p: Tensor, original: Tensor) -> Tensor:
        """Room of the parameter's size (on this rank) that is reused in every step; not part of the state."""
        room = self._scratch.get(original)
        if room is None or room.shape != p.shape or room.dtype != p.dtype or room.stride() != p.stride():
            room = self._scratch[original] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return room

    def _differentiated(self, group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
        """The group's parameters with a gradient, and their gradients."""
        params = group["params"]
        found = [p.grad for p in params]
        grads = [grad for grad in found if grad is not None]
        if len(grads) < len(found):
            params = [p for p, grad in zip(params, found, strict=True) if grad is not None]
        for layout in {grad.layout for grad in grads}:
            if layout is not torch.strided:
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients (layout {layout})")
        return params, grads

    def _buffers(self, geometry: Geometry, params: list[Tensor]) -> list[list[Tensor]]:
        """The state of some parameters, one list a name; what is missing is created."""
        averaging = self._settings.averaging
        buffers = []
        for name in self._settings.buffer_names(geometry):
            for p in params:
                state = self.state[p]
                if name not in state:
                    copied = averaging.starts_at_parameters and name == averaging.buffer_name
                    state[name] = p.detach().clone() if copied else torch.zeros_like(p)
            buffers.append([self.state[p][name] for p in params])
        return buffers


def _laid_out_as(grad: Tensor, p: Tensor) -> Tensor:
    """The gradient with the parameter's strides."""
    return grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)
