"""Any torch training as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from surefoot.search._run import Floats, Progress
from surefoot.study._stepper import Stepper, certifies

_LOOK_EVERY = 16
"""Steps between two looks at whether the losses are finite, which on a GPU means to wait."""


class TorchRun:
    """A torch training as a run, and the factory of such runs.

    Without ``lr`` it is a factory: call it with a rate and a seed, as :func:`~surefoot.search.tune` does. Every run
    starts from the same parameters, and has random numbers of its own: runs that take turns do not disturb each other.

    The indices δ_t are those of a surefoot optimizer; ½α‖g‖² for plain ``torch.optim.SGD``; and for any other
    ½⟨g_t, x_t − x_{t+1}⟩, at least 0, which is a heuristic, so that there is no certificate then.

    Args:
        model_factory: Gives a new model; called with torch's random numbers seeded by ``model_seed``.
        data_factory: ``data_factory(seed)`` gives the batches, as an iterable that is gone through again and again. If
            it has ``state_dict`` and ``load_state_dict`` these are used to resume, otherwise batches are skipped.
        loss_fn: ``loss_fn(model, batch)`` gives the loss to differentiate.
        optimizer_factory: ``optimizer_factory(parameters, lr)`` gives the optimizer.
        schedule: Factors of the rate, one a step; constant by default.
        evaluate: ``evaluate(model)`` gives the loss that counts, say over the validation data; it decides among
            finished runs, and is called once for each of them.
        model_seed: Of the initial parameters.
        lr: The rate; None makes a factory.
        seed: Of the data order.

    >>> import surefoot.optim as sfo
    >>> inputs, targets = torch.eye(4), torch.arange(4.0)
    >>> recipe = TorchRun(
    ...     lambda: torch.nn.Linear(4, 1),
    ...     lambda seed: [(inputs, targets)],
    ...     lambda model, batch: (model(batch[0]).squeeze(-1) - batch[1]).square().mean(),
    ...     lambda parameters, lr: sfo.SGD(parameters, lr=lr),
    ... )
    >>> losses, deltas = recipe(lr=0.1, seed=0).advance(10)
    >>> bool(losses[-1] < losses[0])
    True
    """

    def __init__(
        self,
        model_factory: Callable[[], torch.nn.Module],
        data_factory: Callable[[int], Iterable[Any]],
        loss_fn: Callable[[torch.nn.Module, Any], Tensor],
        optimizer_factory: Callable[[Any, float], torch.optim.Optimizer],
        *,
        schedule: ArrayLike | None = None,
        evaluate: Callable[[torch.nn.Module], Any] | None = None,
        model_seed: int = 0,
        lr: float | None = None,
        seed: int = 0,
    ) -> None:
        for name, value in (
            ("model_factory", model_factory),
            ("data_factory", data_factory),
            ("loss_fn", loss_fn),
            ("optimizer_factory", optimizer_factory),
        ):
            if not callable(value):
                raise TypeError(f"{name} must be a function, got {value!r}")
        self._parts = (model_factory, data_factory, loss_fn, optimizer_factory)
        self._evaluate = evaluate
        self.schedule: Floats | None = None if schedule is None else np.asarray(schedule, float)
        self.model_seed, self.lr, self.seed = model_seed, lr, seed
        self._start: list[Tensor] = []
        """x_1, shared by all runs of a factory."""
        if evaluate is not None:
            self.evaluate = self._evaluated
        if lr is not None:
            self._begin()

    def __call__(self, lr: float, seed: int = 0) -> TorchRun:
        """A new run with this rate and data order."""
        run = type(self)(
            *self._parts,
            schedule=self.schedule,
            evaluate=self._evaluate,
            model_seed=self.model_seed,
            lr=lr,
            seed=seed,
        )
        if not self._start:
            self._start = run._start
        run._start = self._start
        return run

    def _begin(self) -> None:
        model_factory, data_factory, _, optimizer_factory = self._parts
        assert self.lr is not None
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self.model_seed)
            self.model = model_factory()
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError("model_factory must give a model with parameters to train, got one without")
        self._start = [p.detach().clone() for p in parameters]
        self.optimizer = optimizer_factory(parameters, self.lr)
        self._stepper = Stepper(self.model, self.optimizer, self.schedule, self.seed)
        self.step = 0
        self._data = data_factory(self.seed)
        self._batches: Iterator[Any] = iter(self._data)

    @property
    def certifies(self) -> bool:
        """Whether the indices may stand in a bound."""
        return certifies(self.optimizer)

    def advance(self, k: int) -> Progress:
        """Take k steps; fewer if the loss or the index was not finite."""
        losses: list[Tensor] = []
        deltas: list[Tensor] = []
        with self._stepper.training():
            for count in range(1, k + 1):
                batch = self._next_batch()
                reading = self._stepper.step(self.step, partial(self._loss, batch))
                self.step += 1
                losses.append(reading.loss)
                deltas.append(reading.delta.double())
                if (count % _LOOK_EVERY == 0 or count == k) and not bool(
                    torch.isfinite(torch.stack(losses[-_LOOK_EVERY:] + deltas[-_LOOK_EVERY:])).all()
                ):
                    break
        return Progress(torch.stack(losses).tolist(), torch.stack(deltas).tolist())

    def distance(self) -> float:
        """‖x_t − x_1‖."""
        return float(self._stepper.distance(self._start))

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, random numbers, and the place in the data."""
        state = {**self._stepper.state_dict(), "step": self.step}
        if hasattr(self._data, "state_dict"):
            state["data"] = self._data.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; the data are brought to the same place."""
        self._stepper.load_state_dict(state)
        self.step = int(state["step"])
        self._data = self._parts[1](self.seed)
        if hasattr(self._data, "load_state_dict"):
            self._data.load_state_dict(state["data"])
        self._batches = iter(self._data)
        if not hasattr(self._data, "load_state_dict"):
            for _ in range(self.step):
                self._next_batch()

    def _loss(self, batch: Any) -> Tensor:
        loss = self._parts[2](self.model, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError(f"loss_fn(model, batch) must return a tensor of one element, got {loss!r}")
        return loss

    def _next_batch(self) -> Any:
        for _ in range(2):
            try:
                return next(self._batches)
            except StopIteration:
                self._batches = iter(self._data)
        raise ValueError("data_factory(seed) must give an iterable of batches that can be gone through again, got none")

    def _evaluated(self) -> float:
        assert self._evaluate is not None
        self.model.eval()
        with torch.no_grad():
            return float(self._evaluate(self.model))
