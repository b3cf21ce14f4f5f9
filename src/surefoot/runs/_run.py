"""A training run that can be advanced, put aside, and taken up again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from surefoot.rules import Floats as Floats


class Progress(NamedTuple):
    """What a run tells about the steps that it has just taken, one entry per step."""

    losses: Sequence[float] | Floats
    """f(x_t, s_t), the batch losses."""
    deltas: Sequence[float] | Floats
    """The stability indices δ_t."""


class Run(ABC):
    """Base of all runs; one of your own defines :meth:`advance`, :meth:`state_dict` and :meth:`load_state_dict`.

    The base has no ``__init__`` and no attributes, so that all other names are free. A run is advanced wherever there
    is room, in this process or in another one: it must not rely on what other runs leave in memory.

    >>> class Descent(Run):
    ...     def __init__(self, lr, seed):
    ...         self.lr, self.x = lr, 1.0
    ...     def advance(self, k):
    ...         losses, deltas = [], []
    ...         for _ in range(k):
    ...             losses.append(0.5 * self.x**2)
    ...             deltas.append(0.5 * self.lr * self.x**2)
    ...             self.x -= self.lr * self.x
    ...         return Progress(losses, deltas)
    ...     def state_dict(self):
    ...         return {"x": self.x}
    ...     def load_state_dict(self, state):
    ...         self.x = state["x"]
    >>> from surefoot.search import tune
    >>> tune(Descent, [0.01, 0.1, 1.0], horizon=50).lr
    1.0
    """

    certifies: bool = True
    """Whether the indices may stand in a bound: False with momentum, another metric, or a foreign optimizer."""
    divides: bool = True
    """Whether k steps may be taken by several calls of :meth:`advance`: False where each call is costly by itself."""

    @abstractmethod
    def advance(self, k: int) -> Progress:
        """Take k steps; fewer only if the last of them was not finite."""

    @abstractmethod
    def state_dict(self) -> Any:
        """All that is needed to go on from here: arrays, tensors, numbers and strings in dicts and lists."""

    @abstractmethod
    def load_state_dict(self, state: Any) -> None:
        """Go on from a state."""

    def evaluate(self) -> float | None:
        """The loss that counts at the current point, say over all the data; None lets the batch losses decide."""
        return None

    def distance(self) -> float | None:
        """‖x_t − x_1‖ at the current point; None if it is not known."""
        return None

    def trace(self) -> Any:
        """What a study keeps of a run that has come to its end; None of any other."""
        return None


RunFactory = Callable[[float, int], Run]
"""``factory(lr, seed)`` makes the run of a rate and a seed, before its first step: the start is the same for all, and a
seed means the same batches. It may have more, which is used where it is there:

* ``schedule``: the factors η_t of the rates, one per step, if they are not constant;
* ``keeps_threads``: whether runs use all threads that torch has, not one, because they cannot stand side by side;
* ``workers()``: how many processes pay off;
* ``fingerprint()``: a text that changes whenever the numbers of the runs do (guards a store).
"""


class SearchError(RuntimeError):
    """A search cannot go on."""


class RunError(SearchError):
    """A run raised; the message says which one and where, and what its own error was."""

    result: Any = None
    """The result of a study with all other runs, where the worker process of a run has died."""
