import functools
import os
import pickle
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.data import cifar_files
from tests.data.cifar_files import ROWS, archive, batches, files, folder, python_batch

from surefoot.data import ChecksumError, DownloadError, available, cifar, cifar10, get, load

ROUTE = "/cifar-10-binary.tar.gz"


@pytest.fixture(autouse=True)
def release(monkeypatch):
    """Stands for the published release, with five images a batch."""
    found = cifar_files.release()
    monkeypatch.setattr(cifar, "RELEASE", found)
    return found


@pytest.fixture
def prepared(home) -> Path:
    return home / ".cache" / "surefoot" / "cifar10" / "cifar-10.bin"


@pytest.fixture
def unpacked(tmp_path) -> Path:
    return folder(tmp_path / "cifar-10-batches-bin", files("bin"))


@functools.cache
def expected(split: str) -> np.ndarray:
    """The rows, class and pixels, read in the slowest way."""
    content = batches()
    chosen = [content[name] for name in content if name.startswith("test") == (split == "test")]
    return np.array([list(rows[start : start + 3073]) for rows in chosen for start in range(0, len(rows), 3073)])


def check(images, split="train"):
    rows = expected(split)
    np.testing.assert_array_equal(images.labels, rows[:, 0])
    np.testing.assert_array_equal(images.images.reshape(len(rows), -1), rows[:, 1:])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("layout", ["bin", "py"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_every_layout_gives_the_same_images(tmp_path, split, layout, packed):
    source = folder(tmp_path / "source" / f"cifar-10-batches-{layout}", files(layout))
    if packed:
        source = tmp_path / "some.tar.gz"
        source.write_bytes(archive(files(layout), f"cifar-10-batches-{layout}/"))
    check(cifar10(split, source), split)


def test_folder_above(unpacked):
    check(cifar10("train", unpacked.parent))


def test_archive_in_a_folder(tmp_path):
    folder(tmp_path / "downloads", {"cifar-10-python.tar.gz": archive(files("py"))})
    check(cifar10("train", str(tmp_path / "downloads")))


def test_what_the_images_say_about_themselves(unpacked):
    images = cifar10("test", unpacked)
    assert (images.name, len(images), images.shape) == ("cifar10-test", ROWS, (3, 32, 32))
    assert len(images.classes) == 10
    assert images.statistics() == ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def test_pixels_are_a_view_of_the_prepared_file(unpacked):
    base = cifar10("train", unpacked).images
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_prepared_file_is_used_without_the_source(unpacked, prepared):
    cifar10("train", unpacked)
    assert names(prepared.parent) == ["cifar-10.bin"]
    check(cifar10("test"), "test")


@pytest.mark.parametrize("below", [".", "cifar10"])
def test_unpacked_folder_in_a_data_folder_is_found(tmp_path, monkeypatch, below):
    folder(tmp_path / "data" / below / "cifar-10-batches-py", files("py"))
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path / "data"))
    check(cifar10())
    assert (tmp_path / "data" / "cifar10" / "cifar-10.bin").is_file()


def test_pickle_holds_the_place_of_the_file_only(unpacked):
    images = cifar10("train", unpacked)
    content = pickle.dumps(images)
    assert len(content) < 1000
    again = pickle.loads(content)
    check(again)
    assert again.fingerprint() == images.fingerprint()


def test_pickle_on_a_machine_that_has_the_file_elsewhere(unpacked, prepared, tmp_path, monkeypatch):
    content = pickle.dumps(cifar10("test", unpacked))
    (tmp_path / "other").mkdir()
    prepared.rename(tmp_path / "other" / "cifar-10.bin")
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path / "other"))
    check(pickle.loads(content), "test")


def test_fingerprint_stands_for_the_published_checksums(unpacked, monkeypatch, release):
    found = cifar10("train", unpacked).fingerprint()
    assert found != cifar10("test").fingerprint()
    other = replace(release, binary_md5={**release.binary_md5, "data_batch_3": "0"})
    monkeypatch.setattr(cifar, "RELEASE", other)
    assert found != cifar._mapped(cifar.prepared(), "train", check=False).fingerprint()


def test_unknown_split():
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'valid'"):
        cifar10("valid")


def test_missing_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path is '.*nowhere', which does not exist: give one of the archives"):
        cifar10("train", tmp_path / "nowhere")


def test_folder_without_any_batch(tmp_path):
    with pytest.raises(FileNotFoundError, match="which has no CIFAR-10 in it"):
        cifar10("train", tmp_path)


def test_folder_that_lacks_a_batch(unpacked, prepared):
    (unpacked / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"batches-bin has no data_batch_4\.bin \(binary layout\)"):
        cifar10("train", unpacked)
    assert names(prepared.parent) == []


