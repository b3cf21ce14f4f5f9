"""One thread for NumPy's linear algebra: small products are faster so, and sums do not depend on the machine's load."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[object]:
    """Run the body with a single thread in NumPy's linear algebra, as before after it."""
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


@cache
def _controller() -> ThreadpoolController:
    """The loaded libraries, found once: that takes a millisecond, and NumPy's own is there from the start."""
    return ThreadpoolController()
