"""Which rows a run sees at which step: a function of its seed alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def row_orders(seed: int, n_rows: int, batch_size: int, sampling: str) -> Iterator[NDArray[np.intp]]:
    """The batches of one epoch after the other, each of shape (⌊n_rows/batch_size⌋, batch_size), without end.

    ``shuffle``: a new order of all rows, the incomplete last batch dropped. ``iid``: each batch is drawn independently,
    without replacement inside a batch.

    >>> orders = row_orders(seed=0, n_rows=6, batch_size=2, sampling="shuffle")
    >>> sorted(next(orders).ravel().tolist())
    [0, 1, 2, 3, 4, 5]
    """
    random = np.random.Generator(np.random.Philox(key=seed))
    steps = n_rows // batch_size
    while True:
        if sampling == "shuffle":
            yield random.permutation(n_rows)[: steps * batch_size].reshape(steps, batch_size)
        else:
            yield np.stack([random.choice(n_rows, batch_size, replace=False, shuffle=False) for _ in range(steps)])
