"""Passes over float32 tensors by a small C library (``_passes.c``), for whoever has built it: ``surefoot build``.

Nothing is compiled unasked, and everything works without it. Where the library serves, it takes the place of several
passes by NumPy and torch: see :mod:`surefoot.optim._sums` and :class:`surefoot.optim._arithmetic.Host`, which ask for a
pass and do it themselves if the answer is None. :mod:`surefoot._base.kernels` builds the library and finds it.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from surefoot._base import kernels
from surefoot._base.kernels import place as place

_MANY = 1 << 21
"""From this many elements on, several threads are worth their start."""
_ZEROS = (0.0,) * 6
"""They fill the place of the numbers that a pass does not have."""
_PLAIN = {Tensor, torch.nn.Parameter}

Tensors = list[Tensor] | tuple[Tensor, ...]


class Pass(IntEnum):
    """What a pass does with its operands a, b, c, d, what it sums, and its numbers; in the order of the C source."""

    SQUARES = 0  # Σ a²
    ADD = 1  # a += s·b; s
    LERP_SQUARES = 2  # a += w·(b − a), Σ a²; w
    LERP_ADD = 3  # a += w·(b − a), c += s·a; w, s
    ADAM = 4  # a ← β₂a + (1 − β₂)b², c ← b/(√a·r + ε), Σ bc; β₂, 1 − β₂, r, ε
    AVERAGED_ADAM = 5  # the same with d in the place of b, after d += w·(b − d); β₂, 1 − β₂, r, ε, w
    ADAM_OF_BATCH = 6  # the same as that, but Σ b²/(√a·r + ε)


_WRITES = (0b0, 0b1, 0b1, 0b101, 0b101, 0b1101, 0b1101)
"""Which operands a pass changes, a the lowest bit."""


def run(what: Pass, *operands: Tensors, numbers: tuple[float, ...] = ()) -> float | None:
    """Do a pass over lists of tensors and return its sum; None, and nothing done, if the library does not serve them.

    Tensors at the same place in the lists must be of the same shape.
    """
    call = library()
    return None if call is None else _run(call, what, operands, numbers)


def _run(call: Any, what: Pass, operands: tuple[Tensors, ...], numbers: tuple[float, ...]) -> float | None:
    first, sizes, loose = operands[0], [a.numel() for a in operands[0]], False
    table = array("q", sizes)
    for tensors in operands:
        places = [a.data_ptr() if a.dtype is torch.float32 and a.is_cpu and a.is_contiguous() else 0 for a in tensors]
        loose = loose or 0 in places
        if loose:  # elements may lie in any order without gaps, if it is the same in all operands
            places = [a.data_ptr() if a.dtype is torch.float32 and a.is_cpu and _dense(a) else 0 for a in tensors]
            if any(a.stride() != b.stride() for a, b in zip(first, tensors, strict=True)):
                return None
        if 0 in places or not set(map(type, tensors)) <= _PLAIN:
            return None
        if tensors is not first and sizes != [a.numel() for a in tensors]:
            return None  # a wrong shape is torch's to tell
        table.extend(places)
    if 1 in sizes and any(a.is_neg() for tensors in operands for a in tensors if a.numel() == 1):
        return None  # a view of minus the number in memory, which autograd may make of an imaginary part
    total, writes = sum(sizes), _WRITES[what]
    sums = array("d", bytes(8 * (len(sizes) + (total >> kernels.CHUNK_BITS))))  # room for all chunks, and some more
    scalars, following = array("d", (*numbers, *_ZEROS[len(numbers) :])), array("q", (0,))
    addresses = [each.buffer_info()[0] for each in (table, scalars, sums, following)]
    work = (what, len(operands), writes, len(sizes), *addresses)
    if total < _MANY:
        call(*work)
    else:
        together(lambda _: call(*work), torch.get_num_threads())
    if writes:
        for i, tensors in enumerate(operands):
            if writes >> i & 1:
                increment_version(tensors)
    return math.fsum(sums)


def _dense(a: Tensor) -> bool:
    """Whether a tensor has no gaps in memory; channels_last has none."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense(a))


@functools.cache
def library() -> Any:
    """The library's function for passes, or None if it was not built for this machine."""
    compiled = kernels.library()
    return None if compiled is None else _load(compiled)


def _load(compiled: CDLL) -> Any:
    function = compiled.surefoot_pass
    function.argtypes = [*[ctypes.c_int] * 3, ctypes.c_int64, *[ctypes.c_void_p] * 4]
    function.restype = None
    return function


def build() -> Path:
    """Compile the library (:func:`surefoot._base.kernels.build`), and see whether it sums up rightly.

    Raises:
        RuntimeError: there is no compiler, it fails, or the library is not written for this machine.

    """
    path = kernels.build(_check)
    library.cache_clear()
    return path


def _check(compiled: CDLL) -> None:
    squares = _run(_load(compiled), Pass.SQUARES, ([torch.arange(1.0, 5000.0).sqrt()],), ())
    if squares is None or not math.isclose(squares, 4999 * 2500, rel_tol=1e-6):
        raise RuntimeError(f"the compiled kernels sum up to {squares} in place of {4999 * 2500}")


_threads: ThreadPoolExecutor | None = None


def together(work: Callable[[int], None], threads: int) -> None:
    """Call ``work(0)`` … ``work(threads - 1)`` at the same time, the first one here.

    The threads are our own. They are started when they are first needed, as many as are needed.
    """
    global _threads
    if threads > 1 and _threads is None:
        _threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="surefoot-sums")
    futures = [_threads.submit(work, i) for i in range(1, threads)] if _threads is not None else []
    work(0)
    for future in futures:
        future.result()


def _forget_threads() -> None:
    """A forked process has none of its parent's threads."""
    global _threads
    _threads = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
