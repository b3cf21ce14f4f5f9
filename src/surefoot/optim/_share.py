"""A parameter group's part of a step."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from surefoot.optim._arithmetic import Arithmetic, Scalar
from surefoot.optim._geometry import Buffers, Geometry
from surefoot.optim._shards import Spread, gathered, piece
from surefoot.optim._sums import Tensors


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
    buffers: Buffers
    """The geometry's buffers."""
    scratch: list[Tensor]
    """Room for the directions, with ``fused=True``."""
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
        for i, original in enumerate(self.originals) if self.buffers else ():
            buffers = [[gathered(buffer[i], original)] for buffer in self.buffers]
            self.geometry.learn(ops, [gathered(grads[i], original)], buffers, count)
            for buffer, (learned,) in zip(self.buffers, buffers, strict=True):
                buffer[i].copy_(piece(learned, original))

    def measure(self, ops: Arithmetic, gradients: Tensors, count: Scalar, norm_sq: Scalar) -> tuple[Tensors, Scalar]:
        """Directions for gradients, and Σ‖·‖_*² over all ranks; ``norm_sq`` is their Σ‖·‖² over all ranks, or None."""
        if not self.needs_whole:
            directions, dual_sq = self.geometry.measure(ops, gradients, self.buffers, count, norm_sq)
            return directions, dual_sq if dual_sq is norm_sq else self.total(dual_sq)
        directions, total = [], 0.0 * ops.one
        for i, original in enumerate(self.originals):  # one at a time, on every rank
            buffers = [[gathered(buffer[i], original)] for buffer in self.buffers]
            (direction,), dual_sq = self.geometry.measure(ops, [gathered(gradients[i], original)], buffers, count, None)
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
        tensors = list(zip(self.params, *self.buffers, strict=True))
        if self.needs_whole:
            pairs = zip(tensors, self.originals, strict=True)
            wholes = ([gathered(tensor, original) for tensor in own] for own, original in pairs)
            return ops.total([self.geometry.norm_sq(x, buffers, count) for x, *buffers in wholes])
        return self.total(ops.total([self.geometry.norm_sq(x, buffers, count) for x, *buffers in tensors]))
