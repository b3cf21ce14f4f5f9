"""Batches of images against a slow reference that looks at one image at a time."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data import Images
from surefoot.problems import ImageInputs

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


def some_images(count=40, shape=(3, 6, 5)):
    pixels = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    return Images("some", pixels, np.arange(count) % 7, tuple("abcdefg"))


def reference(images, rows, *, seed, padding, flip, mean, std):
    """The documented augmentation, one image after the other."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    ranges = np.array([2 * padding + 1, 2 * padding + 1, 2 if flip else 1])
    draws = generator.integers(0, ranges[:, None], (3, len(rows)))
    batch = []
    for row, down, right, mirrored in zip(rows, *draws.tolist(), strict=True):
        image = images.images[row]
        _, height, width = image.shape
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        if mirrored:
            padded = padded[:, :, ::-1]
        crop = padded[:, down : down + height, right : right + width]
        batch.append((crop / 255 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None])
    return np.array(batch)


@settings(deadline=None, max_examples=30)
@given(
    shape=st.sampled_from([(3, 6, 5), (1, 4, 9), (3, 1, 1), (2, 8, 8)]),
    rows=st.lists(st.integers(0, 39), min_size=1, max_size=12),
    seed=st.integers(0, 2**128 - 1),
    padding=st.integers(0, 6),
    flip=st.booleans(),
)
def test_any_batch_is_that_of_the_reference(shape, rows, seed, padding, flip):
    images, mean, std = some_images(shape=shape), MEAN[: shape[0]], STD[: shape[0]]
    torch.rand(1), random.random()  # whatever the global generators are at
    inputs, classes = ImageInputs(images, mean, std, padding=padding, flip=flip).batch(np.array(rows), seed=seed)
    expected = reference(images, rows, seed=seed, padding=padding, flip=flip, mean=mean, std=std)
    np.testing.assert_allclose(inputs.numpy(), expected, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(classes.numpy(), images.labels[rows])


@pytest.mark.parametrize(("augment", "seed"), [(True, None), (False, None), (False, 5)])
def test_nothing_is_random_in_evaluation_or_without_augmentation(augment, seed):
    images, rows = some_images(), np.array([5, 0, 5])
    inputs, _ = ImageInputs(images, MEAN, STD, augment=augment).batch(rows, seed=seed)
    pixels = torch.from_numpy(images.images[rows] / 255)
    expected = (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    np.testing.assert_allclose(inputs, expected, atol=2e-6)


@pytest.mark.parametrize("other", [8, 7 + 2**32, 7 + 2**64])
def test_other_seeds_give_other_batches(other):
    inputs, rows = ImageInputs(some_images()), np.arange(40)
    assert not torch.equal(inputs.batch(rows, seed=7)[0], inputs.batch(rows, seed=other)[0])


def test_statistics_are_those_of_the_images_unless_given():
    images = some_images()
    inputs, _ = ImageInputs(images, augment=False).batch(np.arange(40), seed=None)
    np.testing.assert_allclose(inputs.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(inputs.std((0, 2, 3), correction=0), 1, atol=1e-5)


def test_fingerprint_of_images_changes_with_every_setting():
    images = some_images()
    kinds = [
        ImageInputs(images),
        ImageInputs(some_images(39)),
        ImageInputs(images, MEAN),
        ImageInputs(images, std=STD),
        ImageInputs(images, augment=False),
        ImageInputs(images, padding=3),
        ImageInputs(images, flip=False),
    ]
    assert len({inputs.fingerprint() for inputs in kinds}) == len(kinds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": -1}, "padding must be a whole number of at least 0, got -1"),
        ({"mean": (0.5,)}, r"mean must be 3 finite numbers, one for each channel, got \(0\.5,\)"),
        ({"mean": 0.5, "std": 0.2}, "mean must be 3 finite numbers, one for each channel, got 0.5"),
        ({"std": (1.0, float("nan"), 1.0)}, "std must be 3 finite numbers"),
        ({"std": (1.0, 0.0, 1.0)}, "std must be above 0 in every channel, got"),
    ],
)
def test_bad_settings_of_images(options, message):
    with pytest.raises(ValueError, match=message):
        ImageInputs(some_images(), **options)
