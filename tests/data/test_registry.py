from pathlib import Path

import numpy as np
import pytest

from surefoot.data import ChecksumError, available, digits, folders, get, load
from surefoot.data.catalog import CATALOG
from surefoot.data.registry import IMAGES

OWN = b"-1 1:2\n1 3:4\n-1 2:1\n"
MUSHROOMS = OWN * (8124 // 3)


@pytest.fixture
def data_folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "data"
    (folder / "libsvm").mkdir(parents=True)
    monkeypatch.setenv("SUREFOOT_DATA", str(folder))
    return folder


def test_folder_without_any_variable(home):
    assert folders() == [home / ".cache" / "surefoot"]


def test_folder_of_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folders() == [tmp_path / "surefoot"]


def test_relative_xdg_folder_is_ignored(monkeypatch, home):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert folders() == [home / ".cache" / "surefoot"]


def test_own_variable_comes_first(monkeypatch, tmp_path, home):
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path))
    assert folders() == [tmp_path, home / ".cache" / "surefoot"]


@pytest.mark.parametrize("subfolder", [".", "libsvm"])
def test_file_is_found_in_the_data_folder_and_below(data_folder, subfolder):
    (data_folder / subfolder / "mushrooms").write_bytes(MUSHROOMS)
    assert load("mushrooms").X.shape == (8124, 112)


def test_download_goes_to_the_data_folder(data_folder, site, answer):
    site.answers["/binary/mushrooms"] = answer(MUSHROOMS)
    load("mushrooms")
    assert (data_folder / "libsvm" / "mushrooms").read_bytes() == MUSHROOMS


def test_download_goes_to_the_cache_if_the_data_folder_cannot_be_written(tmp_path, site, home, monkeypatch, answer):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path / "file"))
    site.answers["/binary/mushrooms"] = answer(MUSHROOMS)
    load("mushrooms")
    assert (home / ".cache" / "surefoot" / "libsvm" / "mushrooms").is_file()


def test_no_folder_that_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(PermissionError, match=r"no folder to store mushrooms in: cannot write to .*set SUREFOOT_DATA"):
        load("mushrooms")


def test_published_files_equal_the_bundled_ones(published, monkeypatch):
    monkeypatch.setenv("SUREFOOT_DATA", str(published))
    assert load("multiclass/dna.scale").fingerprint == load("dna").fingerprint


def test_own_file_by_path(tmp_path):
    (tmp_path / "mine").write_bytes(OWN)
    data = load(tmp_path / "mine")
    assert data.labels == (-1.0, 1.0)
    assert data.X.tolist() == [[2, 0, 0], [0, 0, 4], [0, 1, 0]]


def test_own_file_by_name(data_folder):
    (data_folder / "libsvm" / "mine.xyz").write_bytes(OWN)
    assert load("mine.xyz").n_classes == 2


def test_test_file_gets_classes_and_width_of_the_training_file(tmp_path):
    (tmp_path / "mine").write_bytes(b"4 1:1\n7 2:1\n9 3:1\n")
    (tmp_path / "mine.t").write_bytes(b"9 1:1\n")
    data = load(tmp_path / "mine", "test")
    assert (data.y.tolist(), data.X.shape, data.n_classes) == ([2], (1, 3), 3)


def test_label_that_only_the_test_file_has(tmp_path):
    (tmp_path / "mine").write_bytes(b"4 1:1\n7 2:1\n")
    (tmp_path / "mine.t").write_bytes(b"5 1:1\n")
    with pytest.raises(ValueError, match="label 5 is not among the known labels 4, 7"):
        load(tmp_path / "mine", "test")


@pytest.mark.parametrize(("labels", "task"), [("1 2 1", "classification"), ("1 2.5 1", "regression")])
def test_task_of_an_own_file_follows_from_its_labels(tmp_path, labels, task):
    (tmp_path / "mine").write_text("".join(f"{label} 1:1\n" for label in labels.split()))
    assert load(tmp_path / "mine").task == task


def test_task_can_be_given(tmp_path):
    (tmp_path / "mine").write_bytes(OWN)
    np.testing.assert_array_equal(load(tmp_path / "mine", task="regression").y, [-1, 1, -1])


