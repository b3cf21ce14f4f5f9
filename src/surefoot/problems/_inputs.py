"""Batches of a network's inputs and targets, from whatever holds the data.

This module imports torch; nothing that convex studies import may import it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from surefoot._base.arguments import whole
from surefoot._base.randomness import global_random
from surefoot._identity import Identity, digest, identify
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
        """A hash of all that determines the batches."""
        ...


class TensorInputs:
    """Rows of two tensors or arrays in memory.

    Arrays of real numbers become tensors of torch's default type and arrays of whole numbers int64, as models and
    losses expect them; tensors stay as they are, and where they are.

    >>> inputs = TensorInputs(np.eye(3), np.array([0, 1, 2]))
    >>> inputs.batch(np.array([2, 0]), seed=None)
    (tensor([[0., 0., 1.],
            [1., 0., 0.]]), tensor([2, 0]))

    Args:
        inputs: Of shape (n, …).
        targets: Of shape (n, …).
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
        """A hash of both tensors."""
        return digest(self.inputs, self.targets)


class DatasetInputs:
    """Rows of a map-style torch ``Dataset`` whose items are pairs (input, target), collated as a ``DataLoader`` does.

    Items are made one by one in Python; for speed hand over tensors or images instead. What the data set draws from
    the global generators of torch, NumPy and Python is determined by the seed of the batch, and is the same each time
    in evaluation; the generators are put back afterwards.

    >>> from torch.utils.data import TensorDataset
    >>> DatasetInputs(TensorDataset(torch.eye(3), torch.arange(3))).batch(np.array([1]), seed=0)
    (tensor([[0., 1., 0.]]), tensor([1]))

    Args:
        dataset: Has a length and, for each row number, a pair of numbers, arrays, tensors or (nested) lists and
            dicts of them.
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
        """A hash of the data set's code, of what it holds, and of at most 64 of its items, evenly spread.

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
        hashed = digest(held.digest, len(self), self.batch(rows, seed=None))
        note = f"{'all' if len(rows) == len(self) else f'{len(rows)} of the'} {len(self)} items of {kind}"
        return replace(held, digest=hashed, notes=(note,))

    def __getstate__(self) -> dict[str, Any]:
        return {"dataset": self.dataset}


class ImageInputs:
    """Batches of images, normalised, and flipped and cropped at random if asked for.

    Padding with zeros, mirroring, cropping and normalising are each one operation on the whole batch: every line of a
    crop is a window of neighbouring bytes in the padded images or in their mirrored copies, so one gather of windows
    does all crops and flips.

    Args:
        images: What to make batches of.
        mean: Subtracted from each channel (shares of 255); by default that of the images.
        std: Divides each channel; by default that of the images.
        augment: Flip and crop at random when a batch has a seed.
        padding: Zeros around an image before a crop of its size is taken.
        flip: Mirror half of the images, left to right.

    >>> from surefoot.data import digits
    >>> pixels, classes = ImageInputs(digits("train"), padding=1, flip=False).batch(np.arange(32), seed=0)
    >>> tuple(pixels.shape), classes.dtype
    ((32, 1, 8, 8), torch.int64)
    """

    def __init__(
        self,
        images: Images,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        *,
        augment: bool = True,
        padding: int = 4,
        flip: bool = True,
    ) -> None:
        if not isinstance(images, Images):
            raise TypeError(f"images must be surefoot.data.Images, got {type(images)}")
        self.images = images
        known = images.statistics() if mean is None or std is None else (mean, std)
        self.mean = _per_channel("mean", known[0] if mean is None else mean, images.shape[0])
        self.std = _per_channel("std", known[1] if std is None else std, images.shape[0])
        if min(self.std) <= 0:
            raise ValueError(f"std must be above 0 in every channel, got {self.std}")
        self.augment, self.padding, self.flip = bool(augment), whole("padding", padding, 0), bool(flip)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: Rows, *, seed: int | None) -> tuple[Tensor, Tensor]:
        """The images of shape (batch size, channels, height, width), float32, and their classes (int64)."""
        pixels = torch.from_numpy(self.images.images[rows])
        if self.augment and seed is not None:
            pixels = self._augmented(pixels, seed)
        # (x/255 − mean)/std = scale·x + shift
        scale = torch.tensor([1 / (255 * s) for s in self.std]).view(-1, 1, 1)
        shift = torch.tensor([-m / s for m, s in zip(self.mean, self.std, strict=True)]).view(-1, 1, 1)
        return pixels.to(torch.float32).mul_(scale).add_(shift), torch.from_numpy(self.images.labels[rows])

    def fingerprint(self) -> str:
        """A hash of the images and of what is done to them."""
        return digest(self.images.fingerprint(), self.mean, self.std, self.augment, self.padding, self.flip)

    def _augmented(self, pixels: Tensor, seed: int) -> Tensor:
        """The images flipped and cropped, each by its own random numbers.

        The numbers come from NumPy's Philox: torch's generator on the CPU looks at 32 bits of a seed only.
        """
        count, channels, height, width = pixels.shape
        generator = np.random.Generator(np.random.Philox(key=seed))
        ranges = [2 * self.padding + 1, 2 * self.padding + 1, 2 if self.flip else 1]
        down, right, mirrored = generator.integers(0, np.array(ranges)[:, None], (3, count))
        padded = functional.pad(pixels, (self.padding,) * 4)
        lines, columns = padded.shape[-2:]
        if self.flip:
            padded = torch.stack([padded, padded.flip(-1)])
        # Where the first line of each crop begins; then where all lines do.
        corners: NDArray[np.int64] = ((mirrored * count + np.arange(count)) * channels * lines + down) * columns + right
        line = torch.arange(height) * columns
        plane = torch.arange(channels) * (lines * columns)
        starts = torch.from_numpy(corners)[:, None, None] + plane[:, None] + line
        windows = padded.as_strided((padded.numel() - width + 1, width), (1, 1))
        return windows.index_select(0, starts.view(-1)).view(count, channels, height, width)


def as_inputs(data: Any, *, like: Inputs | None = None) -> Inputs:
    """The batches of whatever holds data.

    Args:
        data: `Inputs`; `surefoot.data.Images` (normalised, not augmented: for that make `ImageInputs` yourself); a pair
            of tensors or arrays; a `surefoot.data.Dataset`; a map-style torch ``Dataset`` of pairs.
        like: Training inputs: validation images are normalised by the same mean and standard deviation.

    >>> len(as_inputs((np.eye(3), [0, 1, 2])))
    3
    """
    if isinstance(data, Inputs):
        return data
    if isinstance(data, Images):
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


def _per_channel(name: str, values: Sequence[float], channels: int) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != channels or not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be {channels} finite numbers, one for each channel, got {values!r}")
    return numbers


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
