"""The handwritten digits that ship inside the package: images small enough for tests and first steps."""

import lzma

import numpy as np

from surefoot.data.cache import bundled
from surefoot.data.catalog import Split, check_split
from surefoot.data.images import Images

FILE = "digits.bin"
SHA256 = "d8121ca7764eccfaef1df6bc4589c6527c58fcbab0cb1b079e79f97f8cb8219a"
"""Checksum of the bundled file, decompressed: 1797 rows of the class and 64 pixels from 0 to 16."""

TRAINING_ROWS = 1437
ROW_BYTES = 1 + 8 * 8
MEAN = (0.3054,)
STD = (0.3753,)


def digits(split: Split = "train") -> Images:
    """Return images of handwritten digits, 8 by 8 pixels of one channel; part of the package, nothing is downloaded.

    They are the 1797 images that scikit-learn has, in its order: the first 1437 are the training images, the other 360
    the test images. Pixels are scaled from 0 … 16 to 0 … 255.

    Args:
        split: Training or test images.

    Example:
        >>> images = digits("test")
        >>> len(images), images.shape, images.classes[images.labels[0]]
        (360, (1, 8, 8), '2')
    """
    check_split(split)
    rows = np.frombuffer(lzma.decompress(bundled(FILE).read_bytes()), np.uint8).reshape(-1, ROW_BYTES)
    part = rows[:TRAINING_ROWS] if split == "train" else rows[TRAINING_ROWS:]
    scaled = (part[:, 1:].astype(np.uint16) * 255 + 8) // 16  # rounded
    pixels = scaled.astype(np.uint8).reshape(-1, 1, 8, 8)
    return Images(f"digits-{split}", pixels, part[:, 0].astype(np.int64), tuple("0123456789"), MEAN, STD)
