"""One thread for NumPy's linear algebra: small products are faster so, and sums do not depend on the machine's load."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

# What the libraries that NumPy is built with call the two functions; in NumPy's own wheels it is the first.
_NAMES = [
    *(
        (f"{prefix}openblas_set_num_threads{suffix}", f"{prefix}openblas_get_num_threads{suffix}")
        for prefix in ("scipy_", "")
        for suffix in ("64_", "_64", "")
    ),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run the body with a single thread in NumPy's linear algebra, if its library can be found, as before after it."""
    found = _functions()
    if found is None:
        yield
        return
    set_threads, get_threads = found
    before = int(get_threads())
    if before == 1:
        yield
        return
    set_threads(1)
    try:
        yield
    finally:
        set_threads(before)


@functools.cache
def _functions() -> tuple[Callable[[int], Any], Callable[[], int]] | None:
    """The functions that set and get the number of threads."""
    package = Path(np.__file__).parent
    extensions = [Path(str(np._core._multiarray_umath.__file__))]  # type: ignore[attr-defined]
    bundled = [
        path for folder in (package.parent / "numpy.libs", package / ".dylibs") for path in folder.glob("*blas*")
    ]
    for path in extensions + bundled:  # a handle of the extension also finds what it is linked to, except on Windows
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for set_name, get_name in _NAMES:
            if hasattr(library, set_name) and hasattr(library, get_name):
                set_threads, get_threads = getattr(library, set_name), getattr(library, get_name)
                set_threads.argtypes, set_threads.restype = [ctypes.c_int], None
                get_threads.argtypes, get_threads.restype = [], ctypes.c_int
                return set_threads, get_threads
    return None
