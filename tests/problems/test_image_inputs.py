"""Batches of images against a slow reference that looks at one image at a time."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data import Images, digits
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


@pytest.mark.parametrize("shape", [(3, 6, 5), (1, 4, 9), (3, 1, 1), (2, 8, 8)])
@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("flip", [True, False])
def test_training_batch_is_that_of_the_reference(shape, padding, flip):
    images, rows = some_images(shape=shape), np.random.default_rng(1).permutation(40)[:17]
    mean, std = MEAN[: shape[0]], STD[: shape[0]]
    inputs, classes = ImageInputs(images, mean, std, padding=padding, flip=flip).batch(rows, seed=3)
    expected = reference(images, rows, seed=3, padding=padding, flip=flip, mean=mean, std=std)
    np.testing.assert_allclose(inputs.numpy(), expected, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(classes.numpy(), images.labels[rows])


@settings(deadline=None, max_examples=30)
@given(
    rows=st.lists(st.integers(0, 39), min_size=1, max_size=12),
    seed=st.integers(0, 2**128 - 1),
    padding=st.integers(0, 6),
    flip=st.booleans(),
)
def test_any_batch_is_that_of_the_reference(rows, seed, padding, flip):
    images = some_images()
    inputs, _ = ImageInputs(images, MEAN, STD, padding=padding, flip=flip).batch(np.array(rows), seed=seed)
    expected = reference(images, rows, seed=seed, padding=padding, flip=flip, mean=MEAN, std=STD)
    np.testing.assert_allclose(inputs.numpy(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("augment", "seed"), [(True, None), (False, None), (False, 5)])
def test_nothing_is_random_in_evaluation_or_without_augmentation(augment, seed):
    images, rows = some_images(), np.array([5, 0, 5])
    inputs, _ = ImageInputs(images, MEAN, STD, augment=augment).batch(rows, seed=seed)
    pixels = torch.from_numpy(images.images[rows] / 255)
    expected = (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    np.testing.assert_allclose(inputs, expected, atol=2e-6)


def test_batch_depends_on_its_seed_alone():
    inputs, rows = ImageInputs(some_images()), np.arange(40)
    first = inputs.batch(rows, seed=7)[0]
    torch.manual_seed(123)
    inputs.batch(rows, seed=8)
    assert torch.equal(inputs.batch(rows, seed=7)[0], first)


@pytest.mark.parametrize("other", [8, 7 + 2**32, 7 + 2**64])
def test_other_seeds_give_other_batches(other):
    inputs, rows = ImageInputs(some_images()), np.arange(40)
    assert not torch.equal(inputs.batch(rows, seed=7)[0], inputs.batch(rows, seed=other)[0])


def test_every_crop_is_as_likely_as_any_other():
    pixels = np.arange(1, 10, dtype=np.uint8).reshape(1, 1, 3, 3)  # all 2 · 3 · 3 crops differ
    inputs = ImageInputs(Images("one", pixels, np.zeros(1, int), ("a",)), (0.0,), (1 / 255,), padding=1)
    crops = inputs.batch(np.zeros(9000, np.intp), seed=0)[0].round().numpy().astype(int).reshape(9000, 9)
    _, counts = np.unique(crops, axis=0, return_counts=True)
    assert len(counts) == 18
    assert abs(counts - 500).max() < 5 * 500**0.5


def test_no_global_generator_is_touched():
    before = torch.get_rng_state(), random.getstate()
    ImageInputs(some_images()).batch(np.arange(4), seed=0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_batch_is_the_same_for_any_number_of_threads():
    inputs, rows = ImageInputs(some_images(shape=(3, 32, 32))), np.tile(np.arange(40), 10)
    threads = torch.get_num_threads()
    try:
        batches = []
        for count in (1, 2):
            torch.set_num_threads(count)
            batches.append(inputs.batch(rows, seed=1)[0])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*batches)


def test_statistics_are_those_of_the_images_unless_given():
    images = some_images()
    inputs, _ = ImageInputs(images, augment=False).batch(np.arange(40), seed=None)
    np.testing.assert_allclose(inputs.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(inputs.std((0, 2, 3), correction=0), 1, atol=1e-5)


def test_statistics_of_the_training_images_are_used_for_the_test_images():
    assert ImageInputs(digits("test")).mean == ImageInputs(digits("train")).mean


@pytest.mark.parametrize("rows", [slice(10, 14), [10, 11, 12, 13], (np.arange(40) >= 10) & (np.arange(40) < 14)])
def test_subset(rows):
    images = some_images()
    inputs = ImageInputs(images, MEAN, STD, rows=rows)
    assert len(inputs) == 4
    whole = ImageInputs(images, MEAN, STD).batch(np.array([13, 10]), seed=2)
    part = inputs.batch(np.array([3, 0]), seed=2)
    assert torch.equal(part[0], whole[0])
    assert torch.equal(part[1], whole[1])


def test_channels_last_changes_the_layout_only():
    plain, last = (
        ImageInputs(some_images(), channels_last=value).batch(np.arange(9), seed=0)[0] for value in (False, True)
    )
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert plain.is_contiguous()
    assert torch.equal(plain, last)


def test_other_type():
    inputs = ImageInputs(some_images(), dtype=torch.bfloat16).batch(np.arange(9), seed=0)[0]
    assert torch.equal(inputs, ImageInputs(some_images()).batch(np.arange(9), seed=0)[0].bfloat16())


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
        ImageInputs(images, rows=slice(3)),
        ImageInputs(images, rows=[2, 1, 0]),
        ImageInputs(images, dtype=torch.bfloat16),
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
        ({"rows": slice(50, 60)}, r"rows must be some of the 40 images, got slice\(50, 60, None\)"),
        ({"dtype": torch.int64}, r"dtype must be a floating-point type, got torch\.int64"),
    ],
)
def test_bad_settings_of_images(options, message):
    with pytest.raises(ValueError, match=message):
        ImageInputs(some_images(), **options)


def test_images_must_be_images():
    with pytest.raises(TypeError, match=r"images must be surefoot\.data\.Images, got <class 'numpy\.ndarray'>"):
        ImageInputs(np.zeros((3, 1, 2, 2)))


def test_row_out_of_range():
    with pytest.raises(IndexError):
        ImageInputs(some_images()).batch(np.array([40]), seed=None)
