"""Runs of a study on a network, as a search wants them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from surefoot.problems import NetworkProblem
from surefoot.runs import Floats, Progress, Run
from surefoot.study import Method, Trace
from surefoot.study import Run as StudyRun
from surefoot.study._network_run import NetworkRun
from surefoot.study._optimizers import build
from surefoot.study._runs import Settings
from surefoot.study._stepper import certifies

_LOOK_EVERY = 16
"""Steps between two looks at whether the numbers are finite, which on a GPU means to wait."""


class SearchedNetwork(Run):
    """A run of a study on a network; its numbers are those of the study's run to the last bit.

    Args:
        training: The run, before its first step.
    """

    def __init__(self, training: NetworkRun) -> None:
        self._training = training

    @property
    def model(self) -> Any:
        """The network as it is now."""
        return self._training.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Its optimizer."""
        return self._training.optimizer

    @property
    def step(self) -> int:
        """Steps taken."""
        return self._training.step

    @property
    def certifies(self) -> bool:  # type: ignore[override]
        """Whether the indices may stand in a bound."""
        return certifies(self.optimizer, self.model)

    def advance(self, k: int) -> Progress:
        """Take k steps; fewer if one was not finite."""
        training, begin = self._training, self.step
        while self.step < begin + k and training.diverged_at(begin) < 0:
            training.advance(min(_LOOK_EVERY, begin + k - self.step))
        numbers = training.numbers()
        losses, deltas = numbers["loss"][begin:].copy(), numbers["delta"][begin:]
        ended = training.diverged_at(begin)
        if ended >= 0:  # as in a study: where loss, gradient or point is not finite
            losses[ended - begin :] = np.inf
        return Progress(losses, deltas)

    def distance(self) -> float:
        """‖x_t − x_1‖."""
        return self._training.distance()

    def evaluate(self) -> float:
        """The full loss before the last step, which is what the last-iterate bound speaks of."""
        return self._training.last_loss

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on."""
        return self._training.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._training.load_state_dict(state)

    def trace(self) -> Trace | None:
        """What a study keeps of a run that has come to its end; None if it has not."""
        training = self._training
        ended = training.diverged_at()
        return training.trace(ended) if ended >= 0 or self.step == training.settings.steps else None


class NetworkRuns:
    """The factory of the runs of a method.

    Args:
        problem: The network.
        method: How it is trained.
        settings: What the runs of the study share.
    """

    def __init__(self, problem: NetworkProblem, method: Method, settings: Settings) -> None:
        self._problem, self._method, self._settings = problem, method, settings
        self.schedule: Floats = settings.schedule
        model = problem.model()
        self.certifies = certifies(build(method, list(model.parameters()), 1e-3, model), model)

    def __call__(self, lr: float, seed: int) -> SearchedNetwork:
        """A new run with this rate and data order."""
        return SearchedNetwork(NetworkRun(self._problem, StudyRun(self._method, lr, seed), self._settings))
