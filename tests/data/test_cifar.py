"""CIFAR-10 from folders and archives with the published layout; small batches stand for the published ones."""

import hashlib
import pickle
import tarfile

import numpy as np
import pytest

from surefoot.data import cifar, cifar10, get, load
from surefoot.data.registry import available


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with six batches of four images, which are the published ones for the test."""
    place = tmp_path / "somewhere" / cifar.FOLDER
    place.mkdir(parents=True)
    random = np.random.default_rng(0)
    md5 = {}
    for name in cifar.MD5:
        rows = random.integers(0, 256, (4, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (place / name).write_bytes(rows.tobytes())
        md5[name] = hashlib.md5(rows.tobytes()).hexdigest()
    monkeypatch.setattr(cifar, "MD5", md5)
    return place


def test_rows_are_the_class_and_three_planes_of_pixels(folder):
    rows = np.frombuffer((folder / "test_batch.bin").read_bytes(), np.uint8).reshape(-1, 3073)
    images = cifar10("test", folder)
    assert images.labels.tolist() == rows[:, 0].tolist()
    assert images.images.reshape(4, -1).tolist() == rows[:, 1:].tolist()
    assert len(cifar10("train", folder.parent)) == 20
    assert images.statistics() == (cifar.MEAN, cifar.STD)


def test_a_data_folder_is_searched(folder, monkeypatch):
    monkeypatch.setenv("SUREFOOT_DATA", str(folder.parent))
    assert get("cifar10") == [folder]
    assert load("cifar10", "test").X.shape == (4, 3072)
    assert available()[-1].where == "cached"


def test_the_archive_is_downloaded_and_unpacked_once(folder, site, monkeypatch):
    place, address = site
    with tarfile.open(place / cifar.ARCHIVE, "w:gz") as archive:
        archive.add(folder, cifar.FOLDER)
    monkeypatch.setattr(cifar, "ARCHIVE_SHA256", hashlib.sha256((place / cifar.ARCHIVE).read_bytes()).hexdigest())
    monkeypatch.setenv("SUREFOOT_CIFAR_URL", address)
    assert available()[-1].where == "downloadable"
    assert len(cifar10("train")) == 20
    (place / cifar.ARCHIVE).unlink()
    assert len(cifar10("test")) == 4


def test_a_pickle_holds_the_place_of_the_files(folder):
    images = cifar10("train", folder)
    content = pickle.dumps(images)
    assert len(content) < 1000
    assert pickle.loads(content).fingerprint() == images.fingerprint() != cifar10("test", folder).fingerprint()


def test_a_changed_batch_is_refused(folder):
    with open(folder / "data_batch_3.bin", "r+b") as file:
        file.write(b"\x09")
    with pytest.raises(ValueError, match=r"data_batch_3\.bin has MD5"):
        cifar10("train", folder)


def test_what_is_missing_is_named(folder, tmp_path):
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no data_batch_4\.bin"):
        cifar10("train", folder)
    with pytest.raises(FileNotFoundError, match="path must be a folder 'cifar-10-batches-bin'"):
        cifar10("train", tmp_path)
    with pytest.raises(ValueError, match="rows must lie in 1 … 4, the images of the test split, got 5"):
        cifar10("test", folder, rows=5)
