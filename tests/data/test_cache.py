"""Downloads from a real server: checked, kept, and nothing left of what fails."""

import hashlib
from pathlib import Path

import pytest

from surefoot.data import DownloadError, folders
from surefoot.data.cache import download

BODY = b"one file\n" * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def url(site):
    folder, address = site
    (folder / "file.bin").write_bytes(BODY)
    return f"{address}/file.bin"


def test_folders_are_those_of_the_environment(home, monkeypatch):
    assert folders() == [home / ".cache" / "surefoot"]
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.setenv("SUREFOOT_DATA", "~/data")
    assert folders() == [home / "data", Path("/elsewhere/surefoot")]


def test_a_file_is_downloaded_once(url, site, capfd):
    path = download(url, sha256=SHA256)
    assert path.read_bytes() == BODY
    assert path.parent == folders()[0]
    (site[0] / "file.bin").unlink()
    assert download(url, sha256=SHA256) == path
    assert capfd.readouterr().out == ""


def test_another_file_is_refused_and_not_kept(url):
    with pytest.raises(ValueError, match="does not match the known hash"):
        download(url, sha256="0" * 64)
    assert list(folders()[0].iterdir()) == []


def test_what_the_server_does_not_have_is_named_with_the_way_around(url):
    with pytest.raises(DownloadError, match=r"404.*put it at .*other\.bin"):
        download(url.replace("file", "other"), sha256=SHA256)


def test_without_a_folder_to_write_to(home, url, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    with pytest.raises(DownloadError, match="set SUREFOOT_DATA to a folder that has it or can be written to"):
        download(url, sha256=SHA256)
