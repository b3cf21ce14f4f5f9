"""Trainings of a framework's trainer as runs of a search: one model, which they take turns with."""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from surefoot._identity import digest
from surefoot.integrations._restore import random_states, rewrite, seed_source, set_random_states, sources
from surefoot.problems import seeded
from surefoot.search import Progress, Run

_INTERNALS = frozenset(vars(nn.Module())) - {"training"}
"""Attributes of a module that are torch's own, and no state of a training."""
_RATES = ("lr", "initial_lr", "max_lr", "min_lr", "cap")
"""What a parameter group holds that is proportional to the rate: also of ``OneCycleLR``, and of our ``Surefoot``."""
_SCHEDULED = ("base_lrs", "max_lrs", "_last_lr")
"""What a scheduler holds that is proportional to the rate."""
PEAKS = ("max_lr", "initial_lr", "lr")
"""What a parameter group may say about its rate at the peak of the schedule, the surest first."""

_END: Any = object()
"""What stands behind the last batch of an epoch."""


class Batches:
    """The batches of one training, epoch after epoch; random numbers depend on the seed and the batch only.

    It looks one batch ahead, and so knows the last one of an epoch (:attr:`done`). Lightning takes it for its fetcher.

    Args:
        loader: An iterable that begins anew whenever it is asked to.
        seed: Of the order.
        limit: The most batches of an epoch.
    """

    def __init__(self, loader: Any, seed: int, limit: float = math.inf) -> None:
        self.loader, self.seed = loader, seed
        self.limit = None if math.isinf(limit) else int(limit)
        self.given = 0
        """Batches given, of all epochs."""
        self.starts: list[int] = []
        """Batches given before each epoch."""
        self.done = True
        self._sources = sources(loader, *getattr(loader, "flattened", ()))

    def begin_epoch(self) -> None:
        """Go through the data again."""
        epoch = len(self.starts)
        self.starts.append(self.given)
        with self._seeded(epoch, 1):
            if hasattr(self.loader, "set_epoch"):
                self.loader.set_epoch(epoch)
            self._iterator = islice(iter(self.loader), self.limit)
        self._look_ahead()
        if self.done:
            raise ValueError(
                "the training data must have a batch in every epoch, got none"
                + (": an iterable that can be read only once cannot be searched with" if epoch else "")
            )

    def place(self) -> dict[str, Any]:
        """Where the stream stands."""
        return {"given": self.given, "starts": list(self.starts), "done": self.done}

    def go_to(self, place: dict[str, Any]) -> None:
        """Bring a new stream to a place; epochs may have ended before their last batch."""
        for start, end in pairwise([*place["starts"], place["given"]]):
            self.begin_epoch()
            for _ in range(end - start):
                next(self)
        self.done = place["done"]

    def _look_ahead(self) -> None:
        with self._seeded(self.given):
            self._next = next(self._iterator, _END)
        self.done = self._next is _END

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.done:
            raise StopIteration
        batch, self.given = self._next, self.given + 1
        self._look_ahead()
        return batch

    @contextmanager
    def _seeded(self, *numbers: int) -> Iterator[None]:
        with seeded(self.seed, *numbers):
            for source in self._sources:
                seed_source(source, int(np.random.SeedSequence((self.seed, *numbers)).generate_state(1)[0]))
            yield


class Training(Run):
    """One training; made by :class:`Trainings`."""

    certifies = False

    def __init__(self, trainings: Trainings, lr: float, seed: int) -> None:
        self._trainings, self.lr, self.seed = trainings, lr, seed
        self.batches = Batches(trainings.open_data(seed), seed, trainings.limit)
        self.step = 0
        self.waiting: dict[str, Any] | None = None
        """Its state while another one has the model; None before the first step, and while it has it."""

    def advance(self, k: int) -> Progress:
        """Take k steps of the optimizer; fewer if a loss was not finite."""
        losses: list[float] = []
        with self._trainings.given_to(self):
            while len(losses) < k and (not losses or math.isfinite(losses[-1])):
                losses.append(self._trainings.take_step(self))
                self.step += 1
        return Progress(losses, [0.0] * len(losses))

    def evaluate(self) -> float | None:
        """The metric that decides; None if the training loss does."""
        if self._trainings.metric is None:
            return None
        with self._trainings.given_to(self):
            metrics = self._trainings.evaluate()
        name = self._trainings.metric
        if name not in metrics:
            raise ValueError(f"evaluate must be one of {', '.join(sorted(metrics)) or 'no metrics'}, got {name!r}")
        return float(metrics[name])

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on."""
        state = self.waiting
        if state is None:
            with self._trainings.given_to(self):
                state = _copied(self._trainings.state())
        return {**state, "step": self.step, "place": self.batches.place()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; the batches before it are read again."""
        self.batches = Batches(self._trainings.open_data(self.seed), self.seed, self._trainings.limit)
        self.batches.go_to(state["place"])
        self.step = int(state["step"])
        self.waiting = {name: value for name, value in state.items() if name not in ("step", "place")}


