"""The numbers of every step that a monitor keeps, read from their device in blocks."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor

from surefoot.rules import Floats

COLUMNS = (
    "loss",
    "grad_sq",
    "decrease",  # q = Σ_g α_g‖g_g‖²
    "rate",  # of the first parameter group
    "size",  # of the first parameter group
    "delta",  # of the optimizer's own model
    "slope",  # from here on: of a sample of the parameters. ⟨g, Δ⟩ with Δ = x_t − x_{t+1}
    "moved_sq",  # ‖Δ‖²
    "carried",  # ⟨g, Δ⟩ with the step before: the slope that is left at its end, on another batch
    "point_sq",  # ‖x_t‖²
    "away_sq",  # ‖x_t − x_1‖²
    "back",  # ⟨g, x_t − x_1⟩: above 0 where the way from the start leads uphill
)
OVERFLOW = "overflow"
"""What a row has beside the columns: above 0 if the scaled gradients have overflowed, so that no step was taken."""
_OF_GRADIENTS = [COLUMNS.index(name) for name in ("grad_sq", "decrease", *COLUMNS[6:])]

Row = Mapping[str, Tensor | float]


class Records:
    """The rows of all steps. Tensors stay on their device until a block of rows is full, and are read together then.

    A full block is averaged over the process group, so that all ranks know equal numbers at equal steps. ∞ is what is
    not finite, NaN what was not measured.

    >>> records = Records(block=2, device=torch.device("cpu"), group=None)
    >>> [records.add({"loss": torch.tensor(1.0 / step)}) for step in (1, 2, 4)]
    [False, True, False]
    >>> records.columns()["loss"].tolist(), records.columns(complete=True)["loss"].tolist()
    ([1.0, 0.5, 0.25], [1.0, 0.5])
    """

    def __init__(self, block: int, device: torch.device, group: Any) -> None:
        self.block, self._device, self._group = block, device, group
        self._full: list[Floats] = []
        self._open: list[Row] = []
        self._lock = threading.Lock()  # the page of `surefoot watch` may be written by another thread

    def add(self, row: Row) -> bool:
        """Add a row; True if a block is full, so that the complete rows have grown."""
        with self._lock:
            self._open.append(row)
            if len(self._open) < self.block:
                return False
            self._full.append(self._averaged(_numbers(self._open)))
            self._open = []
            return True

    def columns(self, start: int = 0, *, complete: bool = False) -> dict[str, Floats]:
        """The columns by name, from a row on (-1 is the last): of complete blocks, which all ranks know alike, or all.

        Only blocks with rows from there on are read.
        """
        with self._lock:
            waiting = [] if complete else self._open
            begin = slice(start, None).indices(self.block * len(self._full) + len(waiting))[0]
            first = begin // self.block
            rows = np.concatenate([*self._full[first:], _numbers(waiting)])[begin - self.block * first :]
        return dict(zip(COLUMNS, rows.T, strict=True))

    def _averaged(self, rows: Floats) -> Floats:
        group = None if self._group == "auto" else self._group
        if self._group is None or not distributed.is_available() or not distributed.is_initialized():
            return rows
        total = torch.from_numpy(rows).to(self._device)  # NCCL adds up what is on its device only
        distributed.all_reduce(total, group=group)
        return np.asarray(total.cpu().numpy() / distributed.get_world_size(group))


def widest(device: torch.device) -> torch.dtype:
    """The widest floats that a device has: Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def _numbers(rows: Sequence[Row]) -> Floats:
    """Rows as numbers; tensors are fetched from every device in one transfer."""
    table = np.full((len(rows), len(COLUMNS) + 1), np.nan)
    fetched: dict[torch.device, list[tuple[int, int, Tensor]]] = {}
    for line, row in enumerate(rows):
        for column, name in enumerate((*COLUMNS, OVERFLOW)):
            value = row.get(name)
            if isinstance(value, Tensor):
                fetched.setdefault(value.device, []).append((line, column, value))
            elif value is not None:
                table[line, column] = value if np.isfinite(value) else np.inf
    for device, found in fetched.items():
        lines, columns, tensors = zip(*found, strict=True)
        values = torch.stack([tensor.detach().reshape(()).to(widest(device)) for tensor in tensors]).cpu().numpy()
        table[lines, columns] = np.where(np.isfinite(values), values, np.inf)
    overflowed = np.flatnonzero(table[:, -1] > 0)
    table[overflowed[:, None], _OF_GRADIENTS] = np.nan
    return table[:, :-1]
