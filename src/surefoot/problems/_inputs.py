"""Batches of a network's inputs and targets, from whatever holds the data.

This module imports torch; nothing that convex studies import may import it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from surefoot._base.randomness import global_random
from surefoot._identity import Identity, identify
from surefoot.data import Dataset, Images
from surefoot.problems._problem import Rows


@runtime_checkable
class Inputs(Protocol):
    """Rows of data that become batches of tensors: what a network problem trains and evaluates on.

    Anything with these members will do. `ImageInputs`, `TensorInputs` and `DatasetInputs` have them.
    """

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def batch(self, rows: Rows, *, seed: int | None) -> tuple[Any, Any]:
        """The inputs and the targets of some rows.

        Args:
            rows: Row numbers of shape (batch size,).
            seed: Determines all that is random in the batch, alone; None for evaluation: nothing is random.
        """
        ...

    def fingerprint(self) -> str:
        """SHA-256 (hex) of all that determines the batches."""
        ...


class TensorInputs:
    """Rows of two tensors or arrays in memory.

    Arrays of real numbers become tensors of torch's default type and arrays of whole numbers int64, as models and
    losses expect them; tensors stay as they are, and where they are.

    Args:
        inputs: Of shape (n, …).
        targets: Of shape (n, …).

    Example:
        >>> inputs = TensorInputs(np.eye(3), np.array([0, 1, 2]))
        >>> inputs.batch(np.array([2, 0]), seed=None)
        (tensor([[0., 0., 1.],
                [1., 0., 0.]]), tensor([2, 0]))

    """

    def __init__(self, inputs: Tensor | ArrayLike, targets: Tensor | ArrayLike) -> None:
        self.inputs, self.targets = _tensor("inputs", inputs), _tensor("targets", targets)
        if len(self.inputs) != len(self.targets):
            raise ValueError(f"inputs must have as many rows as targets, {len(self.targets)}, got {len(self.inputs)}")

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, rows: Rows, *, seed: int | None) -> tuple[Tensor, Tensor]:
        """The rows of both tensors; nothing is random."""
        index = torch.from_numpy(np.asarray(rows))
        return self.inputs[index], self.targets[index]

    def fingerprint(self) -> str:
        """SHA-256 (hex) of both tensors."""
        return digest("tensors", _hashed((self.inputs, self.targets)))


class DatasetInputs:
    """Rows of a map-style torch ``Dataset`` whose items are pairs (input, target), collated as a ``DataLoader`` does.

    Items are made one by one in Python; for speed hand over tensors or images instead. What the data set draws from
    the global generators of torch, NumPy and Python is determined by the seed of the batch, and is the same each time
    in evaluation; the generators are put back afterwards.

    Args:
        dataset: Has a length and, for each row number, a pair of numbers, arrays, tensors or (nested) lists and
            dicts of them.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> inputs = DatasetInputs(TensorDataset(torch.eye(3), torch.arange(3)))
        >>> inputs.batch(np.array([1]), seed=0)
        (tensor([[0., 1., 0.]]), tensor([1]))

    """

    def __init__(self, dataset: Any) -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(f"dataset must have a length and items by row number (map-style), got {type(dataset)}")
        if len(dataset) == 0:
            raise ValueError(f"dataset must have items, got none in {dataset!r}")
        self.dataset = dataset
        with seeded(0):
            item = dataset[0]
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise TypeError(f"dataset must have pairs (input, target) as items, got {type(item)} as the first")

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, rows: Rows, *, seed: int | None) -> tuple[Any, Any]:
        """The items, collated by ``torch.utils.data.default_collate``."""
        numbers = np.asarray(rows).tolist()
        with seeded(0 if seed is None else seed):
            if hasattr(self.dataset, "__getitems__"):
                items = self.dataset.__getitems__(numbers)
            else:
                items = [self.dataset[number] for number in numbers]
        inputs, targets = default_collate(items)
        return inputs, targets

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the data set's code, of what it holds, and of at most 64 of its items, evenly spread.

        An item that is read from a file and is not among them may change unseen. A data set with a method
        ``fingerprint()`` of its own is asked instead.
        """
        return self.identity().digest

    def identity(self) -> Identity:
        """What the fingerprint rests on."""
        return self._identity

    @cached_property
    def _identity(self) -> Identity:
        kind = type(self.dataset).__qualname__
        if callable(fingerprint_of_data := getattr(self.dataset, "fingerprint", None)):
            note = f"the fingerprint that {kind} tells"
            return replace(identify("dataset", str(fingerprint_of_data())), notes=(note,))
        held, rows = identify(self.dataset), np.unique(np.linspace(0, len(self) - 1, 64).astype(np.int64))
        items = _hashed(self.batch(rows, seed=None))
        note = f"{'all' if len(rows) == len(self) else f'{len(rows)} of the'} {len(self)} items of {kind}"
        return replace(held, digest=digest(held.digest, len(self), items), notes=(note,))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_identity"}


