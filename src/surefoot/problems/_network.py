"""Any torch model, data set and loss as a problem."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._base.arguments import whole
from surefoot._identity import Identity, identify, is_foreign, merged
from surefoot.problems._problem import Floats, Problem, Rows

if TYPE_CHECKING:
    from torch import Tensor, nn

    from surefoot.problems._inputs import Inputs

_AT_ONCE = 512
"""Rows at once where a loss over all rows is computed."""


class NetworkProblem(Problem):
    """Any torch model, data set and loss, for :class:`~surefoot.study.Study`, ``tune`` and the monitor.

    Every run starts from the same parameters, which ``model_factory`` draws after torch was seeded with ``model_seed``.
    Losses over all rows are taken in evaluation mode, without augmentation.

    Args:
        model_factory: Gives a new model. It goes to other processes, also as a lambda or a function of your script.
        dataset: The training rows: a pair (inputs, targets) of tensors or arrays, :class:`surefoot.data.Images`, a
            map-style ``torch.utils.data.Dataset`` of pairs, or anything with the methods of
            :class:`~surefoot.problems.Inputs`.
        loss: ``loss(outputs, targets)`` gives the mean loss of a batch, one number; cross entropy by default.
        validation: Rows that are only evaluated, as ``dataset``.
        name: What the problem is called.
        device: Where the runs train. With ``"cuda"`` there is one process a GPU.
        autocast: ``"bfloat16"`` runs forward and backward passes in mixed precision.
        channels_last: Keep images and convolutions in this memory layout, which is faster on most machines.
        model_seed: Of the initial parameters.
        threads: Threads of a run on the CPU. One, and a run a core, gives the most runs an hour.
        evaluated: Take the loss "over all training rows" over the first so many only: of 50,000 images 10,000 tell it
            to about a hundredth, and all of them cost a third of the time of a run.

    >>> import torch
    >>> inputs, targets = torch.eye(8), torch.arange(8) % 2
    >>> problem = NetworkProblem(lambda: torch.nn.Linear(8, 2), (inputs, targets))
    >>> problem.n_rows, problem.dimension
    (8, 18)
    """

    def __init__(
        self,
        model_factory: Callable[[], nn.Module],
        dataset: Any,
        loss: Callable[[Any, Any], Tensor] | None = None,
        *,
        validation: Any = None,
        name: str = "network",
        device: str = "cpu",
        autocast: str | None = None,
        channels_last: bool = False,
        model_seed: int = 0,
        threads: int = 1,
        evaluated: int | None = None,
    ) -> None:
        import torch

        from surefoot.problems._inputs import as_inputs

        before = set(vars(self))  # attributes of a class of yours
        self._loss = torch.nn.functional.cross_entropy if loss is None else loss
        for argument, value in (("model_factory", model_factory), ("loss", self._loss)):
            if not callable(value):
                raise TypeError(f"{argument} must be a function, got {value!r}")
        if autocast not in (None, "bfloat16"):
            raise ValueError(f"autocast must be None or 'bfloat16', got {autocast!r}")
        try:
            self.device = str(torch.device(device))
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"device must be a device of torch such as 'cpu' or 'cuda', got {device!r}") from error
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError(f"device must be one that is here, got {device!r} on a machine without CUDA")
        self.name, self._autocast, self._channels_last = name, autocast, channels_last
        self._model_seed, self.threads = whole("model_seed", model_seed, 0), whole("threads", threads, 1)
        self._starts = Starts(model_factory, model_seed)
        self._train: Inputs = as_inputs(dataset)
        # Images are normalised by the statistics of the training images.
        self._valid: Inputs | None = None if validation is None else as_inputs(validation, like=self._train)
        self.n_rows, self.n_valid = len(self._train), 0 if self._valid is None else len(self._valid)
        if self.n_rows < 1:
            raise ValueError("dataset must have at least one row, got none")
        self._evaluated = self.n_rows if evaluated is None else whole("evaluated", evaluated, 1)
        if self._evaluated > self.n_rows:
            raise ValueError(f"evaluated must be at most the {self.n_rows} training rows, got {evaluated}")
        self._described = {*vars(self), "_described"} - before

    @property
    def dimension(self) -> int:
        """The number of parameters that are trained."""
        return self._dimension_and_model[0]

    def identity(self) -> Identity:
        """What the numbers rest on: the model at its start, the loss and the data, with all code of yours in them."""
        code = [] if is_foreign(type(self)) else [identify(type(self), self._held())]
        return merged([self._dimension_and_model[1], self._loss_identity, *self._rows_identities, *code])

    def _held(self) -> dict[str, Any]:
        """The attributes that a class of yours adds; the others are told by :meth:`describe`."""
        return {name: value for name, value in super()._held().items() if name not in self._described}

    def describe(self) -> dict[str, Any]:
        """What the numbers depend on beside the data; the model and the loss as a hash of their code."""
        loss = getattr(self._loss, "__qualname__", type(self._loss).__qualname__)
        evaluated = {} if self._evaluated == self.n_rows else {"evaluated": self._evaluated}
        return {
            **evaluated,
            "model": self._dimension_and_model[1].digest,
            "loss": f"{loss}#{self._loss_identity.digest}",
            "rows": [self._train.fingerprint(), None if self._valid is None else self._valid.fingerprint()],
            "device": self.device.partition(":")[0],
            "autocast": self._autocast,
            "channels_last": self._channels_last,
            "model_seed": self._model_seed,
            "threads": self.threads,
        }

    def initial_point(self) -> Floats:
        """x₁: all parameters that are trained, one after the other."""
        parameters = [p.detach().cpu().double().reshape(-1) for p in self.model().parameters() if p.requires_grad]
        return np.concatenate([p.numpy() for p in parameters])

    def model(self) -> nn.Module:
        """A new model with the initial parameters, on the device."""
        import torch

        model = self._starts()
        if self._channels_last:
            return model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
        return model.to(self.device)

    def batch_loss(self, model: Any, rows: Rows, seed: int | None = None) -> Tensor:
        """The loss of a batch, to be differentiated; ``seed`` sets the augmentation, None leaves it out."""
        return self._loss_of(model, self._train.batch(rows, seed=seed))

    def full_loss(self, model: Any) -> float:
        """The loss over all training rows, or over those that are ``evaluated``."""
        return self._loss_over(model, self._train, self._evaluated)

    def validation_loss(self, model: Any) -> float:
        """The loss over all validation rows."""
        if self._valid is None:
            raise ValueError(f"{self.name} has no validation rows")
        return self._loss_over(model, self._valid, self.n_valid)

    @cached_property
    def initial_losses(self) -> tuple[float, float | None]:
        """Full training and validation loss at x₁, computed once in a process: they are the same for all runs."""
        with self.one_run():
            model = self.model()
            return self.full_loss(model), self.validation_loss(model) if self.n_valid else None

    @contextmanager
    def one_run(self) -> Iterator[None]:
        """What a run computes inside of this context depends on nothing but itself: the threads are those asked for."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @cached_property
    def _loss_identity(self) -> Identity:
        return identify(self._loss)

    @cached_property
    def _rows_identities(self) -> list[Identity]:
        """Identities of what makes the batches, where that is code of yours."""
        known = [inputs for inputs in (self._train, self._valid) if inputs is not None]
        own = [
            getattr(inputs, "identity", None if is_foreign(type(inputs)) else partial(identify, type(inputs)))
            for inputs in known
        ]
        return [identity() for identity in own if identity is not None]

    @cached_property
    def _dimension_and_model(self) -> tuple[int, Identity]:
        """The number of trained parameters and the model's identity. The model is tried on a row before work starts."""
        import torch

        model = self.model()
        dimension, identity = sum(p.numel() for p in model.parameters() if p.requires_grad), identify(model)
        model.eval()
        batch = self._train.batch(np.arange(min(2, self.n_rows)), seed=None)
        try:
            with torch.no_grad():
                self._loss_of(model, batch)
        except TypeError:
            raise  # ours, or one that names a function and its arguments
        except Exception as error:
            kind = type(error).__name__
            raise RuntimeError(f"{self.name}: model and loss fail on the first rows: {kind}: {error}") from error
        return dimension, identity

    def _loss_of(self, model: Any, batch: tuple[Any, Any]) -> Tensor:
        """The loss of a batch, which moves to the device."""
        import torch

        inputs, targets = _moved(batch, self.device)
        if self._channels_last and isinstance(inputs, torch.Tensor) and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        mixed = self._autocast is not None
        with torch.autocast(self.device.partition(":")[0], torch.bfloat16) if mixed else nullcontext():
            loss = self._loss(model(inputs), targets)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise TypeError(
                f"loss must give one number for a batch, such as the mean over its rows, as a tensor; got {shape}"
            )
        return loss

    def _loss_over(self, model: Any, inputs: Inputs, count: int) -> float:
        import torch

        modes = {module: module.training for module in model.modules()}  # some may be frozen
        model.eval()
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for begin in range(0, count, _AT_ONCE):
                rows = np.arange(begin, min(begin + _AT_ONCE, count))
                total += len(rows) * self._loss_of(model, inputs.batch(rows, seed=None)).double().reshape(())
        for module, is_training in modes.items():
            module.training = is_training
        return float(total) / count


class Starts:
    """Gives a new model for every run: a copy of what a factory gives once, after the random numbers were seeded.

    No run trains the weights of another, also where the factory gives the same layers at every call.

    Args:
        factory: Gives a model.
        seed: Of torch's random numbers, and of those of NumPy and Python.
    """

    def __init__(self, factory: Callable[[], nn.Module], seed: int) -> None:
        self.factory, self.seed = factory, seed
        self._first: nn.Module | None = None

    def __call__(self) -> nn.Module:
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


def _moved(values: Any, device: str) -> Any:
    """Tensors in lists and dicts, on the device."""
    if hasattr(values, "to"):
        return values.to(device)
    if isinstance(values, Mapping):
        return {key: _moved(value, device) for key, value in values.items()}
    if isinstance(values, tuple | list):
        moved = [_moved(value, device) for value in values]
        return type(values)(*moved) if hasattr(values, "_fields") else type(values)(moved)  # a named tuple, or not
    return values
