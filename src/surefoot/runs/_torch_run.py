"""Any torch training as a run, by itself or as a run of a study."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from surefoot._base.processes import cores
from surefoot._base.randomness import global_random
from surefoot._identity import Identity, digest, identify, merged
from surefoot.optim import LossOptimizer
from surefoot.problems import NetworkProblem, Starts, seeded
from surefoot.rules import History, first_stop
from surefoot.runs._methods import Method, build, optimizer_from
from surefoot.runs._row_orders import row_orders
from surefoot.runs._run import Floats, Progress, Run
from surefoot.runs._steps import certifies, difference, foreign_step, norm_sq
from surefoot.runs._types import TRACED, Key, Settings, Trace, closed
from surefoot.theory import schedules

_LOOK_EVERY = 16
"""Steps between two looks at whether the numbers are finite, which on a GPU means to wait."""


class TorchRun(Run):
    """A torch training as a run, and the factory of such runs.

    Without ``lr`` it is a factory: call it with a rate and a seed, as :func:`~surefoot.search.tune` does. Every run
    starts from the same parameters, and has random numbers of its own: runs that take turns do not disturb each other.
    What the data draw from the global generators of torch, NumPy and Python is determined by the seed and the number of
    the batch, so that a run that was put aside goes on with the batches that it would have seen.

    The indices δ_t are those of a surefoot optimizer; ½α‖g‖² for plain ``torch.optim.SGD``; and for any other
    ½⟨g_t, x_t − x_{t+1}⟩, at least 0, which is a heuristic.

    Args:
        model_factory: Gives a new model; called with torch's random numbers seeded by ``model_seed``. If it gives the
            same model again, every run trains a copy.
        data_factory: ``data_factory(seed)`` gives the batches, as an iterable that is gone through again and again. If
            it has ``state_dict`` and ``load_state_dict`` these are used to resume, otherwise batches are skipped.
        loss_fn: ``loss_fn(model, batch)`` gives the loss to differentiate; mixed precision is for it to choose, with
            ``torch.autocast``.
        optimizer_factory: ``optimizer_factory(parameters, lr)`` gives the optimizer; if its first argument is called
            ``model``, it gets the model instead, for groups of parameters.
        schedule: Factors of the rate, one per step, or a name such as ``"cosine"`` where the horizon is known, as in a
            search; constant by default.
        evaluate: ``evaluate(model)`` gives the loss that counts, say over the validation data; it decides among
            finished runs, and is called once for each of them.
        model_seed: Of the initial parameters.
        version: A word of yours for what cannot be identified, such as a file that your code reads: a store is used
            again only under the same word.
        lr: The rate; None makes a factory.
        seed: Of the batches' order.

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
        evaluate: Callable[[torch.nn.Module], Any] | None = None,
        model_seed: int = 0,
        version: str | None = None,
        lr: float | None = None,
        seed: int = 0,
    ) -> None:
        parts = {
            "model_factory": model_factory,
            "data_factory": data_factory,
            "loss_fn": loss_fn,
            "optimizer_factory": optimizer_factory,
        }
        for name, value in parts.items():
            if not callable(value):
                raise TypeError(f"{name} must be a function, got {value!r}")
        starts = model_factory if isinstance(model_factory, Starts) else Starts(model_factory, model_seed)
        self._parts = (starts, data_factory, loss_fn, optimizer_factory)
        self._evaluate, self.version = evaluate, version
        self._schedule = schedule if schedule is None or isinstance(schedule, str) else np.asarray(schedule, float)
        self._factors: Floats | None = None if isinstance(self._schedule, str) else self._schedule
        self.lr: Any = lr
        self.seed = seed
        self._start: list[Tensor] = []
        """x_1, shared by all runs of a factory."""
        self._study: tuple[NetworkProblem, Method, Settings] | None = None
        if lr is not None:
            self._begin()

    @classmethod
    def of_study(cls, problem: NetworkProblem, method: Method, settings: Settings) -> TorchRun:
        """The factory of a study's runs: the problem gives batches and evaluations, and runs tell what a study keeps.

        The rows of a step and their augmentation are functions of the seed and the number of the step.
        """
        build(method, list((model := problem.model()).parameters()), 1e-3, model)  # a bad one is refused right away
        batches = partial(_batches, problem.n_rows, settings)
        optimizer = partial(_optimizer_of_method, method)
        factory = cls(problem.model, batches, partial(_batch_loss, problem), optimizer, schedule=settings.schedule)
        factory._study = problem, method, settings
        return factory

    def __call__(self, lr: float, seed: int = 0) -> TorchRun:
        """A new run with this rate and order of the batches."""
        if self._study is not None and self._study[0].device == "cuda":
            _take_gpu()
        run = copy(self)
        run.lr, run.seed = lr, seed
        run._begin()
        if not self._start:
            if self._study is None:
                self._check_data(seed)
            self._start = run._start
        run._start = self._start
        return run

    @property
    def key(self) -> Key:
        """Method, rate and seed of a study's run."""
        return Key("" if self._study is None else self._study[1].name, float(self.lr), self.seed)

    @property
    def schedule(self) -> Floats | None:
        """The factors of the rate; None if they are constant."""
        if self._factors is None and self._schedule is not None:
            raise ValueError(f"schedule={self._schedule!r} needs the horizon: call factors(horizon) before")
        return self._factors

    def identity(self) -> Identity:
        """What the numbers of the runs depend on: the model at its start, the code of all parts, the first batch."""
        model = self._parts[0]()
        start = identify(model)  # before an optimizer puts hooks on its parameters
        optimizer = _optimizer(self._parts[3], model, 1e-3)
        groups = [{name: value for name, value in g.items() if name != "params"} for g in optimizer.param_groups]
        options = self._schedule, self._evaluate, self.version
        code = [identify(part) for part in (*self._parts[1:], options)]
        return merged([start, *code, identify(type(optimizer), groups, _first_batch(self._data_of(0)))])

    def factors(self, horizon: int) -> Floats | None:
        """The factors of the rate over a horizon; None if they are constant."""
        if isinstance(self._schedule, str):
            self._factors = schedules.factors(self._schedule, horizon)[1]
        return self._factors

    def workers(self) -> int:
        """How many processes pay off: one per core, or per GPU."""
        problem = None if self._study is None else self._study[0]
        if problem is not None and problem.device.startswith("cuda"):
            return torch.cuda.device_count() if problem.device == "cuda" else 1
        return cores() if problem is None else max(1, cores() // problem.threads)

    def fingerprint(self) -> str:
        """What the numbers of the runs depend on, as text."""
        return self.identity().digest if self._study is None else self._study[0].fingerprint()

    def _begin(self) -> None:
        """Make the model, its optimizer, and random numbers that are the run's own."""
        self.model: Any = self._parts[0]()
        self._parameters: list[Tensor] = [p for p in self.model.parameters() if p.requires_grad]
        self._start = [p.detach().clone() for p in self._parameters]
        self.optimizer = _optimizer(self._parts[3], self.model, self.lr)
        self._lrs, self._rates = [group["lr"] for group in self.optimizer.param_groups], self.schedule
        self._gpus = sorted({p.device.index for p in self._parameters if p.device.type == "cuda"})
        _switch(self.optimizer, "train")
        with global_random, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self.seed)
            self._random = self._random_states()
        self.step = 0
        self._load_data(0)
        if self._study is not None:
            settings = self._study[2]
            self._kept: Floats = np.full((len(TRACED), settings.steps), np.inf)
            self._epochs: list[list[float]] = [[], []]
            self._last_loss = np.inf
            self._trace: Trace | None = None

    @property
    def certifies(self) -> bool:  # type: ignore[override]
        """Whether the indices may stand in a bound."""
        return certifies(self.optimizer)

    def advance(self, k: int) -> Progress:
        """Take k steps; fewer if one was not finite, or a stop rule of the study has ended the run."""
        end, blocks, is_over = self.step + k, [], False
        problem, per_epoch = None, k
        if self._study is not None:
            problem, _, settings = self._study
            per_epoch = settings.steps_per_epoch
        with nullcontext() if problem is None else problem.one_run():
            if problem is not None and self.step == 0:
                self._measure(*problem.initial_losses)
            while self.step < end and not is_over:
                since = self.step
                until = min(end, since + _LOOK_EVERY, since + per_epoch - since % per_epoch)
                with self._training():
                    numbers = torch.stack([self._step() for _ in range(since, until)], dim=1)
                if problem is not None and self.step % per_epoch == 0:
                    with self._evaluating() as model:
                        valid = problem.validation_loss(model) if problem.n_valid else None
                        self._measure(problem.full_loss(model), valid)
                blocks.append(block := numbers.cpu().numpy())
                is_over = not np.isfinite(block[[0, 3]]).all() if problem is None else self._look(block)
        loss, _, _, delta, _ = np.concatenate(blocks, axis=1)
        return Progress(loss, delta)

    def _step(self) -> Tensor:
        """Take a step: its numbers, which stay on the device."""
        distance = torch.zeros((), dtype=torch.float64, device=self._parameters[0].device)
        if self._study is not None:
            problem, _, settings = self._study
            if self.step == settings.steps - 1:
                with self._evaluating() as model:
                    self._last_loss = problem.full_loss(model)
            if self.step % settings.every == 0:
                distance = self._distance()
        if self._rates is not None:
            for group, lr in zip(self.optimizer.param_groups, self._lrs, strict=True):
                group["lr"] = lr * float(self._rates[self.step])
        self.optimizer.zero_grad()
        loss = self._parts[2](self.model, self._next_batch())
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError(f"loss_fn(model, batch) must return a tensor of one element, got {loss!r}")
        loss.backward()  # type: ignore[no-untyped-call]
        loss = loss.detach()
        value = loss.double().reshape(())
        numbers = torch.stack([value, *self._moved(loss, value), distance])
        self.step += 1
        return numbers

    def _moved(self, loss: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Let the optimizer take its step, and return ‖g‖², size and index."""
        try:
            if isinstance(self.optimizer, LossOptimizer):
                self.optimizer.step(loss=loss)
                size, delta = self.optimizer.last_step
                return self.optimizer.last_grad_sq, size.max(), delta
            return foreign_step(self.optimizer, self._parameters)
        except RuntimeError as error:
            if "without overflow" not in str(error):
                raise
            return (torch.full_like(value, torch.inf),) * 3  # a rate that the parameters' numbers do not reach to

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Steps are taken inside of this context: in training mode, with the run's own random numbers."""
        with global_random, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            for state, gpu in zip(self._random, (None, *self._gpus), strict=True):
                torch.set_rng_state(state) if gpu is None else torch.cuda.set_rng_state(state, gpu)
            self.model.train()
            yield
            self._random = self._random_states()

    @contextmanager
    def _evaluating(self) -> Iterator[Any]:
        """The model at the point to evaluate, which is not where gradients are taken if the optimizer averages."""
        _switch(self.optimizer, "eval")
        try:
            yield self.model
        finally:
            _switch(self.optimizer, "train")

    def _random_states(self) -> list[Tensor]:
        """The states of the CPU and of the model's GPUs, whatever their numbers are when it is taken up again."""
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]

    @torch.no_grad()
    def _distance(self) -> Tensor:
        return norm_sq(difference(self._parameters, self._start)).sqrt()

    def distance(self) -> float:
        """‖x_t − x_1‖."""
        return float(self._distance())

    def evaluate(self) -> float | None:
        """What ``evaluate(model)`` gives for the model as it is now; None without that function.

        Of a study's run it is the full loss before the last step, which is what the last-iterate bound speaks of.
        """
        if self._study is not None:
            return self._last_loss
        if self._evaluate is None:
            return None
        with self._evaluating() as model, torch.no_grad():
            model.eval()
            return float(self._evaluate(model))

    def trace(self) -> Trace | None:
        """What a study keeps of a run that has come to its end; None of any other."""
        return None if self._study is None else self._trace

    def _measure(self, *losses: float | None) -> None:
        """Keep the full training and validation loss."""
        for kept, loss in zip(self._epochs, losses, strict=True):
            kept.extend([] if loss is None else [loss])

    def _look(self, block: Floats) -> bool:
        """Keep the numbers of the last steps; whether the run has diverged, was ended by a rule, or is at its end.

        Losses become ∞ where loss, gradient or point is not finite.
        """
        assert self._study is not None
        settings, since = self._study[2], self.step - block.shape[1]
        self._kept[:, since : self.step] = block
        is_last = self.step == settings.steps
        bad = ~np.isfinite(block[:2].sum(axis=0))
        diverged_at = since + int(bad.argmax()) if bad.any() else -1
        if is_last and diverged_at < 0 and not all(bool(torch.isfinite(p).all()) for p in self._parameters):
            diverged_at = self.step - 1  # the last step may have led to a point that is not finite
        end = self.step if diverged_at < 0 else diverged_at
        if settings.rules and end > since:
            loss, grad_sq, _, delta, _ = self._kept[:, : end : settings.every]
            delta, rates = np.where(np.isnan(delta), np.inf, delta), self.lr * settings.schedule
            judged = -(-since // settings.every)
            history = History(loss, grad_sq, delta, rates, settings.distance, settings.every, judged)
            if (stop := first_stop(settings.rules, history)) is not None:
                self._trace = self._closed(stopped_at=stop.step)
                return True
        if diverged_at >= 0:
            block[0, diverged_at - since :] = np.inf
        if is_last or diverged_at >= 0:
            self._trace = self._closed(diverged_at)
        return self._trace is not None

    def _closed(self, diverged_at: int = -1, stopped_at: int = -1) -> Trace:
        """What a study keeps of a run that ended at a step, or came to its end."""
        assert self._study is not None
        problem, method, settings = self._study
        end = diverged_at if diverged_at >= 0 else stopped_at + 1 if stopped_at >= 0 else settings.steps
        bound = -np.inf if method.lower_bound is None else method.lower_bound
        losses = np.full((2, 1, settings.epochs + 1), np.inf)
        for row, known in zip(losses, self._epochs, strict=True):
            row[0, : len(known)] = known
        valid = losses[1][:, : settings.epochs + 1 if problem.n_valid else 0]
        final = np.array([self._last_loss]), np.array([np.nan])  # an average of networks means nothing
        ends = np.array([diverged_at]), np.array([stopped_at]), np.array([(self._kept[0, :end] < bound).sum()])
        steps = self._kept[:, None, :: settings.every].copy()
        return closed(settings, [self.key], steps, losses[0], valid, *final, *ends)[0]

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, random numbers, the place in the data, and what a study keeps."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": list(self._random),
            "step": self.step,
        }
        if hasattr(self._data, "state_dict"):
            state["data"] = self._data.state_dict()
        if self._study is not None:
            state |= {"kept": self._kept[:, : self.step], "epochs": self._epochs, "last_loss": self._last_loss}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, bit for bit on the CPU; the data are brought to the same place."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._random = [tensor.cpu() for tensor in state["random"]]
        self.step = int(state["step"])
        self._load_data(self.step, state.get("data"))
        if self._study is not None:
            self._kept[:, : self.step] = state["kept"]
            self._epochs = [list(values) for values in state["epochs"]]
            self._last_loss = float(state["last_loss"])
            self._trace = self._closed() if self.step == self._study[2].steps else None

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
        # The batches of a study are functions of the seed, and draw nothing.
        with seeded(self.seed, self._fetched) if self._study is None else nullcontext():
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


def _optimizer_of_method(method: Method, model: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    return build(method, [p for p in model.parameters() if p.requires_grad], lr, model)


def _batches(n_rows: int, settings: Settings, seed: int) -> Iterator[tuple[Any, tuple[int, int]]]:
    """The rows of each step of a study's run, with what their augmentation depends on."""
    orders = row_orders(seed, n_rows, settings.batch_size, settings.sampling)
    for step, rows in enumerate(chain.from_iterable(orders)):
        yield rows, (seed, step)


def _batch_loss(problem: NetworkProblem, model: torch.nn.Module, batch: tuple[Any, tuple[int, int]]) -> Tensor:
    rows, place = batch
    return problem.batch_loss(model, rows, int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))


def _switch(optimizer: torch.optim.Optimizer, mode: str) -> None:
    """Call ``optimizer.train()`` or ``optimizer.eval()``, which schedule-free optimizers have."""
    getattr(optimizer, mode, lambda: None)()


def _take_gpu() -> None:
    """Let every worker process take one of several GPUs."""
    identity = multiprocessing.current_process()._identity
    if identity:  # else it is the main process
        torch.cuda.set_device((identity[0] - 1) % torch.cuda.device_count())
