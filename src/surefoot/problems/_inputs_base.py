"""What gives a network its batches.

This module imports torch; nothing that convex studies import may import it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from surefoot.problems._problem import Rows


@runtime_checkable
class Inputs(Protocol):
    """Rows of data that become batches of tensors: what a network problem trains and evaluates on.

    Anything with these members will do. `ImageInputs`, `TensorInputs`, `DatasetInputs` and `CharacterInputs` have them.
    """

    device: torch.device
    """Where the batches are."""

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def batch(self, rows: Rows, *, seed: int | None) -> tuple[Any, Any]:
        """The inputs and the targets of some rows, on ``device``.

        Args:
            rows: Row numbers of shape (batch size,).
            seed: Determines all that is random in the batch, alone; None for evaluation: nothing is random.
        """
        ...

    def fingerprint(self) -> str:
        """SHA-256 (hex) of all that determines the batches."""
        ...

    def to(self, device: torch.device | str) -> Self:
        """The same with batches on another device."""
        ...


class PlacedInputs:
    """What the inputs of this package share: a device, and tensors that move there."""

    device: torch.device

    def to(self, device: torch.device | str) -> Self:
        """The same with batches on another device."""
        other = copy.copy(self)
        other._place(device)
        return other

    def _place(self, device: torch.device | str) -> None:
        """Set the device, and bring there the tensors that a batch is made with."""
        self.device = torch.device(device)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(self.device))


def digest(*parts: Any) -> str:
    """SHA-256 (hex) of some JSON-able parts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
