"""What a search asks of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Progress(NamedTuple):
    """What a run tells about the steps that it has just taken, one entry a step."""

    losses: Sequence[float] | Floats
    """f(x_t, s_t), the batch losses."""
    deltas: Sequence[float] | Floats
    """The stability indices δ_t."""


@runtime_checkable
class Run(Protocol):
    """A training run that can be advanced, put aside, and taken up again.

    A run may have more, which the search uses where it is there:

    * ``evaluate()``: the loss that counts, say over all the data, at the current point (decides among finished runs);
    * ``distance()``: ‖x_t − x_1‖ at the current point (for ``bias="pool"``);
    * ``certifies``: False if its δ_t may not stand in a bound (momentum, another metric, a foreign optimizer).
    """

    def advance(self, k: int) -> Progress:
        """Take k steps; fewer only if the last of them was not finite."""

    def state_dict(self) -> Any:
        """All that is needed to go on from here: arrays, tensors, numbers and strings in dicts and lists."""

    def load_state_dict(self, state: Any) -> None:
        """Go on from a state."""


class RunFactory(Protocol):
    """Makes the run of a rate and a data order; the start is the same for all, and a seed means the same batches.

    A factory may have more, which the search uses where it is there:

    * ``schedule``: the factors η_t of the rates, one a step, if they are not constant;
    * ``envelope(parameters)``: the Moreau envelopes of the full loss at x_1 (for ``bias="envelope"``);
    * ``advance_together(runs, k)``: advances several runs at once, and returns their progress in this order;
    * ``fingerprint()``: a text that changes whenever the numbers of the runs do (guards a store).
    """

    def __call__(self, lr: float, seed: int) -> Run:
        """The run, before its first step."""


class SearchError(RuntimeError):
    """A search cannot go on."""


class RunError(SearchError):
    """A run raised; the message says which one and where, the cause is its own error."""


class NoRateWorks(SearchError):
    """No candidate ended with a finite loss (or bound); the message says how each of them ended."""
