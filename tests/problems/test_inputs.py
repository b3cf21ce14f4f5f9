"""Batches of tensors, data sets and characters, and what becomes inputs."""

import itertools
import pickle
import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from surefoot.data import Dataset, characters, digits
from surefoot.problems import CharacterInputs, DatasetInputs, ImageInputs, Inputs, TensorInputs
from surefoot.problems._inputs import as_inputs


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
        (np.eye(3), np.arange(2), ValueError, "inputs must have as many rows as targets, 2, got 3"),
        (1.0, np.arange(2), ValueError, r"inputs must have one row for each example, got the shape \(\)"),
        (np.zeros((0, 2)), np.zeros(0), ValueError, r"inputs must have .* got the shape \(0, 2\)"),
        (np.eye(3), ["a", "b", "c"], TypeError, "targets must hold real numbers, got an array of <U1"),
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


class Pair(NamedTuple):
    """An input of two parts."""

    one: torch.Tensor
    other: torch.Tensor


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


def test_items_may_hold_named_tuples():
    rows = [(Pair(torch.ones(2) * row, torch.zeros(1)), row) for row in range(3)]
    batch, _ = DatasetInputs(rows).batch(np.array([2, 0]), seed=None)
    assert batch.one.tolist() == [[2.0, 2.0], [0.0, 0.0]]
    assert batch.other.shape == (2, 1)


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
        (TensorDataset(torch.zeros(0), torch.zeros(0)), ValueError, "dataset must have items, got none"),
        (TensorDataset(torch.zeros(2)), TypeError, r"must have pairs \(input, target\) as items"),
        ([1, 2], TypeError, "got <class 'int'> as the first"),
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
        (np.arange(4), {"context": 4}, "codes must have over 4 characters, the context, got 4"),
        (np.arange(9), {"context": 0}, "context must be a whole number of at least 1, got 0"),
        (np.arange(9), {"context": 2, "stride": 0}, "stride must be a whole number of at least 1, got 0"),
        (np.zeros(9), {"context": 2}, "codes must be whole numbers .* got an array of float64"),
        (np.zeros((9, 2), int), {"context": 2}, r"must be whole numbers of shape \(n,\), got .* with shape \(9, 2\)"),
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
