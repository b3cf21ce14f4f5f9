"""Batches of tensors and data sets, and what becomes inputs."""

import itertools
import pickle
import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from surefoot.data import Dataset, digits
from surefoot.problems import DatasetInputs, ImageInputs, Inputs, TensorInputs
from surefoot.problems._inputs import as_inputs

PAIR = (torch.eye(80), torch.arange(80))
KINDS = {
    "images": ImageInputs(digits("train"), padding=1),
    "tensors": TensorInputs(*PAIR),
    "dataset": DatasetInputs(TensorDataset(*PAIR)),
}


@pytest.mark.parametrize("inputs", KINDS.values(), ids=KINDS)
def test_pickled_inputs_give_the_same_batches(inputs):
    assert isinstance(inputs, Inputs)
    again = pickle.loads(pickle.dumps(inputs))
    for part, expected in zip(again.batch(np.arange(50), seed=4), inputs.batch(np.arange(50), seed=4), strict=True):
        assert torch.equal(part, expected)
    assert again.fingerprint() == inputs.fingerprint()


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.eye(3, dtype=np.float16), torch.float32),
        (np.eye(3, dtype=np.uint8), torch.int64),
        (np.eye(3) > 0, torch.bool),
        (torch.eye(3, dtype=torch.float64, requires_grad=True), torch.float64),
        (torch.eye(3, dtype=torch.uint8), torch.uint8),
    ],
)
def test_types_of_tensors(array, dtype):
    batch, _ = TensorInputs(array, array).batch(np.array([1]), seed=None)
    assert batch.dtype == dtype
    assert not batch.requires_grad
    assert batch.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("inputs", "targets", "error", "message"),
    [
        (np.eye(3), np.arange(2), ValueError, "inputs must have as many rows as targets, 2, got 3"),
        (np.zeros((0, 2)), np.zeros(0), ValueError, r"inputs must have .* got the shape \(0, 2\)"),
        (np.eye(3), ["a", "b", "c"], TypeError, "targets must hold real numbers, got an array of <U1"),
    ],
)
def test_bad_tensors(inputs, targets, error, message):
    with pytest.raises(error, match=message):
        TensorInputs(inputs, targets)


@pytest.mark.parametrize("change", [0, 1], ids=["inputs", "targets"])
def test_fingerprint_of_tensors_looks_at_both(change):
    tensors = [torch.eye(3), torch.arange(3)]
    before = TensorInputs(*tensors).fingerprint()
    tensors[change].view(-1)[0] += 1
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


def test_items_may_hold_named_tuples():
    rows = [(Pair(torch.ones(2) * row, torch.zeros(1)), row) for row in range(3)]
    batch, _ = DatasetInputs(rows).batch(np.array([2, 0]), seed=None)
    assert batch.one.tolist() == [[2.0, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize("seed", [None, 3])
def test_what_items_draw_depends_on_the_seed_alone_and_leaves_the_generators_as_they_were(seed):
    inputs, rows = DatasetInputs(Noisy()), np.array([4, 1])
    batch, targets = inputs.batch(rows, seed=seed)
    assert (batch["row"].tolist(), targets.tolist()) == ([4, 1], [0, 1])
    before = torch.get_rng_state()
    torch.rand(1), random.random()
    assert torch.equal(inputs.batch(rows, seed=seed)[0]["noise"], batch["noise"])
    torch.set_rng_state(before)
    inputs.batch(rows, seed=seed)
    assert torch.equal(torch.get_rng_state(), before)
    others = [inputs.batch(rows, seed=other)[0]["noise"] for other in (1, 2**32)]
    assert all((one != other).all() for one, other in itertools.combinations([batch["noise"], *others], 2))


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
    assert as_inputs(inputs) is inputs
    assert not getattr(inputs, "augment", False)
    assert len(inputs.batch(np.array([1, 0]), seed=0)[1]) == 2


@pytest.mark.parametrize("data", [torch.eye(3), "vowel", Endless(), (1, 2, 3), DataLoader(TensorDataset(*PAIR))])
def test_what_cannot_become_inputs(data):
    hint = ": give its dataset" if isinstance(data, DataLoader) else ""
    with pytest.raises(TypeError, match=rf"data must be .*, got <class '[^']*'>{hint}$"):
        as_inputs(data)
