"""Adam's metric on the CPU in one pass, for ``fused=True``: the native one, or torch's own fused kernel.

The pass updates both moments, writes the direction into a scratch tensor, and sums their inner product. torch's kernel
knows no sum: it works on pieces that are still in the cache when their inner product is taken. Memory traffic: the
check of the gradient, seven arrays for the pass, three to move the parameters. It needs one scratch array of the
parameters' size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.optim import native
from surefoot.optim._arithmetic import Arithmetic
from surefoot.optim._geometry import Diagonal
from surefoot.optim._share import Share
from surefoot.optim._sums import Tensors, flat
from surefoot.optim.native import Pass
from surefoot.theory.training import second_moment_correction

_PIECE = 1 << 18
"""Elements of a piece: four arrays of it stay in the cache, also where it is shared."""


def measure(
    ops: Arithmetic, share: Share, grads: Tensors, averaged: bool, count: float, weight: float
) -> tuple[float, float]:
    """Bring the moments up to date and leave multiples of the directions in ``share.scratch``.

    Returns the factor that makes them the directions, and Σ⟨d, direction⟩.
    """
    geometry = share.geometry
    assert isinstance(geometry, Diagonal)
    moments, directions = share.buffers[0], share.scratch
    correction = second_moment_correction(geometry.beta, count) ** -0.5
    numbers = (geometry.beta, 1.0 - geometry.beta, correction, geometry.eps, weight)
    if averaged:
        dual_sq = native.run(Pass.AVERAGED_ADAM, moments, grads, directions, share.average, numbers=numbers)
    else:
        dual_sq = native.run(Pass.ADAM, moments, grads, directions, numbers=numbers)
    if dual_sq is not None:
        return 1.0, dual_sq
    return _by_torch(ops, geometry, (directions, grads, share.average if averaged else grads, moments), count, weight)


def _by_torch(
    ops: Arithmetic, geometry: Diagonal, operands: tuple[Tensors, ...], count: float, weight: float
) -> tuple[float, float]:
    """The same, piece by piece.

    The kernel computes scratch ← (1 − lr·decay)·scratch − lr·(m/c₁)/(√(v/c₂) + ε). With lr = decay = 1 the old content
    drops out. Its β₁ is 1 − weight, so that m is the average whose weights sum to one; its own correction
    c₁ = 1 − β₁^count is then not wanted, and taken back by the factor.
    """
    beta = 1.0 - weight
    step = torch.tensor(count)
    total = 0.0
    small: list[tuple[Tensor, ...]] = []
    for tensors in zip(*operands, strict=True):
        if tensors[0].numel() <= _PIECE // 4:
            small.append(tensors)
            continue
        for piece in zip(*(torch.split(flat(a), _PIECE) for a in tensors), strict=True):
            _kernel([piece], beta, geometry, step)
            total += ops.inner(piece[2:3], piece[:1])
    if small:
        _kernel(small, beta, geometry, step)
        total += ops.inner([a[2] for a in small], [a[0] for a in small])
    factor = -(1.0 - beta**count)
    return factor, factor * total


def _kernel(pieces: list[tuple[Tensor, ...]], beta: float, geometry: Diagonal, step: Tensor) -> None:
    scratch, grads, average, second_moment = (list(column) for column in zip(*pieces, strict=True))
    torch._fused_adamw_(
        scratch,
        grads,
        average,  # the gradient itself if nothing is averaged: with β₁ = 0 the kernel writes it back unchanged
        second_moment,
        [],
        [step] * len(pieces),
        lr=1.0,
        beta1=beta,
        beta2=geometry.beta,
        weight_decay=1.0,
        eps=geometry.eps,
        amsgrad=False,
        maximize=False,
    )
