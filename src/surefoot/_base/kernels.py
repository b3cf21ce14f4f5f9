"""The compiled library: which file it is, and how ``surefoot build`` makes it from the C sources of the rooms.

Nothing is compiled unasked, and everything works without it. What the sources do, and where it is used, stands beside
them: in :mod:`surefoot.optim.native`.

The file's name holds a hash of the sources, of the compiler's flags and of the machine: another version's or another
machine's library is not found.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

_ROOMS = Path(__file__).parent.parent
_SOURCES = (_ROOMS / "optim" / "_passes.c",)
CHUNK_BITS = 18
"""Threads share the passes of the optimizers in chunks of 2 to this power elements."""
_FLAGS = ("-O3", "-shared", "-fPIC", "-ffp-contract=off", "-fno-math-errno", f"-DCHUNK={1 << CHUNK_BITS}")


@functools.cache
def library() -> ctypes.CDLL | None:
    """The library, or None if it was not built for this machine."""
    path = place()
    if path is None or not path.is_file():
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        warnings.warn(f"{path} cannot be used ({error}): run `surefoot build` again, or delete it", stacklevel=2)
        return None


def place() -> Path | None:
    """Where the library is, once it is built; None for a machine that it is not written for."""
    flags = _flags()
    if flags is None:
        return None
    from surefoot.data.cache import folders

    machine = (*flags, platform.system(), platform.machine(), *platform.libc_ver())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES))
    digest.update("\0".join(machine).encode())
    return folders()[-1] / "native" / f"passes-{digest.hexdigest()[:16]}.so"


def _flags() -> tuple[str, ...] | None:
    """The compiler's flags; None for a machine without multiply-add instructions, or an unknown one."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return _FLAGS
    return (*_FLAGS, "-mavx2", "-mfma") if machine in ("x86_64", "amd64") and _has_avx2() else None


@functools.cache
def _has_avx2() -> bool:
    """Whether the processor has AVX2 and multiply-add, as NumPy has found out."""
    import numpy as np

    extensions = np.show_config(mode="dicts").get("SIMD Extensions", {})  # lists that are empty are left out
    features = {*extensions.get("baseline", ()), *extensions.get("found", ())}
    return "X86_V3" in features or {"AVX2", "FMA3"} <= features  # NumPy's names since 2.4, and before


def build(check: Callable[[ctypes.CDLL], None]) -> Path:
    """Compile the library with the machine's C compiler (``$CC``, cc, gcc or clang), try it, and put it in its place.

    Args:
        check: Tries the library, and raises RuntimeError if it is wrong.

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
        command = [*compiler, *flags, *map(str, _SOURCES), "-o", str(built)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise RuntimeError(f"CC must name a C compiler, got {compiler[0]!r}") from error
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"the C compiler has failed: {shlex.join(command)}\n{error.stderr}") from error
        check(ctypes.CDLL(str(built)))
        os.replace(built, path)
    library.cache_clear()
    return path
