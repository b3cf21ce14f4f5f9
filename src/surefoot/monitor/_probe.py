"""A few forward passes on the straight line from the start of a run through where it is, and beyond."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.rules import Floats

MULTIPLES = (0.0, 0.5, 1.0, 2.0, 4.0, 10.0, 30.0, 100.0, 300.0)
"""Places on the line: 0 is the start, 1 where a run is after a tenth; one that goes straight on ends at 10."""
AHEAD = MULTIPLES.index(30.0)


@torch.no_grad()
def along(ways: Iterable[tuple[Tensor, Tensor]], batch_loss: Callable[[], Any], stretch: float = 1.0) -> Floats:
    """The losses at ``MULTIPLES`` of the way, ∞ where one is not finite. The parameters stay as they are.

    Args:
        ways: Parameters where they are, each with where it started.
        batch_loss: The loss where the parameters are.
        stretch: The way at a tenth of the run, over that so far.

    >>> x = torch.tensor([1.0])
    >>> along([(x, torch.tensor([0.0]))], lambda: (x - 4).square().sum())[:6].tolist()
    [16.0, 12.25, 9.0, 4.0, 0.0, 36.0]
    """
    pairs = [(p, start, p.clone()) for p, start in ways]
    losses = []
    try:
        for multiple in MULTIPLES:
            for p, start, here in pairs:
                p.copy_(torch.lerp(start, here, stretch * multiple))
            losses.append(float(batch_loss()))
    finally:
        for p, _, here in pairs:
            p.copy_(here)
    return np.array([loss if math.isfinite(loss) else math.inf for loss in losses])
