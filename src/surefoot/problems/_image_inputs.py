"""Batches of images, flipped, cropped and normalised by whole-batch tensor operations.

This module imports torch; nothing that convex studies import may import it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from surefoot._base.arguments import whole
from surefoot.data import Images
from surefoot.problems._inputs import digest
from surefoot.problems._problem import Rows


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

    Example:
        >>> from surefoot.data import digits
        >>> inputs = ImageInputs(digits("train"), padding=1, flip=False)
        >>> pixels, classes = inputs.batch(np.arange(32), seed=0)
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
        """SHA-256 (hex) of the images and of what is done to them."""
        settings = [self.mean, self.std, self.augment, self.padding, self.flip]
        return digest("images", self.images.fingerprint(), settings)

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


def _per_channel(name: str, values: Sequence[float], channels: int) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != channels or not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be {channels} finite numbers, one for each channel, got {values!r}")
    return numbers
