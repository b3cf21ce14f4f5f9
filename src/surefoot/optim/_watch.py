"""A word about steps that are skipped one after the other: a run that trains nothing should not be silent."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import torch

from surefoot.optim._arithmetic import Arithmetic, Scalar

if TYPE_CHECKING:
    from surefoot.optim._step import Outcome

_FIRST = 5
"""So many skipped steps at the start are worth a word."""
_IN_A_ROW = 20
"""And so many anywhere else."""
_LOOK_EVERY = 1000
"""On a device the counters are read after the first steps and then every so many steps, because reading waits."""


def raise_if_bad(outcome: Outcome, loss: Scalar, firm: Scalar | None) -> None:
    """With ``on_nonfinite="raise"``: say what was wrong with a step. On a device this waits for the values."""
    if not bool(outcome.finite):
        what = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {float(loss)}"
        raise ValueError(f"{what}; the parameters are unchanged")
    if bool(outcome.violated) and firm is not None:
        raise ValueError(f"the loss {float(loss)} is below lower_bound {float(firm)}; the parameters are unchanged")


class Watch:
    """Counts steps that were skipped in a row, and warns once."""

    def __init__(self) -> None:
        self._steps = self._skipped = 0
        self._count: float | None = None
        self._done = False

    def look(self, ops: Arithmetic, name: str, outcome: Outcome, loss: Scalar, firm: Scalar | None) -> None:
        """Look at a step; ``firm`` is the number below which its loss was not allowed to be."""
        if self._done or torch.compiler.is_compiling():
            return
        self._steps += 1
        if not ops.reads:
            if self._steps != _FIRST and self._steps % _LOOK_EVERY:
                return
            count, before = float(outcome.noted["count"]), self._count or 0.0
            self._skipped = 0 if count > before else _IN_A_ROW
            self._count = count
        else:
            self._skipped = 0 if outcome.finite and not (outcome.violated and firm is not None) else self._skipped + 1
        if self._skipped >= _IN_A_ROW or self._skipped == self._steps == _FIRST:
            self._done = True
            self._warn(name, outcome, loss, firm)

    def _warn(self, name: str, outcome: Outcome, loss: Scalar, firm: Scalar | None) -> None:
        start = f"{name} has skipped {'its first' if self._steps == _FIRST else 'many'} steps in a row: "
        if bool(outcome.finite) and firm is not None:
            text = (
                f"the loss, {float(loss):g}, is below lower_bound={float(firm):g}. Give a lower_bound that no loss is "
                'below, or lower_bound="level", which needs none'
            )
        else:
            text = "the loss or its gradient is not finite. The training has diverged, or the data are broken"
        warnings.warn(start + text, stacklevel=5)
