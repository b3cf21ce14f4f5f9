import pickle

import numpy as np
import pytest

from surefoot.data import Images, digits

PIXELS = np.arange(5 * 2 * 3 * 4, dtype=np.uint8).reshape(5, 2, 3, 4)
LABELS = np.array([0, 1, 2, 1, 0])
NAMES = ("a", "b", "c")


@pytest.mark.parametrize("attribute", ["images", "labels"])
def test_arrays_are_read_only(attribute):
    with pytest.raises(ValueError, match="read-only"):
        getattr(Images("mine", PIXELS, LABELS, NAMES), attribute)[0] = 1


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (PIXELS / 255, LABELS, r"images must be uint8 .* got float64 of shape \(5, 2, 3, 4\)"),
        (PIXELS[0], LABELS, r"images must be uint8 of shape .* got uint8 of shape \(2, 3, 4\)"),
        (PIXELS[:0], LABELS[:0], "none of them 0"),
        (PIXELS, LABELS[1:], r"labels must be whole numbers of shape \(5,\), .* got int64 of shape \(4,\)"),
        (PIXELS, LABELS / 2, "labels must be whole numbers .* got float64"),
        (PIXELS, LABELS + 1, r"labels must lie in 0 … 2, as classes has 3 names, got 1 to 3"),
    ],
)
def test_arrays_that_do_not_fit(pixels, labels, message):
    with pytest.raises(ValueError, match=message):
        Images("mine", pixels, labels, NAMES)


def test_computed_statistics_are_those_of_all_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (2500, 3, 4, 4), dtype=np.uint8)
    mean, std = Images("mine", pixels, np.zeros(2500, int), ("a",)).statistics()
    np.testing.assert_allclose(mean, (pixels / 255).mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, (pixels / 255).std(axis=(0, 2, 3)), rtol=1e-12)


def test_fingerprint_looks_at_pixels_and_labels():
    other_pixels, other_labels = PIXELS.copy(), LABELS.copy()
    other_pixels[-1, -1, -1, -1] += 1
    other_labels[-1] = 2
    sets = [(PIXELS, LABELS), (other_pixels, LABELS), (PIXELS, other_labels)]
    assert len({Images("mine", *arrays, NAMES).fingerprint() for arrays in sets}) == 3


def test_pickled_images_are_equal_and_read_only():
    images = pickle.loads(pickle.dumps(Images("mine", PIXELS, LABELS, NAMES)))
    np.testing.assert_array_equal(images.images, PIXELS)
    np.testing.assert_array_equal(images.labels, LABELS)
    assert not images.images.flags.writeable


def test_statistics_of_digits_are_those_of_the_training_images():
    images = digits("train")
    computed = Images("digits", images.images, images.labels, images.classes).statistics()
    np.testing.assert_allclose(images.statistics(), computed, atol=1e-4)
    assert (images.images.min(), images.images.max()) == (0, 255)
