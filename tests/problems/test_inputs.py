"""Batches against a slow reference that looks at one image at a time."""

import itertools
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from surefoot.data import Dataset, Images, characters, digits
from surefoot.problems import CharacterInputs, DatasetInputs, ImageInputs, Inputs, TensorInputs
from surefoot.problems._inputs import as_inputs

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


def everything():
    text = characters()
    return {
        "images": ImageInputs(digits("train"), padding=1),
        "tensors": TensorInputs(np.eye(80), np.arange(80)),
        "dataset": DatasetInputs(TensorDataset(torch.eye(80), torch.arange(80))),
        "characters": CharacterInputs(text.train, 16),
    }


@pytest.mark.parametrize("kind", everything())
def test_all_kinds_are_inputs(kind):
    assert isinstance(everything()[kind], Inputs)


@pytest.mark.parametrize("kind", everything())
def test_batches_are_made_on_the_device(kind):
    inputs = everything()[kind]
    moved = inputs.to("meta")
    assert inputs.device.type == "cpu"
    batch, expected = moved.batch(np.arange(8), seed=0), inputs.batch(np.arange(8), seed=0)
    assert [part.device.type for part in batch] == ["meta", "meta"]
    assert [(part.shape, part.dtype) for part in batch] == [(part.shape, part.dtype) for part in expected]


@pytest.mark.parametrize("kind", everything())
def test_pickled_inputs_give_the_same_batches(kind):
    inputs = everything()[kind]
    again = pickle.loads(pickle.dumps(inputs))
    for part, expected in zip(again.batch(np.arange(50), seed=4), inputs.batch(np.arange(50), seed=4), strict=True):
        assert torch.equal(part, expected)
    assert again.fingerprint() == inputs.fingerprint()


@pytest.mark.parametrize("kind", everything())
def test_device_is_not_part_of_the_fingerprint(kind):
    inputs = everything()[kind]
    assert inputs.to("cpu").fingerprint() == inputs.fingerprint()


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
        ({"padding": -1}, "padding is -1, must be 0 or more"),
        ({"mean": (0.5,)}, r"mean is \(0\.5,\), must be 3 finite numbers, one for each channel"),
        ({"std": (1.0, float("nan"), 1.0)}, "std is .* must be 3 finite numbers"),
        ({"std": (1.0, 0.0, 1.0)}, "std is .* must be over 0 in every channel"),
        ({"rows": slice(50, 60)}, r"rows is slice\(50, 60, None\), which is none of 40 images"),
        ({"dtype": torch.int64}, r"dtype is torch\.int64, must be a floating-point type"),
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


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.eye(3), torch.float32),
        (np.eye(3, dtype=np.float16), torch.float32),
        (np.eye(3, dtype=np.uint8), torch.int64),
        (np.eye(3) > 0, torch.bool),
        (torch.eye(3, dtype=torch.float64), torch.float64),
        (torch.eye(3, dtype=torch.uint8), torch.uint8),
    ],
)
def test_types_of_tensors(array, dtype):
    batch, _ = TensorInputs(array, array).batch(np.array([1]), seed=None)
    assert batch.dtype == dtype
    assert batch.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("inputs", "targets", "error", "message"),
    [
        (np.eye(3), np.arange(2), ValueError, "inputs has 3 rows and targets 2, must be as many"),
        (1.0, np.arange(2), ValueError, r"inputs has the shape \(\), must have one row for each example"),
        (np.zeros((0, 2)), np.zeros(0), ValueError, r"inputs has the shape \(0, 2\)"),
        (np.eye(3), ["a", "b", "c"], TypeError, "targets is an array of <U1, must hold real numbers"),
    ],
)
def test_bad_tensors(inputs, targets, error, message):
    with pytest.raises(error, match=message):
        TensorInputs(inputs, targets)


def test_gradients_of_tensors_are_left_behind():
    batch, _ = TensorInputs(torch.eye(2, requires_grad=True), torch.arange(2)).batch(np.array([0]), seed=None)
    assert not batch.requires_grad


@pytest.mark.parametrize("change", [(0, 0), (1, 0)], ids=["inputs", "targets"])
def test_fingerprint_of_tensors_looks_at_both(change):
    tensors = [torch.eye(3), torch.arange(3)]
    before = TensorInputs(*tensors).fingerprint()
    tensors[change[0]].view(-1)[change[1]] += 1
    assert TensorInputs(*tensors).fingerprint() != before


class Noisy(torch.utils.data.Dataset):
    """Items with random numbers of all three generators."""

    def __len__(self):
        return 5

    def __getitem__(self, row):
        noise = torch.rand(1).item(), random.random(), np.random.rand()  # noqa: NPY002
        return {"noise": torch.tensor(noise, dtype=torch.float64), "row": row}, row % 2


def test_items_are_collated():
    batch, targets = DatasetInputs(Noisy()).batch(np.array([4, 1]), seed=0)
    assert batch["row"].tolist() == [4, 1]
    assert batch["noise"].shape == (2, 3)
    assert targets.tolist() == [0, 1]


@pytest.mark.parametrize("seed", [None, 3])
def test_what_items_draw_depends_on_the_seed_alone(seed):
    inputs, rows = DatasetInputs(Noisy()), np.array([1, 2])
    first = inputs.batch(rows, seed=seed)[0]["noise"]
    torch.rand(1), random.random()
    assert torch.equal(inputs.batch(rows, seed=seed)[0]["noise"], first)


