"""What a step works on: parameters, their gradients and buffers, gathered from the parameter groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim._arithmetic import Arithmetic, Scalar
from surefoot.optim._distributed import Spread, gathered, local, piece, placed_as, spread
from surefoot.optim._geometry import Geometry
from surefoot.optim._settings import Settings
from surefoot.optim._sums import Tensors
from surefoot.theory.arrays import maximum


class Share(NamedTuple):
    """One parameter group's part of a step: the parameters that have a gradient, and what belongs to them.

    A group has several shares if its parameters differ in geometry, or are spread over different ranks. Tensors are
    those of this rank: a sum over their elements is this rank's part until :meth:`total` has added it up.
    """

    group: int
    """Its place among the parameter groups."""
    geometry: Geometry
    lr: Scalar
    weight_decay: float
    params: list[Tensor]
    grads: list[Tensor]
    average: list[Tensor]
    """The averaging's buffers."""
    buffers: list[list[Tensor]]
    """The geometry's buffers."""
    memory: Scalar
    """What the averaging keeps for the group."""
    pace: Scalar = 1.0
    """What a schedule has made of the rate, if ``lr`` is the one that the group began with."""
    last: list[Tensor] | None = None
    """The directions of the last step, if they are kept."""
    spread: Spread | None = None
    """The ranks that hold the other pieces of all these tensors; None if they are whole."""
    originals: Tensors = ()
    """The parameters as the user knows them: DTensors, if they are spread."""
    scratch: Tensors = ()
    """Room for the directions, with ``fused=True``."""

    def pieces(self) -> list[Share]:
        """The shares of this rank's pieces of the tensors, one for each spread that occurs among them."""
        spreads = [spread(p) for p in self.params]
        grads = [placed_as(grad, p) for grad, p in zip(self.grads, self.params, strict=True)]
        shares = []
        lists = (self.params, grads, self.average, self.last or [], *self.buffers)
        for ranks in dict.fromkeys(spreads):
            places = [i for i, holders in enumerate(spreads) if holders == ranks]
            originals = [self.params[i] for i in places]
            params, held, average, last, *buffers = ([local(a[i]) for i in places if a] for a in lists)
            share = self._replace(params=params, grads=held, average=average, buffers=buffers, spread=ranks)
            shares.append(share._replace(originals=originals, last=None if self.last is None else last))
        return shares

    def total(self, value: Scalar) -> Scalar:
        """A sum over elements of these tensors, added up over the ranks that hold pieces of them."""
        return value if self.spread is None else self.spread.total(value)

    @property
    def needs_whole(self) -> bool:
        """Whether the tensors must be gathered, because the geometry makes no sense of pieces."""
        return self.spread is not None and not self.geometry.separable

    def learn(self, ops: Arithmetic, grads: Tensors, count: Scalar) -> None:
        """Let the geometry see the batch's gradients."""
        if not self.needs_whole:
            self.geometry.learn(ops, grads, self.buffers, count)
            return
        for i, (original, (grad,), buffers) in enumerate(self._gathered(grads) if self.buffers else ()):
            self.geometry.learn(ops, grad, buffers, count)
            for buffer, (learned,) in zip(self.buffers, buffers, strict=True):
                buffer[i].copy_(piece(learned, original))

    def _gathered(self, *lists: Tensors) -> Iterator[tuple[Tensor, list[list[Tensor]], list[list[Tensor]]]]:
        """Parameters, with tensors of theirs and their buffers as a whole: one at a time, on every rank."""
        for i, original in enumerate(self.originals):
            wholes = [[gathered(tensors[i], original)] for tensors in lists]
            buffers = [[gathered(buffer[i], original)] for buffer in self.buffers]
            yield original, wholes, buffers

    def measure(self, ops: Arithmetic, gradients: Tensors, count: Scalar, norm_sq: Scalar) -> tuple[Tensors, Scalar]:
        """Directions for gradients, and Σ‖·‖_*² over all ranks; ``norm_sq`` is their Σ‖·‖² over all ranks, or None."""
        return self._measured(self.geometry.measure, ops, (gradients,), count, norm_sq)

    def measure_averaged(
        self, ops: Arithmetic, gradients: Tensors, count: Scalar, norm_sq: Scalar
    ) -> tuple[Tensors, Scalar]:
        """Directions of the averages, and Σ‖·‖_*² of the batch's own gradients over all ranks."""
        return self._measured(self.geometry.measure_averaged, ops, (self.average, gradients), count, norm_sq)

    def _measured(
        self, measure: Callable[..., Any], ops: Arithmetic, lists: tuple[Tensors, ...], count: Scalar, norm_sq: Scalar
    ) -> tuple[Tensors, Scalar]:
        """What the geometry measures, over all ranks; it sees whole tensors where it makes no sense of pieces."""
        if not self.needs_whole:
            directions, dual_sq = measure(ops, *lists, self.buffers, count, norm_sq)
            return directions, dual_sq if dual_sq is norm_sq else self.total(dual_sq)
        directions, total = [], 0.0 * ops.one
        for original, wholes, buffers in self._gathered(*lists):
            (direction,), dual_sq = measure(ops, *wholes, buffers, count, None)
            directions.append(piece(direction, original))
            total = total + dual_sq
        return directions, total

    def measure_norm(self, ops: Arithmetic, gradients: Tensors, count: Scalar, norm_sq: Scalar) -> Scalar:
        """Σ‖·‖_*² alone, over all ranks."""
        if self.needs_whole:
            return self.measure(ops, gradients, count, norm_sq)[1]
        dual_sq = self.geometry.measure_norm(ops, gradients, self.buffers, count, norm_sq)
        return dual_sq if dual_sq is norm_sq else self.total(dual_sq)

    def overlap(self, ops: Arithmetic, grads: Tensors, count: Scalar) -> Scalar:
        """Σ⟨g, u⟩ over all ranks with the directions u of the last step; to be asked before anything is learned."""
        if self.last is not None:
            return self.total(ops.inner(grads, self.last))
        directions, _ = self.measure(ops, self.average, count - 1.0 * (count > 1.0), None)
        return self.total(ops.inner(grads, directions))

    def norm_sq(self, ops: Arithmetic, count: Scalar) -> Scalar:
        """Σ‖x‖² over the parameters, in their geometry."""
        if self.needs_whole:
            wholes = ((x, [buffer for (buffer,) in buffers]) for _, ((x,),), buffers in self._gathered(self.params))
            return ops.total([self.geometry.norm_sq(x, buffers, count) for x, buffers in wholes])
        tensors = zip(self.params, *self.buffers, strict=True)
        return self.total(ops.total([self.geometry.norm_sq(x, buffers, count) for x, *buffers in tensors]))