def test_task_of_the_collection_follows_from_the_folder(data_folder):
    (data_folder / "libsvm" / "abalone_scale").write_bytes(OWN * (4177 // 3) + b"1 1:1\n")
    assert load("abalone").task == "regression"


def test_file_of_the_site_by_folder_and_name(site, answer):
    site.answers["/multiclass/sector/sector.t.bz2"] = answer(OWN)
    assert load("multiclass/sector/sector.t.bz2", dense=False).X.nnz == 3


def test_downloaded_file_is_checked_under_its_bare_name_too(site, home, answer):
    site.answers["/binary/a9a.val"] = answer(OWN)
    load("binary/a9a.val")
    (home / ".cache" / "surefoot" / "libsvm" / "a9a.val").write_bytes(OWN * 2)
    with pytest.raises(ChecksumError):
        load("a9a.val")


def test_files_of_one_name_in_two_folders_are_two(site, home, answer):
    site.answers |= {"/binary/same": answer(OWN), "/regression/same": answer(OWN * 2)}
    for _ in range(2):
        assert len(load("binary/same").y) == 3
        assert len(load("regression/same").y) == 6
    assert site.requests == ["/binary/same", "/regression/same"]
    assert get("regression/same") == [home / ".cache" / "surefoot" / "libsvm" / "regression" / "same"]


def test_bare_name_of_the_catalogue_is_not_that_of_another_folder(data_folder, site, answer):
    (data_folder / "libsvm" / "mushrooms").write_bytes(MUSHROOMS)
    site.answers["/regression/mushrooms"] = answer(OWN)
    assert len(load("regression/mushrooms").y) == 3
    assert len(load("binary/mushrooms").y) == 8124


@pytest.mark.parametrize("dense", [True, False])
def test_images_as_rows_of_pixels(dense):
    data = load("digits", "test", dense)
    pixels = data.X if dense else data.X.toarray()
    np.testing.assert_array_equal(pixels, digits("test").images.reshape(360, 64) / 255)
    np.testing.assert_array_equal(data.y, digits("test").labels)


def test_get_of_images_returns_the_file_of_the_package():
    assert [path.name for path in get("digits")] == ["digits.bin.xz"]


def test_only_cifar10_is_made_from_a_path():
    with pytest.raises(ValueError, match=r"path must be left out for 'vowel', .* got 'here'"):
        get("vowel", path="here")


def test_unknown_name_suggests_images_too():
    with pytest.raises(ValueError, match="did you mean 'cifar10'"):
        load("cifar-10")


def test_unknown_name_suggests_close_ones():
    with pytest.raises(ValueError, match=r"data set must be .*, got 'Mushroms'; did you mean 'mushrooms'"):
        load("Mushroms")


@pytest.mark.parametrize("name", ["", "binary/../../secret", "binary/", "multilabel/bibtex", "no/such/file"])
def test_name_that_means_nothing(name):
    with pytest.raises(ValueError, match="data set must be a name"):
        load(name)


def test_unknown_split():
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'valid'"):
        load("vowel", "valid")


def test_missing_test_file():
    with pytest.raises(ValueError, match="the data set 'iris' has no test file"):
        load("iris", "test")


def test_get_returns_the_files_of_the_package():
    assert [path.name for path in get("dna")] == ["dna.scale.xz", "dna.scale.t.xz"]
    assert all(path.is_file() for path in get("dna"))


def test_get_downloads_training_and_test_file_once(site, home, answer):
    site.answers |= {"/binary/a1a": answer(OWN * (1605 // 3)), "/binary/a1a.t": answer(OWN)}
    folder = home / ".cache" / "surefoot" / "libsvm"
    assert get("a1a") == get("a1a") == [folder / "a1a", folder / "a1a.t"]
    assert site.requests == ["/binary/a1a", "/binary/a1a.t"]


def test_list_tells_where_each_data_set_is(data_folder):
    (data_folder / "libsvm" / "mushrooms").write_bytes(OWN)
    infos = {info.name: info for info in available()}
    assert [infos[name].where for name in ("vowel", "mushrooms", "iris")] == ["bundled", "cached", "downloadable"]
    assert [infos[name].path for name in ("mushrooms", "iris")] == [data_folder / "libsvm" / "mushrooms", None]
    assert (infos["dna"].rows, infos["dna"].features, infos["dna"].classes) == (2000, 180, 3)


def test_list_has_own_files_and_nothing_else(data_folder):
    for name in ("mine", "mine.t", "mine.sha256", "SHA256SUMS", ".mine.1.part", "vowel.scale"):
        (data_folder / "libsvm" / name).write_bytes(OWN)
    (data_folder / "unrelated.txt").write_bytes(OWN)
    assert {info.name for info in available()} - {*CATALOG, *IMAGES} == {"mine"}


def test_list_has_each_name_once_and_what_is_here_first():
    infos = available()
    assert len({info.name for info in infos}) == len(infos) == len(CATALOG) + len(IMAGES)
    assert [info.name for info in infos[:3]] == ["vowel", "dna", "digits"]
