import hashlib
import lzma
from importlib import resources

import numpy as np
import pytest

from surefoot.data import load
from surefoot.data.catalog import BUNDLED, CATALOG, FOLDERS, PINNED_SHA256

FILES = ["vowel.scale", "vowel.scale.t", "dna.scale", "dna.scale.t"]


def bundled_text(file):
    return lzma.decompress((resources.files("surefoot.data") / "files" / f"{file}.xz").read_bytes())


@pytest.mark.parametrize("file", FILES)
def test_bundled_text_has_the_published_checksum(file):
    assert hashlib.sha256(bundled_text(file)).hexdigest() == PINNED_SHA256[file]


@pytest.mark.parametrize("file", FILES)
def test_bundled_text_is_the_published_file(file, published):
    assert bundled_text(file) == (published / "libsvm" / file).read_bytes()


def test_origin_and_licence_lie_beside_the_files():
    notice = (resources.files("surefoot.data") / "files" / "README.md").read_text()
    assert "UCI" in notice
    assert "CC BY 4.0" in notice


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize(
    ("split", "rows"), [("train", {"vowel": 528, "dna": 2000}), ("test", {"vowel": 462, "dna": 1186})]
)
def test_sizes(name, split, rows):
    data = load(name, split)
    source = CATALOG[name]
    assert data.X.shape == (rows[name], source.features)
    assert data.n_classes == source.classes


def test_dna_labels_are_moved_to_zero():
    data = load("dna")
    assert data.labels == (1.0, 2.0, 3.0)
    assert np.bincount(data.y).tolist() == [464, 485, 1051]


def test_vowel_training_features_fill_the_unit_interval():
    X = load("vowel").X
    np.testing.assert_array_equal(X.min(axis=0), -1)
    np.testing.assert_array_equal(X.max(axis=0), 1)


@pytest.mark.parametrize("name", BUNDLED)
def test_sparse_form_has_the_same_entries(name):
    np.testing.assert_array_equal(load(name, dense=False).X.toarray(), load(name).X)


def test_bundled_data_need_no_folder_and_no_network(monkeypatch, home):
    monkeypatch.setenv("SUREFOOT_LIBSVM_URL", "http://127.0.0.1:9")
    load("vowel", "test")
    assert list(home.iterdir()) == []


def test_catalog_files_are_distinct():
    files = [file for source in CATALOG.values() for file in (source.train, source.test) if file]
    assert len(set(files)) == len(files)


def test_catalog_folders_are_those_of_the_site():
    assert {source.folder for source in CATALOG.values()} == set(FOLDERS)