def tampered(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


BAD_BATCHES = {
    "tampered": (tampered, "has MD5 .* but the published one has"),
    "cut": (lambda content: content[:-1], f"has {ROWS * 3073 - 1} bytes, but the published one has {ROWS * 3073}"),
    "empty": (lambda content: b"", "has 0 bytes"),
    "long": (lambda content: content * 3, "bytes, but the published one has"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
@pytest.mark.parametrize(("change", "message"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_batch_that_is_not_the_published_one(tmp_path, prepared, change, message, packed):
    contents = files("bin")
    contents["data_batch_2.bin"] = change(contents["data_batch_2.bin"])
    source = folder(tmp_path / "source", {"some.tar": archive(contents)} if packed else contents)
    with pytest.raises(ChecksumError, match=r"data_batch_2\.bin.*" + message):
        cifar10("test", source / "some.tar" if packed else source)
    assert names(prepared.parent) == []


def test_source_is_checked_even_if_the_prepared_file_is_there(unpacked):
    cifar10("train", unpacked)
    path = unpacked / "test_batch.bin"
    path.write_bytes(tampered(path.read_bytes()))
    with pytest.raises(ChecksumError, match=r"test_batch\.bin has MD5"):
        cifar10("train", unpacked)


@pytest.mark.parametrize("length", [0, 5, 1000, 50_000, -2000], ids=str)
def test_archive_that_is_cut_off(tmp_path, prepared, length):
    path = tmp_path / "some.tar.gz"
    path.write_bytes(archive(files("bin"))[:length])
    with pytest.raises(ValueError, match=r"some\.tar\.gz is not a tar archive, or damaged, or not complete"):
        cifar10("train", path)
    assert names(prepared.parent) == []


def test_archive_with_a_changed_byte(tmp_path, prepared):
    content = bytearray(archive(files("bin")))
    content[len(content) // 2] ^= 255
    (tmp_path / "some.tar.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"some\.tar\.gz"):
        cifar10("train", tmp_path / "some.tar.gz")
    assert names(prepared.parent) == []


def test_file_that_is_no_archive(tmp_path):
    (tmp_path / "some.tar.gz").write_text("<html>not found</html>")
    with pytest.raises(ValueError, match="is not a tar archive, or damaged, or not complete"):
        cifar10("train", tmp_path / "some.tar.gz")


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "cifar-10-batches-bin/../../outside"])
def test_archive_with_a_path_that_leaves_its_folder(tmp_path, prepared, name):
    path = tmp_path / "some.tar.gz"
    path.write_bytes(archive(files("bin"), "cifar-10-batches-bin/", tarfile.TarInfo(name)))
    with pytest.raises(ValueError, match=f"has a member '{name}' outside its own folder"):
        cifar10("train", path)
    assert names(prepared.parent) == []
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_archive_with_a_batch_that_is_no_file(tmp_path, kind):
    contents = files("bin")
    del contents["test_batch.bin"]
    link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
    link.type, link.linkname = kind, "data_batch_1.bin"
    (tmp_path / "some.tar.gz").write_bytes(archive(contents, "cifar-10-batches-bin/", link))
    with pytest.raises(ValueError, match=r"test_batch\.bin', is not a file"):
        cifar10("train", tmp_path / "some.tar.gz")


def with_pickle(monkeypatch, tmp_path, content: bytes) -> Path:
    """A folder whose first batch is another pickle, with a release that publishes just that."""
    contents = {**files("py"), "data_batch_1": content}
    published = cifar_files._md5(content)
    python_md5 = {**cifar.RELEASE.python_md5, "data_batch_1": published}
    monkeypatch.setattr(cifar, "RELEASE", replace(cifar.RELEASE, python_md5=python_md5))
    return folder(tmp_path / "source", contents)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickle_that_calls_something_is_refused_and_not_run(monkeypatch, tmp_path, prepared):
    source = with_pickle(monkeypatch, tmp_path, pickle.dumps(Evil(str(tmp_path / "evil")), protocol=2))
    with pytest.raises(ValueError, match=r"data_batch_1 is not a batch of CIFAR-10: it asks for posix\.mkdir"):
        cifar10("train", source)
    assert not (tmp_path / "evil").exists()
    assert names(prepared.parent) == []


def test_pickle_with_another_checksum_is_not_opened(tmp_path):
    contents = {**files("py"), "data_batch_1": pickle.dumps(Evil(str(tmp_path / "evil")), protocol=2)}
    with pytest.raises(ChecksumError, match="data_batch_1 has MD5"):
        cifar10("train", folder(tmp_path / "source", contents))


@pytest.mark.parametrize("content", [b"", b"\x80\x02}.", b"nonsense", python_batch(batches()["data_batch_1"])[:-1]])
def test_pickle_of_something_else(monkeypatch, tmp_path, content):
    with pytest.raises(ValueError, match="data_batch_1 is not a batch of CIFAR-10"):
        cifar10("train", with_pickle(monkeypatch, tmp_path, content))


def test_pickle_of_other_images(monkeypatch, tmp_path):
    with pytest.raises(ChecksumError, match="data_batch_1 has MD5"):
        cifar10("train", with_pickle(monkeypatch, tmp_path, python_batch(batches()["data_batch_2"])))


def test_prepared_file_that_was_changed(unpacked, prepared):
    cifar10("train", unpacked)
    content = prepared.read_bytes()
    prepared.write_bytes(tampered(content))
    check(cifar10("train"))  # the last byte is of a test image
    with pytest.raises(ChecksumError, match=r"cifar-10\.bin, test_batch, has MD5"):
        cifar10("test")


def test_prepared_file_that_was_cut(unpacked, prepared):
    cifar10("train", unpacked)
    prepared.write_bytes(prepared.read_bytes()[:-1])
    with pytest.raises(ChecksumError, match=rf"has {6 * ROWS * 3073 - 1} bytes, must have .* delete .* to prepare it"):
        cifar10("train")


@pytest.mark.parametrize("place", [0, -1], ids=["training", "test"])
def test_get_checks_the_prepared_file(unpacked, prepared, place):
    get("cifar10", path=unpacked)
    content = bytearray(prepared.read_bytes())
    content[place] ^= 1
    prepared.write_bytes(content)
    with pytest.raises(ChecksumError, match="it was changed or damaged"):
        get("cifar10")


def test_full_disk_is_named_and_leaves_nothing(unpacked, prepared, full_disk):
    with full_disk(50_000), pytest.raises(OSError, match="cannot store the prepared CIFAR-10") as caught:
        cifar10("train", unpacked)
    assert Path(caught.value.filename).parent == prepared.parent
    assert names(prepared.parent) == []


def test_it_may_be_prepared_twice_at_once(unpacked, prepared, monkeypatch):
    both, read = threading.Barrier(2, timeout=60), cifar.read_batches

    def together(*arguments):
        for batch in read(*arguments):
            both.wait()
            yield batch

    monkeypatch.setattr(cifar, "read_batches", together)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: cifar10("train", unpacked).fingerprint(), range(2)))
    assert set(found) == {cifar10("train").fingerprint()}
    assert names(prepared.parent) == ["cifar-10.bin"]


def test_download_prepare_and_open(site, prepared, answer):
    site.answers[ROUTE] = answer(archive(files("bin")))
    check(cifar10())
    check(cifar10("test"), "test")
    assert site.requests == [ROUTE]
    assert names(prepared.parent) == ["cifar-10-binary.tar.gz", "cifar-10.bin"]


def test_download_from_a_mirror(site, monkeypatch, answer):
    monkeypatch.delenv("SUREFOOT_CIFAR_URL")
    site.answers["/mirror" + ROUTE] = answer(archive(files("bin")))
    check(cifar10(base_url=site.url + "/mirror/"))


def test_download_with_another_checksum_is_not_stored(site, prepared, answer, release):
    site.answers[ROUTE] = answer(archive(files("py")))
    with pytest.raises(ChecksumError, match=release.archive_sha256):
        cifar10()
    assert names(prepared.parent) == []


def test_failed_download_says_where_to_put_the_archive(site, prepared):
    with pytest.raises(DownloadError, match="the server answers 404") as caught:
        cifar10()
    assert f"put it at {prepared.parent / 'cifar-10-binary.tar.gz'}" in str(caught.value)
    assert "cifar10/cifar-10-binary.tar.gz" in str(caught.value)


def test_get_returns_the_prepared_file(unpacked, prepared):
    assert get("cifar10", path=unpacked) == get("cifar10") == [prepared]


def test_list_tells_where_it_is(tmp_path, monkeypatch, unpacked):
    def place():
        (info,) = [info for info in available() if info.name == "cifar10"]
        return info.where, info.path, info.rows, info.features, info.classes

    assert place() == ("downloadable", None, 50_000, 3072, 10)
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path))
    assert place()[:2] == ("cached", unpacked)


def test_rows_of_pixels(unpacked):
    get("cifar10", path=unpacked)
    np.testing.assert_array_equal(load("cifar10", "test").X * 255, expected("test")[:, 1:])


def test_published_files(published, monkeypatch):
    monkeypatch.setattr(cifar, "RELEASE", cifar_files.RELEASE)
    if not (published / "cifar-10-batches-bin").is_dir():
        pytest.skip("SUREFOOT_DATA has no cifar-10-batches-bin")
    train, test = (cifar10(split, published) for split in ("train", "test"))
    assert (len(train), len(test)) == (50_000, 10_000)
    assert np.bincount(train.labels).tolist() == [5000] * 10
    pixels = train.images[:5000] / 255
    np.testing.assert_allclose(pixels.mean(axis=(0, 2, 3)), train.mean, atol=0.01)
