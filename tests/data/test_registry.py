"""Data sets by name."""

import hashlib
import lzma
import runpy
from pathlib import Path

import numpy as np
import pytest

from surefoot.data import available, digits, get, load
from surefoot.data.cache import BUNDLED

SHA256 = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "build_datasets.py"))["SHA256"]


@pytest.mark.parametrize("file", SHA256)
def test_bundled_files_are_the_published_ones(file):
    assert hashlib.sha256(lzma.decompress((BUNDLED / f"{file}.xz").read_bytes())).hexdigest() == SHA256[file]


@pytest.mark.parametrize(
    ("name", "split", "shape", "classes"),
    [
        ("vowel", "train", (528, 10), 11),
        ("vowel", "test", (462, 10), 11),
        ("dna", "train", (2000, 180), 3),
        ("dna", "test", (1186, 180), 3),
        ("digits", "train", (1437, 64), 10),
        ("digits", "test", (360, 64), 10),
    ],
)
def test_sizes(name, split, shape, classes):
    data = load(name, split)
    assert (data.X.shape, data.n_classes, data.name) == (shape, classes, name)


def test_digits_are_rows_of_pixels():
    assert np.array_equal(load("digits").X, digits("train").images.reshape(-1, 64) / 255)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine"
    path.write_text("3 1:1\n7 2:2\n")
    path.with_name("mine.t").write_text("7 1:1\n")
    return path


def test_files_of_one_s_own_by_path(mine):
    train, test = load(mine), load(mine, "test")
    assert (train.y.tolist(), train.labels, test.y.tolist()) == ([0, 1], (3.0, 7.0), [1])
    assert test.X.shape == (1, 2)
    assert load(mine, task="regression").y.tolist() == [3.0, 7.0]
    assert get(str(mine)) == [mine, mine.with_name("mine.t")]
    mine.write_text("0.5 1:1\n1 2:1\n")
    assert load(mine).task == "regression"


def test_what_there_is():
    assert [(info.name, info.where) for info in available()] == [
        ("vowel", "bundled"),
        ("dna", "bundled"),
        ("digits", "bundled"),
        ("cifar10", "downloadable"),
    ]
    assert [path.name for path in get("dna")] == ["dna.scale.xz", "dna.scale.t.xz"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load("vowl"), "data set must be one of vowel, .* got 'vowl'; did you mean 'vowel'"),
        (lambda: load(""), "data set must be one of .* got ''"),
        (lambda: load("vowel", "valid"), "split must be one of train, test, got 'valid'"),
        (lambda: get("vowel", path="here"), "path must be left out for 'vowel'"),
    ],
)
def test_wrong_names(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_file_without_a_test_file(mine):
    mine.with_name("mine.t").unlink()
    with pytest.raises(ValueError, match=r"split must be 'train', got 'test': the data set .* has no test file"):
        load(mine, "test")