def as_inputs(data: Any, *, like: Inputs | None = None) -> Inputs:
    """The batches of whatever holds data.

    Args:
        data: `Inputs`; `surefoot.data.Images` (normalised, not augmented: for that make `ImageInputs` yourself); a pair
            of tensors or arrays; a `surefoot.data.Dataset`; a map-style torch ``Dataset`` of pairs.
        like: Training inputs: validation images are normalised by the same mean and standard deviation.

    Example:
        >>> len(as_inputs((np.eye(3), [0, 1, 2])))
        3

    """
    if isinstance(data, Inputs):
        return data
    if isinstance(data, Images):
        from surefoot.problems._image_inputs import ImageInputs  # which imports this module

        known = (like.mean, like.std) if isinstance(like, ImageInputs) else (None, None)
        return ImageInputs(data, *known, augment=False)
    if isinstance(data, Dataset):
        return TensorInputs(data.X, data.y)
    if isinstance(data, tuple | list) and len(data) == 2:
        return TensorInputs(*data)
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return TensorInputs(*data.tensors)
    if isinstance(data, torch.utils.data.Dataset) and not isinstance(data, IterableDataset):
        return DatasetInputs(data)
    raise TypeError(
        "data must be surefoot.data.Images or Dataset, a pair (inputs, targets) of tensors or arrays, a map-style "
        f"torch Dataset or Inputs, got {type(data)}" + (": give its dataset" if hasattr(data, "dataset") else "")
    )


def _tensor(name: str, values: Tensor | ArrayLike) -> Tensor:
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        kinds = {"f": torch.get_default_dtype(), "i": torch.int64, "u": torch.int64, "b": torch.bool}
        if array.dtype.kind not in kinds:
            raise TypeError(f"{name} must hold real numbers, got an array of {array.dtype}")
        values = torch.tensor(array, dtype=kinds[array.dtype.kind])
    if values.ndim == 0 or len(values) == 0:
        raise ValueError(f"{name} must have one row for each example, got the shape {tuple(values.shape)}")
    return values.detach()


def digest(*parts: Any) -> str:
    """SHA-256 (hex) of some JSON-able parts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@contextmanager
def seeded(*seed: int) -> Iterator[None]:
    """Seed the global generators that data sets draw from, and put them back; other threads wait."""
    for_python, for_numpy, for_torch = np.random.SeedSequence(seed).generate_state(3).tolist()
    with global_random:
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        try:
            random.seed(for_python)
            np.random.seed(for_numpy)  # noqa: NPY002
            torch.default_generator.manual_seed(for_torch)
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            torch.set_rng_state(before[2])


def _hashed(values: Any) -> str:
    """SHA-256 (hex) of tensors in lists and dicts."""
    if isinstance(values, Tensor):
        content = values.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return digest(str(values.dtype), list(values.shape), hashlib.sha256(content).hexdigest())
    if isinstance(values, Mapping):
        return digest([[str(key), _hashed(value)] for key, value in values.items()])
    if isinstance(values, tuple | list):
        return digest([_hashed(value) for value in values])
    return digest(repr(values))
