"""One thread a run: sums do not depend on the cores of the machine, and runs side by side do not crowd them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from surefoot.problems import one_blas_thread


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the body with a single thread in torch, if it is in use, and in NumPy's linear algebra."""
    torch = sys.modules.get("torch")
    before = 1 if torch is None else torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)  # type: ignore[union-attr]
    try:
        with one_blas_thread():
            yield
    finally:
        if before > 1:
            torch.set_num_threads(before)  # type: ignore[union-attr]
