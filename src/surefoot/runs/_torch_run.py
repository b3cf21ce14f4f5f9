"""Any torch training as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from surefoot._base import checks
from surefoot._identity import Identity, digest, identify, merged
from surefoot.optim import LossOptimizer
from surefoot.problems import Starts, seeded
from surefoot.runs._optimizers import optimizer_from
from surefoot.runs._run import LOOK_EVERY, Floats, Progress, Run
from surefoot.runs._stepper import Stepper, certifies
from surefoot.theory import schedules


class TorchRun(Run):
    """A torch training as a run, and the factory of such runs.

    Without ``lr`` it is a factory: call it with a rate and a seed, as :func:`~surefoot.search.tune` does. Every run
    starts from the same parameters, and has random numbers of its own: runs that take turns do not disturb each other.
    What the data draw from the global generators of torch, NumPy and Python is determined by the seed and the number of
    the batch, so that a run that was put aside goes on with the batches that it would have seen.

    The indices δ_t are those of a surefoot optimizer; ½α‖g‖² for plain ``torch.optim.SGD``; and for any other
    ½⟨g_t, x_t − x_{t+1}⟩, at least 0, which is a heuristic, so that there is no certificate then. Neither is there one
    with ``clip``, ``autocast``, hooks of the optimizer, or hooks that change gradients.

    Args:
        model_factory: Gives a new model; called with torch's random numbers seeded by ``model_seed``. If it gives the
            same model again, every run trains a copy.
        data_factory: ``data_factory(seed)`` gives the batches, as an iterable that is gone through again and again. If
            it has ``state_dict`` and ``load_state_dict`` these are used to resume, otherwise batches are skipped.
        loss_fn: ``loss_fn(model, batch)`` gives the loss to differentiate.
        optimizer_factory: ``optimizer_factory(parameters, lr)`` gives the optimizer; if its first argument is called
            ``model``, it gets the model instead, for groups of parameters.
        schedule: Factors of the rate, one a step, or a name such as ``"cosine"`` where the horizon is known, as in a
            search; constant by default.
        scheduler: ``scheduler(optimizer)`` gives a scheduler of torch in place of a schedule; its place is kept with
            the run. Where its rates are not multiples of ``lr`` known in advance, there is no certificate.
        evaluate: ``evaluate(model)`` gives the loss that counts, say over the validation data; it decides among
            finished runs, and is called once for each of them.
        clip: The largest norm of a gradient that is stepped with. Optimizers of surefoot take ``max_grad_norm``.
        accumulate: Batches of a step; its loss is their mean.
        autocast: ``"bfloat16"`` or ``"float16"``: forward passes in mixed precision, the latter with scaled losses.
        model_seed: Of the initial parameters.
        version: A word of yours for what cannot be identified, such as a file that your code reads: a store is used
            again only under the same word.
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
        schedule: str | ArrayLike | None = None,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        evaluate: Callable[[torch.nn.Module], Any] | None = None,
        clip: float | None = None,
        accumulate: int = 1,
        autocast: str | None = None,
        model_seed: int = 0,
        version: str | None = None,
        lr: float | None = None,
        seed: int = 0,
    ) -> None:
        for name, value in (
            ("model_factory", model_factory),
            ("data_factory", data_factory),
            ("loss_fn", loss_fn),
            ("optimizer_factory", optimizer_factory),
            *([] if scheduler is None else [("scheduler", scheduler)]),
        ):
            if not callable(value):
                raise TypeError(f"{name} must be a function, got {value!r}")
        if schedule is not None and scheduler is not None:
            raise ValueError("schedule and scheduler both set the rates: give one of them")
        if autocast not in (None, "bfloat16", "float16"):
            raise ValueError(f"autocast must be None, 'bfloat16' or 'float16', got {autocast!r}")
        starts = model_factory if isinstance(model_factory, Starts) else Starts(model_factory, model_seed)
        self._parts = (starts, data_factory, loss_fn, optimizer_factory)
        self._options: dict[str, Any] = {
            "schedule": schedule if schedule is None or isinstance(schedule, str) else np.asarray(schedule, float),
            "scheduler": scheduler,
            "evaluate": evaluate,
            "clip": None if clip is None else checks.number("clip", clip, positive=True),
            "accumulate": checks.whole("accumulate", accumulate, 1),
            "autocast": autocast,
            "model_seed": model_seed,
            "version": version,
        }
        self.version = version
        self._schedule = schedule if isinstance(schedule, str) else None
        """The name of the schedule, whose factors the horizon tells."""
        self.lr, self.seed = lr, seed
        self._start: list[Tensor] = []
        """x_1, shared by all runs of a factory."""
        self._knows_rates = True
        if lr is not None:
            self._begin()

    def __call__(self, lr: float, seed: int = 0) -> TorchRun:
        """A new run with this rate and data order."""
        run = type(self)(*self._parts, **self._options, lr=lr, seed=seed)
        if not self._start:
            self._check_data(seed)
            self._start = run._start
        run._start, run._knows_rates = self._start, self._knows_rates
        return run

    @property
    def schedule(self) -> Floats | None:
        """The factors of the rate; None if they are constant."""
        schedule: Any = self._options["schedule"]
        if isinstance(schedule, str):
            raise ValueError(f"schedule={schedule!r} needs the horizon: call factors(horizon) before, as a search does")
        return None if schedule is None else np.asarray(schedule)

    def identity(self) -> Identity:
        """What the numbers of the runs depend on: the model at its start, the code of all parts, the first batch."""
        model = self._parts[0]()
        start = identify(model)  # before an optimizer puts hooks on its parameters
        optimizer = _optimizer(self._parts[3], model, 1e-3)
        groups = [{name: value for name, value in g.items() if name != "params"} for g in optimizer.param_groups]
        first = _first_batch(self._data_of(0))
        return merged([start, *map(identify, self._parts[1:]), identify(self._options, type(optimizer), groups, first)])

    def factors(self, horizon: int) -> Floats | None:
        """The factors of the rate over a horizon; None if they are constant, or not known in advance."""
        scheduler = self._options["scheduler"]
        if scheduler is None:
            if self._schedule is not None:
                self._options["schedule"] = schedules.factors(self._schedule, horizon)[1]
            return self.schedule
        large, small = (_dry_run(scheduler, lr, horizon) for lr in (1.0, 0.25))
        self._knows_rates = large is not None and small is not None and bool(np.allclose(large, small, rtol=1e-6))
        return large if self._knows_rates else None

    def _begin(self) -> None:
        assert self.lr is not None
        options = self._options
        self.model = self._parts[0]()
        self._start = [p.detach().clone() for p in self.model.parameters() if p.requires_grad]
        self.optimizer = _optimizer(self._parts[3], self.model, self.lr)
        if options["clip"] is not None and isinstance(self.optimizer, LossOptimizer):
            raise ValueError("clip is for other optimizers: give those of surefoot max_grad_norm, which δ knows of")
        self._stepper = Stepper(
            self.model,
            self.optimizer,
            self.schedule,
            self.seed,
            scheduler=None if options["scheduler"] is None else options["scheduler"](self.optimizer),
            clip=options["clip"],
            accumulate=options["accumulate"],
            autocast=options["autocast"],
        )
        self.step = 0
        self._load_data(0)

    @property
    def certifies(self) -> bool:  # type: ignore[override]
        """Whether the indices may stand in a bound."""
        bent = self._options["clip"] is not None or self._options["autocast"] is not None
        return self._knows_rates and not bent and certifies(self.optimizer, self.model)

    def advance(self, k: int) -> Progress:
        """Take k steps; fewer if the loss or the index was not finite."""
        losses: list[Tensor] = []
        deltas: list[Tensor] = []
        with self._stepper.training():
            for count in range(1, k + 1):
                reading = self._stepper.step(self.step, self._loss)
                self.step += 1
                losses.append(reading.loss)
                deltas.append(reading.delta.double())
                if (count % LOOK_EVERY == 0 or count == k) and not bool(
                    torch.isfinite(torch.stack(losses[-LOOK_EVERY:] + deltas[-LOOK_EVERY:])).all()
                ):
                    break
        return Progress(torch.stack(losses).tolist(), torch.stack(deltas).tolist())

    def distance(self) -> float:
        """‖x_t − x_1‖."""
        return float(self._stepper.distance(self._start))

    def evaluate(self) -> float | None:
        """What ``evaluate(model)`` gives for the model as it is now; None without that function."""
        if self._options["evaluate"] is None:
            return None
        with self._stepper.evaluating() as model, torch.no_grad():
            model.eval()
            return float(self._options["evaluate"](model))

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, scheduler, random numbers, and the place in the data."""
        state = {**self._stepper.state_dict(), "step": self.step}
        if hasattr(self._data, "state_dict"):
            state["data"] = self._data.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; the data are brought to the same place."""
        self._stepper.load_state_dict(state)
        self.step = int(state["step"])
        self._load_data(self.step * self._options["accumulate"], state.get("data"))

    def _loss(self) -> Tensor:
        loss = self._parts[2](self.model, self._next_batch())
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError(f"loss_fn(model, batch) must return a tensor of one element, got {loss!r}")
        return loss

    def _data_of(self, seed: int) -> Iterable[Any]:
        with seeded(seed):
            return self._parts[1](seed)

    def _load_data(self, place: int, state: Any = None) -> None:
        """Bring the data to a place: by their own state, or by going through the batches before."""
        self._data, self._fetched = self._data_of(self.seed), 0
        if state is not None and hasattr(self._data, "load_state_dict"):
            self._data.load_state_dict(state)
            self._fetched = place
        with seeded(self.seed, self._fetched):
            self._batches: Iterator[Any] = iter(self._data)
        while self._fetched < place:
            self._next_batch()

    def _next_batch(self) -> Any:
        with seeded(self.seed, self._fetched):
            self._fetched += 1
            for _ in range(2):
                try:
                    return next(self._batches)
                except StopIteration:
                    self._batches = iter(self._data)
        raise ValueError("data_factory(seed) must give an iterable of batches that can be gone through again, got none")

    def _check_data(self, seed: int) -> None:
        """Refuse data whose batches are others whenever they are asked for."""
        first, again = (_first_batch(self._data_of(seed)) for _ in range(2))
        if first != again:
            raise ValueError(
                f"data_factory({seed}) must give the same batches whenever it is called, got two first batches that "
                "differ: seed what shuffles them, as in DataLoader(…, generator=torch.Generator().manual_seed(seed)), "
                "and make it inside of the function"
            )


def _first_batch(data: Iterable[Any]) -> str:
    """A hash of the first batch of some data."""
    with seeded(0):
        return digest(next(iter(data), None))


def _optimizer(factory: Any, model: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    return optimizer_from(factory, [p for p in model.parameters() if p.requires_grad], lr, model, "optimizer_factory")


def _dry_run(scheduler: Callable[[torch.optim.Optimizer], Any], lr: float, horizon: int) -> Floats | None:
    """The factors that a scheduler gives to an optimizer with one group; None if it asks for more."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    factors: Floats = np.empty(horizon)
    try:
        attached = scheduler(optimizer)
        for step in range(horizon):
            factors[step] = optimizer.param_groups[0]["lr"] / lr
            optimizer.step()
            attached.step()
    except Exception:  # it wants losses, or several groups: its rates are those that the run finds
        return None
    return factors
