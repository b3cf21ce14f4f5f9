"""Images with their classes, as one array of bytes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from surefoot._base.arguments import one_of
from surefoot._identity import digest

Split = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size with a class each, not to be changed in place: the arrays are read-only.

    :func:`cifar10` and :func:`digits` return one; from arrays of your own make one directly.

    Attributes:
        name: What they are called.
        images: Bytes of shape (n, channels, height, width).
        labels: The classes 0 … C−1 of shape (n,), int64.
        classes: The names of the classes.
        mean: Mean of each channel over the training images, as shares of 255. If None, `statistics` computes it.
        std: Standard deviation of each channel, likewise.
        reopen: Returns these images again in another process; replaces the arrays in a pickle.

    >>> images = Images("mine", np.zeros((4, 3, 8, 8), np.uint8), np.array([0, 1, 1, 0]), ("cat", "dog"))
    >>> len(images), images.shape
    (4, (3, 8, 8))
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    reopen: "Callable[[], Images] | None" = None

    def __post_init__(self) -> None:
        pixels, labels = np.asarray(self.images), np.asarray(self.labels)
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or 0 in pixels.shape:
            raise ValueError(
                "images must be uint8 of shape (n, channels, height, width), none of them 0, "
                f"got {pixels.dtype} of shape {pixels.shape}"
            )
        if labels.shape != pixels.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"labels must be whole numbers of shape ({len(pixels)},), one for each image, "
                f"got {labels.dtype} of shape {labels.shape}"
            )
        if labels.min() < 0 or labels.max() >= len(self.classes):
            raise ValueError(
                f"labels must lie in 0 … {len(self.classes) - 1}, as classes has {len(self.classes)} names, "
                f"got {labels.min()} to {labels.max()}"
            )
        for attribute, value in (("images", pixels.view()), ("labels", labels.astype(np.int64))):
            value.flags.writeable = False
            object.__setattr__(self, attribute, value)

    def __len__(self) -> int:
        return len(self.images)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.reopen is not None:
            return self.reopen, ()
        return type(self), tuple(getattr(self, attribute.name) for attribute in fields(self))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def fingerprint(self) -> str:
        """A hash of pixels and labels."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return digest(self.images, self.labels)

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, as shares of 255: those given, or else computed.

        >>> Images("gray", np.full((2, 1, 4, 4), 51, np.uint8), np.zeros(2, np.int64), ("gray",)).statistics()
        ((0.2,), (0.0,))
        """
        if self.mean is not None and self.std is not None:
            return self.mean, self.std
        means = [float(channel.mean()) / 255 for channel in self.images.swapaxes(0, 1)]
        squares = [np.square(channel, dtype=np.uint16).mean() / 255**2 for channel in self.images.swapaxes(0, 1)]
        return tuple(means), tuple(
            math.sqrt(max(both - mean**2, 0.0)) for mean, both in zip(means, squares, strict=True)
        )


def check_split(split: str) -> None:
    """Raise ValueError unless the name is that of a part."""
    one_of("split", split, get_args(Split))


def digits(split: Split = "train") -> Images:
    """Images of handwritten digits, 8 by 8 pixels of one channel, from scikit-learn; nothing is downloaded.

    The first 1437 of the 1797 images are the training images, the other 360 the test images. Pixels are scaled from
    0 … 16 to 0 … 255.

    >>> images = digits("test")
    >>> len(images), images.shape, images.classes[images.labels[0]]
    (360, (1, 8, 8), '2')
    """
    from sklearn.datasets import load_digits

    check_split(split)
    pixels, labels = load_digits(return_X_y=True)
    part = slice(1437) if split == "train" else slice(1437, None)
    scaled = (pixels[part].astype(np.uint16) * 255 + 8) // 16  # rounded
    images = scaled.astype(np.uint8).reshape(-1, 1, 8, 8)
    return Images(f"digits-{split}", images, labels[part], tuple("0123456789"), (0.3054,), (0.3753,))