class Gathering(Optimizer):
    """The part of an optimizer that gathers the shares of a step."""

    _settings: Settings
    _sharded: bool
    _scratch: dict[Tensor, Tensor]

    def _shares(self, ops: Arithmetic) -> list[Share]:
        """One share a group and geometry, or several if the parameters are spread over different ranks."""
        settings, averaging = self._settings, self._settings.averaging
        shares = []
        for index, group in enumerate(self.param_groups):
            name, decay = averaging.memory_name, group["weight_decay"]
            lr, memory = ops.rate(group["lr"]), 0.0 if name is None else ops.scalar(group[name])
            pace: Scalar = 1.0
            if averaging.compares:  # the schedule is apart from the rate that the group began with
                cap = group["cap"]
                pace, lr = lr / cap if cap else 0.0, maximum(lr, cap)
            trained, trained_grads = self._differentiated(group)
            for geometry, params in settings.geometry.split(trained, group):
                grads = trained_grads if params is trained else [p.grad for p in params if p.grad is not None]
                if settings.maximize and grads:
                    grads = list(torch._foreach_neg(grads))
                buffers = self._buffers(geometry, params)
                average = [] if averaging.buffer_name is None else buffers.pop(0)
                last = buffers.pop(0) if averaging.compares and geometry.costly else None
                lists = (params, grads, average, buffers)
                share = Share(index, geometry, lr, decay, *lists, memory, pace, last, originals=params)
                shares += share.pieces() if self._sharded else [share]
        return [self._with_scratch(share) for share in shares] if settings.fused and ops.reads else shares

    def _with_scratch(self, share: Share) -> Share:
        """The share with room of the parameters' size, which is reused in every step; it is not part of the state."""
        scratch, grads = [], []
        for i, (p, grad, original) in enumerate(zip(share.params, share.grads, share.originals, strict=True)):
            room, stride = self._scratch.get(original), p.stride()
            if room is None or room.stride() != stride or room.shape != p.shape or room.dtype is not p.dtype:
                room = self._scratch[original] = torch.zeros_like(p, memory_format=torch.preserve_format)
                for buffer in (share.average, *share.buffers) if p is original else ():
                    if buffer and buffer[i].stride() != room.stride():  # the parameter's memory format has changed
                        buffer[i].data = torch.empty_like(room).copy_(buffer[i])
            scratch.append(room)
            grads.append(grad if grad.stride() == stride else torch.empty_like(p).copy_(grad))
        return share._replace(scratch=scratch, grads=grads)

    def _differentiated(self, group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
        """The group's parameters with a gradient, and their gradients."""
        params = group["params"]
        all_grads = [p.grad for p in params]
        grads = [grad for grad in all_grads if grad is not None]
        if len(grads) < len(all_grads):
            params = [p for p, grad in zip(params, all_grads, strict=True) if grad is not None]
        for layout in {grad.layout for grad in grads}:
            if layout is not torch.strided:
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients (layout {layout})")
        return params, grads

    def _buffers(self, geometry: Geometry, params: list[Tensor]) -> list[list[Tensor]]:
        """The state of some parameters, one list a name; what is missing is created."""
        averaging = self._settings.averaging
        names = self._settings.buffer_names(geometry)
        states = [self.state[p] for p in params] if names else []
        buffers = []
        for name in names:
            for p, state in zip(params, states, strict=True):
                if name not in state:
                    copied = averaging.starts_at_parameters and name == averaging.buffer_name
                    state[name] = p.detach().clone() if copied else torch.zeros_like(p)
                    if name in geometry.buffer_names:
                        self._start(geometry, name, p)
            buffers.append([state[name] for state in states])
        return buffers

    def _start(self, geometry: Geometry, name: str, p: Tensor) -> None:
        """Let the geometry say what a new buffer starts with, if the parameter's first gradient comes later."""
        count: Tensor = self.param_groups[0]["count"].squeeze()
        if type(geometry).start is Geometry.start or (count.is_cpu and not torch.compiler.is_compiling() and not count):
            return
        grad = local(placed_as(p.grad, p))
        local(self.state[p][name]).add_(geometry.start(name, grad, count.to(grad.device)))  # to zeros
