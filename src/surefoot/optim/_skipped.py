"""Steps that are skipped: an error if one was asked for, and a warning if a run trains nothing."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, NoReturn

import torch

from surefoot.optim._arithmetic import Arithmetic, Scalar

if TYPE_CHECKING:
    from surefoot.optim._step import Outcome

_FIRST = 5
"""So many skipped steps at the start are worth a warning."""
_IN_A_ROW = 20
"""So many skipped steps in a row are worth a warning anywhere else."""
_LOOK_EVERY = 1000
"""On a device the counters are read after the first steps and then every so many steps, because reading waits."""


def raise_if_bad(outcome: Outcome, loss: Scalar, firm: Scalar | None) -> None:
    """With ``on_nonfinite="raise"``: say what was wrong with a step. On a device this waits for the values."""
    if not bool(outcome.finite):
        raise_not_finite(loss)
    if bool(outcome.violated) and firm is not None:
        raise ValueError(f"the loss {float(loss)} is below lower_bound {float(firm)}; the parameters are unchanged")


def raise_not_finite(loss: Scalar) -> NoReturn:
    """Say which of loss and gradient is not finite."""
    what = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {float(loss)}"
    raise ValueError(f"{what}; the parameters are unchanged")


class SkippedSteps:
    """Counts steps that were skipped in a row, and warns once."""

    def __init__(self) -> None:
        self._steps = self._in_a_row = 0
        self._taken = 0.0
        self._idle = 0
        self._warned = False

    def look_at_nothing(self, name: str) -> None:
        """Look at a step in which no parameter had a gradient."""
        if torch.compiler.is_compiling():
            return
        self._idle += 1
        if self._idle == _FIRST:
            warnings.warn(
                f"{name} has taken {_FIRST} steps in which no parameter had a gradient, and moved none of them: call "
                "loss.backward() before step(), and zero_grad() before that",
                stacklevel=4,
            )

    def look(self, ops: Arithmetic, name: str, outcome: Outcome, loss: Scalar, firm: Scalar | None) -> None:
        """Look at a step; ``firm`` is the number below which its loss was not allowed to be."""
        if self._warned or torch.compiler.is_compiling():
            return
        self._steps += 1
        if ops.reads:
            taken = outcome.finite and not (outcome.violated and firm is not None)
            self._in_a_row = 0 if taken else self._in_a_row + 1
        elif self._steps == _FIRST or self._steps % _LOOK_EVERY == 0:
            taken = float(outcome.noted["count"])
            self._in_a_row, self._taken = 0 if taken > self._taken else _IN_A_ROW, taken
        if self._in_a_row < _IN_A_ROW and not self._in_a_row == self._steps == _FIRST:
            return
        self._warned = True
        if bool(outcome.finite) and firm is not None:
            why = (
                f"the loss, {float(loss):g}, is below lower_bound={float(firm):g}. Give a lower_bound that no loss is "
                'below, or lower_bound="level", which needs none'
            )
        else:
            why = "the loss or its gradient is not finite. The training has diverged, or the data are broken"
        when = "its first" if self._steps == _FIRST else "many"
        warnings.warn(f"{name} has skipped {when} steps in a row: {why}", stacklevel=4)
