"""A buffer of the last steps' numbers, on the parameters' device, emptied in blocks without waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor

from surefoot.monitor._optimizers import widest
from surefoot.rules import Floats


class Ring:
    """Rows of numbers, in two halves of ``length`` rows: one is filled while the other is on its way to the host.

    Numbers that the host knows already stay there; tensors stay on their device until their half is full. On a device a
    half is taken over when the next one is full, by which time its copy has long arrived: nobody waits, and which steps
    are known when depends on the count of steps alone. That, and the mean over the process group which every half is
    replaced by, makes all ranks see equal numbers at equal steps. Without a device the host reads every row at once.

    >>> ring = Ring(columns=2, length=2)
    >>> [ring.write([float(i), torch.tensor(2.0 * i)]) for i in range(3)]
    [False, True, False]
    >>> ring.known.tolist(), ring.all().tolist()
    ([[0.0, 0.0], [1.0, 2.0]], [[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])
    """

    def __init__(
        self, columns: int, length: int, device: torch.device | None = None, process_group: Any = None
    ) -> None:
        self.length, self._group = length, process_group
        self._host = np.zeros((length, columns))
        self._tensors: Tensor | None = None
        if device is not None:
            self._tensors = torch.zeros((length, columns), dtype=widest(device), device=device)
        self._filled = 0
        self._in_flight: tuple[Tensor, Any] | None = None
        """A block on its way to the host, and the CUDA event of its arrival, None where it is there at once."""
        self._done = np.empty((0, columns))
        self._count = 0

    @property
    def known(self) -> Floats:
        """All rows that have been handed over, as all ranks know them."""
        return self._done[: self._count]

    def all(self) -> Floats:
        """Every row that was written; those of unfinished blocks as this process knows them. Waits for the device."""
        parts = [self.known]
        if self._in_flight is not None:
            parts.append(_landed(*self._in_flight))
        if self._filled:
            parts.append(self._block().cpu().numpy()[: self._filled])
        return np.concatenate(parts)

    def write(self, values: Sequence[float | Tensor]) -> bool:
        """Add a row; True if a block was handed over, so that :attr:`known` has grown."""
        if self._tensors is None:
            self._host[self._filled] = [value.item() if isinstance(value, Tensor) else value for value in values]
        else:
            cells = self._tensors[self._filled].unbind()
            for column, value in enumerate(values):
                if isinstance(value, Tensor):
                    cells[column].copy_(value.detach().reshape(()), non_blocking=True)
                    self._host[self._filled, column] = 0.0
                else:
                    self._host[self._filled, column] = value
        self._filled += 1
        return self._filled == self.length and self._hand_over()

    def _block(self) -> Tensor:
        """The half that is being filled: what the host knows plus what the device knows (one of the two is 0)."""
        host = torch.from_numpy(self._host.copy())
        if self._tensors is None:
            return host
        if self._tensors.is_cuda:
            host = host.pin_memory()  # from other memory the copy would wait for the device
        return self._tensors + host.to(self._tensors, non_blocking=True)

    def _hand_over(self) -> bool:
        """Hand over the half that is full, averaged over the ranks; True if a block has arrived on the host."""
        block = self._block()
        self._filled = 0
        size = world_size(self._group)
        if size > 1:
            distributed.all_reduce(block, group=None if self._group == "auto" else self._group)
            block /= size
        if self._tensors is None:
            self._keep(block.numpy())
            return True
        self._tensors.zero_()
        previous, self._in_flight = self._in_flight, _take_off(block)
        if previous is not None:
            self._keep(_landed(*previous))
        return previous is not None

    def _keep(self, rows: Floats) -> None:
        need = self._count + len(rows)
        if need > len(self._done):
            grown = np.empty((max(need, 2 * len(self._done)), rows.shape[1]))
            grown[: self._count] = self.known
            self._done = grown
        self._done[self._count : need] = rows
        self._count = need


def world_size(group: Any) -> int:
    """Ranks of a process group: ``"auto"`` is the default one if there is one, None is this process alone."""
    if group is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return distributed.get_world_size(None if group == "auto" else group)


def _take_off(block: Tensor) -> tuple[Tensor, Any]:
    """Start to copy a block to the host, and return the copy with the CUDA event of its arrival."""
    if block.device.type != "cuda":
        return block.cpu(), None
    target = torch.empty(block.shape, dtype=block.dtype, pin_memory=True)
    target.copy_(block, non_blocking=True)
    return target, torch.cuda.current_stream().record_event()


def _landed(block: Tensor, arrived: Any) -> Floats:
    """The numbers of a block, once it has arrived."""
    if arrived is not None:
        arrived.synchronize()
    return np.asarray(block.to(torch.float64).numpy())
