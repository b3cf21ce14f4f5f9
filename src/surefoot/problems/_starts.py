"""Models that all start from the same point, and share nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.nn import Module


class Starts:
    """Gives a new model for every run: a copy of what a factory gives once, after the random numbers were seeded.

    No run trains the weights of another, also where the factory gives the same layers at every call.

    Args:
        factory: Gives a model.
        seed: Of torch's random numbers, and of those of NumPy and Python.
    """

    def __init__(self, factory: Callable[[], Module], seed: int) -> None:
        self.factory, self.seed = factory, seed
        self._first: Module | None = None

    def __call__(self) -> Module:
        """A new model with the initial parameters."""
        import torch

        from surefoot.problems._inputs import seeded

        if self._first is None:
            with seeded(self.seed), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                torch.manual_seed(self.seed)
                model = copy.deepcopy(self.factory())
            if not isinstance(model, torch.nn.Module):
                raise TypeError(f"model_factory must give a torch.nn.Module, got {model!r}")
            if not any(p.requires_grad for p in model.parameters()):
                raise ValueError("model_factory must give a model with parameters to train, got one without")
            self._first = model
        return copy.deepcopy(self._first)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the first model: another process makes its own."""
        return {**vars(self), "_first": None}