@pytest.mark.parametrize("generator", range(3), ids=["torch", "python", "numpy"])
def test_what_items_draw_changes_with_the_seed(generator):
    inputs, rows = DatasetInputs(Noisy()), np.array([1, 2])
    noise = [inputs.batch(rows, seed=seed)[0]["noise"][:, generator] for seed in (0, 1, 2**32)]
    assert all(not torch.equal(*pair) for pair in itertools.combinations(noise, 2))


def test_generators_are_put_back():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    DatasetInputs(Noisy()).batch(np.array([0]), seed=9)
    assert torch.equal(torch.rand(1), expected)


def test_items_by_the_list_are_used_where_a_dataset_has_them():
    subset = Subset(TensorDataset(torch.eye(5), torch.arange(5)), [3, 4])
    assert DatasetInputs(subset).batch(np.array([1, 0]), seed=None)[1].tolist() == [4, 3]


def test_fingerprint_of_a_dataset_looks_at_items_and_length():
    kinds = [torch.arange(5), torch.arange(5) + 1, torch.arange(6)]
    prints = {DatasetInputs(TensorDataset(torch.zeros(len(kind)), kind)).fingerprint() for kind in kinds}
    assert len(prints) == 3


def test_fingerprint_of_a_dataset_with_its_own():
    class Known(Noisy):
        def __init__(self, text):
            self.text = text

        def fingerprint(self):
            return self.text

    first, other, again = (DatasetInputs(Known(text)).fingerprint() for text in "aba")
    assert first == again != other


class Endless(IterableDataset):
    def __iter__(self):
        yield 0, 0


@pytest.mark.parametrize(
    ("dataset", "error", "message"),
    [
        (Endless(), TypeError, "must have a length and items by row number"),
        (TensorDataset(torch.zeros(0), torch.zeros(0)), ValueError, "dataset is empty"),
        (TensorDataset(torch.zeros(2)), TypeError, r"must have pairs \(input, target\) as items"),
        ([1, 2], TypeError, "its first item is <class 'int'>"),
    ],
)
def test_bad_datasets(dataset, error, message):
    with pytest.raises(error, match=message):
        DatasetInputs(dataset)


@pytest.mark.parametrize(("stride", "rows"), [(None, 6), (3, 8), (1, 22), (100, 1)])
def test_windows_of_characters(stride, rows):
    codes = np.random.default_rng(0).integers(0, 60, 26).astype(np.uint8)
    inputs = CharacterInputs(codes, 4, stride=stride)
    assert len(inputs) == rows
    batch, targets = inputs.batch(np.arange(rows), seed=0)
    starts = [row * (stride or 4) for row in range(rows)]
    assert batch.tolist() == [codes[start : start + 4].tolist() for start in starts]
    assert targets.tolist() == [codes[start + 1 : start + 5].tolist() for start in starts]


@pytest.mark.parametrize("length", range(5, 14))
def test_last_window_lies_within_the_text(length):
    inputs = CharacterInputs(np.arange(length), 4)
    targets = inputs.batch(np.array([len(inputs) - 1]), seed=None)[1]
    assert length - 4 <= targets.max() + 1 <= length


@pytest.mark.parametrize(
    ("codes", "options", "message"),
    [
        (np.arange(4), {"context": 4}, "codes has 4 characters, must have over 4, the context"),
        (np.arange(9), {"context": 0}, "context is 0, must be 1 or more"),
        (np.arange(9), {"context": 2, "stride": 0}, "stride is 0, must be 1 or more"),
        (np.zeros(9), {"context": 2}, "codes is an array of float64"),
        (np.zeros((9, 2), int), {"context": 2}, r"with shape \(9, 2\), must be \(n,\) whole numbers"),
    ],
)
def test_bad_characters(codes, options, message):
    with pytest.raises(ValueError, match=message):
        CharacterInputs(codes, **options)


def test_fingerprint_of_characters_looks_at_text_and_windows():
    kinds = [(np.arange(9), 2, 2), (np.arange(10), 2, 2), (np.arange(9), 3, 2), (np.arange(9), 2, 1)]
    prints = {CharacterInputs(codes, context, stride=stride).fingerprint() for codes, context, stride in kinds}
    assert len(prints) == 4


PAIR = (torch.eye(4), torch.arange(4))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (digits("test"), ImageInputs),
        (PAIR, TensorInputs),
        (list(PAIR), TensorInputs),
        (TensorDataset(*PAIR), TensorInputs),
        (Subset(TensorDataset(*PAIR), [0, 1]), DatasetInputs),
        (Dataset.from_arrays("mine", np.eye(4), [0, 1, 1, 0]), TensorInputs),
        (Dataset.from_arrays("mine", csr_array(np.eye(4)), [0, 1, 1, 0]), TensorInputs),
    ],
)
def test_what_becomes_inputs(data, kind):
    inputs = as_inputs(data)
    assert isinstance(inputs, kind)
    assert len(inputs.batch(np.array([1, 0]), seed=0)[1]) == 2


def test_inputs_stay_as_they_are():
    inputs = TensorInputs(*PAIR)
    assert as_inputs(inputs) is inputs


def test_images_become_inputs_without_augmentation():
    assert not as_inputs(digits("test")).augment


@pytest.mark.parametrize("data", [torch.eye(3), "vowel", Endless(), (1, 2, 3)])
def test_what_cannot_become_inputs(data):
    with pytest.raises(TypeError, match=r"data must be .*, got <class"):
        as_inputs(data)


def test_loader_is_sent_back_to_its_dataset():
    with pytest.raises(TypeError, match="DataLoader'>: give its dataset"):
        as_inputs(DataLoader(TensorDataset(*PAIR)))


def test_data_and_problems_do_not_import_torch():
    code = "import sys, surefoot.data, surefoot.problems; surefoot.data.digits(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
