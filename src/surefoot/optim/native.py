"""Passes over float32 tensors by a small C library (``_passes.c``), for whoever has built it: ``surefoot build``.

Nothing is compiled unasked, and everything works without it. Where the library serves, it takes the place of several
passes by NumPy and torch: see :mod:`surefoot.optim._sums` and :class:`surefoot.optim._arithmetic.Host`, which ask for a
pass and do it themselves if the answer is None.

The file's name holds a hash of its source, of the compiler's flags and of the machine: another version's or another
machine's library is not found.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import warnings
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

_SOURCE = Path(__file__).with_name("_passes.c")
_CHUNK_BITS = 18
"""Threads share the work in chunks of 2 to this power elements."""
_FLAGS = ("-O3", "-shared", "-fPIC", "-ffp-contract=off", "-fno-math-errno", f"-DCHUNK={1 << _CHUNK_BITS}")
_MANY = 1 << 21
"""From this many elements on, several threads are worth their start."""
_NONE = (0.0,) * 6
"""The numbers of a pass that has none."""
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
    sums = array("d", bytes(8 * (len(sizes) + (total >> _CHUNK_BITS))))  # room for all chunks, and some more
    scalars, following = array("d", (*numbers, *_NONE[len(numbers) :])), array("q", (0,))
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
    """The library's one function, or None if it was not built for this machine."""
    path = place()
    if path is None or not path.is_file():
        return None
    try:
        return _load(path)
    except (OSError, AttributeError) as error:
        warnings.warn(f"{path} cannot be used ({error}): run `surefoot build` again, or delete it", stacklevel=2)
        return None


def _load(path: Path) -> Any:
    function = ctypes.CDLL(str(path)).surefoot_pass
    function.argtypes = [*[ctypes.c_int] * 3, ctypes.c_int64, *[ctypes.c_void_p] * 4]
    function.restype = None
    return function


def place() -> Path | None:
    """Where the library is, once it is built; None for a machine that it is not written for."""
    flags = _flags()
    if flags is None:
        return None
    from surefoot.data.cache import folders

    machine = (*flags, platform.system(), platform.machine(), *platform.libc_ver())
    digest = hashlib.sha256(_SOURCE.read_bytes() + "\0".join(machine).encode())
    return folders()[-1] / "native" / f"passes-{digest.hexdigest()[:16]}.so"


def _flags() -> tuple[str, ...] | None:
    """What the compiler is told; None for a machine without multiply-add instructions, or an unknown one."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return _FLAGS
    wide = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return (*_FLAGS, "-mavx2", "-mfma") if platform.machine().lower() in ("x86_64", "amd64") and wide else None


def build() -> Path:
    """Compile the library with the machine's C compiler (``$CC``, cc, gcc or clang), try it, and put it in its place.

    Raises:
        RuntimeError: there is no compiler, it fails, or the library is not written for this machine.

    """
    path, flags = place(), _flags()
    if path is None or flags is None:
        raise RuntimeError(f"the kernels want a 64-bit ARM or an x86 processor with AVX2, not {platform.machine()}")
    compiler = (
        shlex.split(os.environ.get("CC", "")) or [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]
    )
    if not compiler:
        raise RuntimeError("no C compiler was found: install gcc or clang, or name one in CC")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        command = [*compiler, *flags, str(_SOURCE), "-o", str(built)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise RuntimeError(f"CC must name a C compiler, got {compiler[0]!r}") from error
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"the C compiler has failed: {shlex.join(command)}\n{error.stderr}") from error
        squares = _run(_load(built), Pass.SQUARES, ([torch.arange(1.0, 5000.0).sqrt()],), ())
        if squares is None or not math.isclose(squares, 4999 * 2500, rel_tol=1e-6):
            raise RuntimeError(f"the compiled kernels sum up to {squares} in place of {4999 * 2500}")
        os.replace(built, path)
    library.cache_clear()
    return path


_threads: ThreadPoolExecutor | None = None


def together(work: Callable[[int], None], threads: int) -> None:
    """Call ``work(0)`` … ``work(threads - 1)`` at the same time, the first one here.

    The threads are our own. They are started when they are first needed, as many as are needed.
    """
    global _threads
    if threads > 1 and _threads is None:
        _threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="surefoot-sums")
    others = [_threads.submit(work, i) for i in range(1, threads)] if _threads is not None else []
    work(0)
    for other in others:
        other.result()


def _forget_threads() -> None:
    """A forked process has none of its parent's threads."""
    global _threads
    _threads = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