class Trainings(ABC):
    """Makes the trainings of a trainer: the factory for :func:`~surefoot.search.tune`.

    A subclass tells how the framework takes a step. All trainings begin with what the model, the optimizer and the
    schedulers hold when this is made.

    Args:
        module: The model.
        optimizer: The bare torch optimizer.
        schedulers: Of torch, for this optimizer.
        scaler: The ``GradScaler`` of the trainer, or None.
        lr: The rate that the optimizer and the schedulers were made with, in the units of the rates that are searched;
            None stands for that of the first parameter group.
        metric: Name of what decides among finished trainings; the training loss without.
    """

    limit: float = math.inf
    """The most batches of an epoch."""
    keeps_threads = True
    """A training of the search is the trainer's own, bit for bit."""
    notes: tuple[str, ...] = ()
    """What the user should know about the answer."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        schedulers: Sequence[Any],
        scaler: Any,
        lr: float | None,
        metric: str | None,
    ) -> None:
        self.module, self.optimizer, self.schedulers = module, optimizer, schedulers
        self.scaler, self.metric = scaler, metric
        self.lr = rate_of(optimizer) if lr is None else lr
        self._start = _copied(self.state())
        self._owner: Training | None = None

    def __call__(self, lr: float, seed: int) -> Training:
        """A new training with this rate and data order."""
        return Training(self, lr, seed)

    @abstractmethod
    def open_data(self, seed: int) -> Any:
        """An iterable of batches."""

    @abstractmethod
    def take_step(self, training: Training) -> float:
        """Take one step of the optimizer, with as many batches as the trainer wants; its loss."""

    @abstractmethod
    def evaluate(self) -> Mapping[str, Any]:
        """The metrics at the present point, by name."""

    @abstractmethod
    def rates(self, horizon: int) -> list[float]:
        """The rate of every step, as the schedulers give it; called with everything at its start."""

    @abstractmethod
    def loop_state(self) -> dict[str, Any]:
        """Counters of the trainer."""

    @abstractmethod
    def load_loop_state(self, state: dict[str, Any]) -> None:
        """Put the counters back."""

    def check_data(self) -> None:
        """Refuse data that differ from reading to reading."""
        digests = []
        for _ in range(2):
            batches = Batches(self.open_data(0), 0)
            batches.begin_epoch()
            digests.append(digest(next(batches)))
        if digests[0] != digests[1]:
            raise ValueError(
                "the training data must give the same batches whenever they are read, got two first batches that "
                "differ. All rates are compared on the same batches: let the data set's __iter__ begin anew and seed "
                "what shuffles it, or give a data set with a length and items by number"
            )

    def factors(self, horizon: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The factors of the rate, one a step, which the search wants to know."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*lr_scheduler.step")  # before the optimizer's: no step is taken
            rates = self.rates(horizon)
        self._load(_copied(self._start))
        return np.array(rates) / self.lr

    def leave_out(self, scheduler: str) -> None:
        """Note that the trainings go without a scheduler of the trainer."""
        self.notes = (f"{scheduler} was left out: the rate was found without it.",)

    # ---- whose turn it is

    @contextmanager
    def given_to(self, training: Training) -> Iterator[None]:
        """Give a training the model, the optimizer, the random numbers and the trainer's counters."""
        if self._owner is not training:
            if self._owner is not None:
                self._owner.waiting = self.state()
            self._owner = training
            if training.waiting is not None:
                self._load(training.waiting)
            else:
                self._load(_copied(self._start))
                with seeded(training.seed):
                    states = random_states()
                set_random_states(states)
                scale_rates(self.optimizer, self.schedulers, training.lr / self.lr)
            training.waiting = None
        yield

    def state(self) -> dict[str, Any]:
        """All that a training changes; tensors of the optimizer are not copied, those of the model are.

        Attributes of the model are numbers, strings and tensors of its parts, such as counters and their modes.
        """
        parameters, buffers = self.module.named_parameters(), self.module.named_buffers()
        return {
            "tensors": {name: tensor.detach().clone() for name, tensor in chain(parameters, buffers)},
            "attributes": {
                path: {k: _copied(v) for k, v in vars(part).items() if k not in _INTERNALS and _is_plain(v)}
                for path, part in self.module.named_modules()
            },
            "optimizer": self.optimizer.state_dict(),
            "schedulers": [copy.deepcopy(scheduler.state_dict()) for scheduler in self.schedulers],
            "random": random_states(),
            "scaler": {} if self.scaler is None else dict(self.scaler.state_dict()),
            "loop": self.loop_state(),
        }

    @torch.no_grad()
    def _load(self, state: dict[str, Any]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        parts = dict(self.module.named_modules())
        for name, tensor in state["tensors"].items():
            path, _, leaf = name.rpartition(".")
            live = getattr(parts[path], leaf)
            if isinstance(live, Tensor) and live.shape == tensor.shape and live.dtype == tensor.dtype:
                rewrite(live.data, tensor)
            else:
                parts[path]._buffers[leaf] = tensor.clone()
        for path, values in state["attributes"].items():
            parts[path].__dict__.update(_copied(values))
        _load_optimizer(self.optimizer, state["optimizer"])
        for scheduler, content in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(copy.deepcopy(content))
        set_random_states(state["random"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.load_loop_state(state["loop"])


def stacked(losses: Sequence[Tensor]) -> Tensor:
    """Losses of micro batches in one vector."""
    return torch.stack([loss.double().reshape(()) for loss in losses])


def rate_of(optimizer: Optimizer) -> float:
    """The rate of the first parameter group at the peak of its schedule, as far as the group tells."""
    group = next(iter(optimizer.param_groups), {})
    rate = next((group[name] for name in PEAKS if name in group), None)
    if rate is None or not 0 < float(rate) < math.inf:
        raise ValueError(
            f"the optimizer must have a learning rate above 0 in its first parameter group, which is scaled to the "
            f"rates that are tried; {type(optimizer).__name__} has lr={rate!r}"
        )
    return float(rate)


def scale_rates(optimizer: Optimizer, schedulers: Sequence[Any], ratio: float) -> None:
    """Multiply the rates of all groups and schedulers."""
    for group in optimizer.param_groups:
        for name in _RATES:
            if name in group:
                group[name] = group[name] * ratio
    waiting = list(schedulers)
    while waiting:
        scheduler = waiting.pop()
        waiting.extend(getattr(scheduler, "_schedulers", ()))  # of SequentialLR and ChainedScheduler
        for name in _SCHEDULED:
            if isinstance(values := getattr(scheduler, name, None), list):
                setattr(scheduler, name, [value * ratio for value in values])


def _load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Give an optimizer its state back. Torch's own way of loading would round it to the parameters' type."""
    if type(optimizer).load_state_dict is not Optimizer.load_state_dict:
        optimizer.load_state_dict(state)
        return
    params = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for key, content in state["state"].items():  # by the parameters' numbers, or a word for what belongs to all
        optimizer.state[params[key] if isinstance(key, int) else key] = content
    for group, content in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update({**content, "params": group["params"]})


def _is_plain(value: Any) -> bool:
    """Whether a value is made of numbers, strings and tensors, in lists and dicts: those can go to a file."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values())) and all(map(_is_plain, value))
    return type(value) in (int, float, bool, str, type(None), Tensor)


def _copied(value: Any) -> Any:
    """Copies of everything; tensors are cut off from what they were computed from."""
    return tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else copy.deepcopy(leaf), value)
