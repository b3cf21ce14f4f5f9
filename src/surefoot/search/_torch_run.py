"""Any torch training as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from surefoot.optim import Estimate, Euclidean, ModelBased
from surefoot.search._run import Floats, Progress

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
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self.model_seed)
            self.model = model_factory()
            torch.manual_seed(self.seed)
            self._random = _random_states()
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        if not self._parameters:
            raise ValueError("model_factory must give a model with parameters to train, got one without")
        self._start = [p.detach().cpu().clone() for p in self._parameters]
        assert self.lr is not None
        self.optimizer = optimizer_factory(self._parameters, self.lr)
        self._lrs = [group["lr"] for group in self.optimizer.param_groups]
        self.step = 0
        self._data = data_factory(self.seed)
        self._batches: Iterator[Any] = iter(self._data)

    @property
    def certifies(self) -> bool:
        """Whether the indices may stand in a bound: Euclidean steps without averaging, clipping and weight decay."""
        optimizer = self.optimizer
        if any(group.get("weight_decay") for group in optimizer.param_groups):
            return False
        if isinstance(optimizer, ModelBased):
            chosen = optimizer._settings
            plain = chosen.averaging is None and isinstance(chosen.geometry, Euclidean)
            return plain and chosen.max_grad_norm is None and not isinstance(chosen.lower_bound, Estimate)
        return _is_plain_sgd(optimizer)

    def advance(self, k: int) -> Progress:
        """Take k steps; fewer if the loss or the index was not finite."""
        losses: list[Tensor] = []
        deltas: list[Tensor] = []
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            _set_random_states(self._random)
            self.model.train()
            for count in range(1, k + 1):
                loss, delta = self._step()
                losses.append(loss)
                deltas.append(delta)
                if (count % _LOOK_EVERY == 0 or count == k) and not bool(
                    torch.isfinite(torch.stack(losses[-_LOOK_EVERY:] + deltas[-_LOOK_EVERY:])).all()
                ):
                    break
            self._random = _random_states()
        return Progress(torch.stack(losses).tolist(), torch.stack(deltas).tolist())

    def distance(self) -> float:
        """‖x_t − x_1‖."""
        pairs = zip(self._parameters, self._start, strict=True)
        total = sum(float((p.detach() - s.to(p.device)).double().square().sum()) for p, s in pairs)
        return float(total**0.5)

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, random numbers, and the place in the data."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "random": self._random,
        }
        if hasattr(self._data, "state_dict"):
            state["data"] = self._data.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; the data are brought to the same place."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._random = state["random"]
        self.step = int(state["step"])
        self._data = self._parts[1](self.seed)
        if hasattr(self._data, "load_state_dict"):
            self._data.load_state_dict(state["data"])
        self._batches = iter(self._data)
        if not hasattr(self._data, "load_state_dict"):
            for _ in range(self.step):
                self._next_batch()

    def _step(self) -> tuple[Tensor, Tensor]:
        loss_fn = self._parts[2]
        if self.schedule is not None:
            for group, lr in zip(self.optimizer.param_groups, self._lrs, strict=True):
                group["lr"] = lr * float(self.schedule[self.step])
        batch = self._next_batch()
        self.optimizer.zero_grad()
        loss = loss_fn(self.model, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError(f"loss_fn(model, batch) must return a tensor of one element, got {loss!r}")
        loss.backward()  # type: ignore[no-untyped-call]
        if isinstance(self.optimizer, ModelBased):
            self.optimizer.step(loss=loss)
            delta = self.optimizer.last_step.delta
        else:
            delta = self._foreign_step()
        self.step += 1
        return loss.detach().double().reshape(()), delta.detach().double().reshape(())

    def _foreign_step(self) -> Tensor:
        """Step with an optimizer that is not ours, and its index."""
        moving = [p for p in self._parameters if p.grad is not None]
        if _is_plain_sgd(self.optimizer):
            groups = self.optimizer.param_groups
            parts = [0.5 * g["lr"] * p.grad.square().sum() for g in groups for p in g["params"] if p.grad is not None]
            self.optimizer.step()
            return torch.stack([torch.as_tensor(part) for part in parts]).sum()
        before = [p.detach().clone() for p in moving]
        gradients = [p.grad.clone() for p in moving if p.grad is not None]
        self.optimizer.step()
        with torch.no_grad():
            parts = [((b - p) * g).sum() for b, p, g in zip(before, moving, gradients, strict=True)]
            # The midpoint of the interval that holds the index of every convex model with this step.
            return (0.5 * torch.stack(parts).sum()).clamp_min(0.0)

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


def _is_plain_sgd(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer) is torch.optim.SGD and not any(
        group["momentum"] or group["weight_decay"] or group["maximize"] for group in optimizer.param_groups
    )


def _random_states() -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states + (torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])


def _set_random_states(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states[1:])
