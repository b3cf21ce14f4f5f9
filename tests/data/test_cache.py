import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.processes import wait_until

import surefoot.data
from surefoot.data import ChecksumError, DownloadError, cache, load
from surefoot.data.catalog import PINNED_SHA256

DATA = b"".join(f"{row % 2} 1:{row}.5 112:1\n".encode() for row in range(8124))
ROUTE = "/binary/mushrooms"


@pytest.fixture
def stored(home):
    return home / ".cache" / "surefoot" / "libsvm" / "mushrooms"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_download_lands_in_the_cache_with_its_checksum(site, stored, answer):
    site.answers[ROUTE] = answer(DATA)
    assert load("mushrooms").X.shape == (8124, 112)
    assert stored.read_bytes() == DATA
    assert names(stored.parent) == ["mushrooms", "mushrooms.sha256"]


def test_record_can_be_checked_with_sha256sum(site, stored, answer):
    site.answers[ROUTE] = answer(DATA)
    load("mushrooms")
    record, address = (stored.parent / "mushrooms.sha256").read_text(), site.url + ROUTE
    assert record == f"{cache.sha256_of_file(stored)}  mushrooms\n# {address}\n"
    assert cache.origin(stored) == address


def test_second_load_needs_no_network(site, answer):
    site.answers[ROUTE] = answer(DATA)
    assert load("mushrooms").fingerprint == load("mushrooms").fingerprint
    assert site.requests == [ROUTE]


def test_base_url_can_be_an_argument(site, monkeypatch, answer):
    monkeypatch.delenv("SUREFOOT_LIBSVM_URL")
    site.answers["/mirror" + ROUTE] = answer(DATA)
    assert load("mushrooms", base_url=site.url + "/mirror/").n_classes == 2


def test_base_url_must_be_a_web_address():
    with pytest.raises(ValueError, match=r"base_url must start with https:// .*, got 'file:///etc'"):
        load("mushrooms", base_url="file:///etc")


def test_plain_http_is_refused():
    with pytest.raises(ValueError, match=r"base_url must start with https:// .*, got 'http://example\.org'"):
        load("mushrooms", base_url="http://example.org")


def test_redirection_to_plain_http_is_refused(site, stored, answer):
    site.answers[ROUTE] = answer(b"", status=302, location="http://example.org/mushrooms")
    with pytest.raises(DownloadError, match=r"redirects to 'http://example\.org/mushrooms', which is not https"):
        load("mushrooms")
    assert names(stored.parent) == []


def test_redirection_that_stays_safe_is_followed(site, stored, answer):
    site.answers[ROUTE] = answer(b"", status=302, location=f"{site.url}/elsewhere")
    site.answers["/elsewhere"] = answer(DATA)
    assert load("mushrooms").X.shape == (8124, 112)


def test_file_that_is_announced_too_large_is_not_read(site, stored, answer):
    site.answers[ROUTE] = answer(DATA)
    with pytest.raises(DownloadError, match=rf"the file has {len(DATA):,} bytes, and at most 1,000 are taken"):
        cache.download(site.url + ROUTE, stored, limit_bytes=1000)
    assert names(stored.parent) == []


def test_file_that_grows_too_large_is_given_up(site, stored, answer):
    site.answers[ROUTE] = answer(DATA, announced=-1)  # says nothing about its size
    with pytest.raises(DownloadError, match="more than 1,000 bytes"):
        cache.download(site.url + ROUTE, stored, limit_bytes=1000)
    assert names(stored.parent) == []


def test_download_that_takes_too_long_is_given_up(site, stored, answer):
    site.answers[ROUTE] = answer(DATA, pause=0.05)
    with pytest.raises(DownloadError, match=r"it took more than 0\.1 seconds"):
        cache.download(site.url + ROUTE, stored, limit_seconds=0.1)
    assert names(stored.parent) == []


@pytest.mark.parametrize("ask", [load, surefoot.data.get])
def test_rows_are_those_of_the_catalogue(site, stored, answer, ask):
    site.answers[ROUTE] = answer(DATA[: len(DATA) // 2].rpartition(b"\n")[0])
    with pytest.raises(ChecksumError, match=r"rows, but mushrooms has 8,124 in the catalogue"):
        ask("mushrooms")


def test_changed_file_is_noticed(site, stored, answer):
    site.answers[ROUTE] = answer(DATA)
    load("mushrooms")
    stored.write_bytes(DATA.replace(b"7.5", b"8.5"))
    with pytest.raises(ChecksumError, match="the file was changed or damaged") as caught:
        load("mushrooms")
    assert str(stored) in str(caught.value)


def test_damaged_record_is_noticed(site, stored, answer):
    site.answers[ROUTE] = answer(DATA)
    load("mushrooms")
    (stored.parent / "mushrooms.sha256").write_text("")
    with pytest.raises(ChecksumError):
        load("mushrooms")


def test_download_with_another_than_the_pinned_checksum_is_not_stored(site, stored, answer):
    site.answers["/multiclass/vowel.scale"] = answer(DATA)
    with pytest.raises(ChecksumError, match=PINNED_SHA256["vowel.scale"]):
        load("multiclass/vowel.scale")
    assert names(stored.parent) == []


def test_file_with_another_than_the_pinned_checksum_is_noticed(stored):
    stored.parent.mkdir(parents=True)
    (stored.parent / "vowel.scale").write_bytes(DATA)
    with pytest.raises(ChecksumError, match=PINNED_SHA256["vowel.scale"]):
        load("multiclass/vowel.scale")


@pytest.mark.parametrize(
    ("body", "options", "reason"),
    [
        (b"<html>", {"status": 404}, "the server answers 404"),
        (b"", {"status": 503}, "the server answers 503"),
        (DATA, {"announced": len(DATA) + 5}, f"only {len(DATA)} of {len(DATA) + 5} bytes arrived|IncompleteRead"),
        (b"", {}, "the answer is empty"),
        (b"\n <html>please log in</html>", {}, "a web page, not data"),
    ],
    ids=["not found", "unavailable", "cut", "empty", "login page"],
)
def test_failed_download_says_what_to_do_and_leaves_nothing(site, stored, answer, body, options, reason):
    site.answers[ROUTE] = answer(body, **options)
    with pytest.raises(DownloadError, match=reason) as caught:
        load("mushrooms")
    message = str(caught.value)
    assert site.url + ROUTE in message
    assert f"put it at {stored}" in message
    assert names(stored.parent) == []


def test_without_a_connection_the_message_says_where_to_put_the_file(monkeypatch, stored):
    monkeypatch.setenv("SUREFOOT_LIBSVM_URL", "http://127.0.0.1:9")  # nobody listens at this port
    with pytest.raises(DownloadError, match=re.escape("http://127.0.0.1:9/binary/mushrooms")) as caught:
        load("mushrooms")
    assert f"put it at {stored}" in str(caught.value)
    stored.write_bytes(DATA)
    assert load("mushrooms").X.shape == (8124, 112)


def test_server_that_stops_answering(site, stored, answer):
    site.answers[ROUTE] = answer(DATA, pause=1.0)
    with pytest.raises(DownloadError, match="timed out"):
        cache.download(site.url + ROUTE, stored, timeout=0.1)
    assert names(stored.parent) == []


def test_quick_download_is_silent_off_a_terminal(site, capfd, answer):
    site.answers[ROUTE] = answer(DATA)
    load("mushrooms")
    assert capfd.readouterr() == ("", "")


def test_slow_download_shows_its_progress_on_standard_error(site, capfd, monkeypatch, answer):
    monkeypatch.setattr(cache, "_PATIENCE_SECONDS", 0.0)
    site.answers[ROUTE] = answer(DATA)
    load("mushrooms")
    out, err = capfd.readouterr()
    assert out == ""
    assert "mushrooms" in err


def test_progress_can_be_turned_off(site, capfd, monkeypatch, answer):
    monkeypatch.setattr(cache, "_PATIENCE_SECONDS", 0.0)
    site.answers[ROUTE] = answer(DATA)
    load("mushrooms", progress=False)
    assert capfd.readouterr().err == ""


def test_it_may_be_downloaded_twice_at_once(site, stored, answer):
    site.answers[ROUTE] = answer(DATA, together=threading.Barrier(2, timeout=60))
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: load("mushrooms").fingerprint, range(2)))
    assert site.requests == [ROUTE, ROUTE]
    assert set(found) == {load("mushrooms").fingerprint}
    assert names(stored.parent) == ["mushrooms", "mushrooms.sha256"]


def test_killed_download_leaves_no_file_under_the_final_name(site, stored, answer):
    site.answers[ROUTE] = answer(DATA, pause=0.05)
    code = "from surefoot.data import load; load('mushrooms')"
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: list(stored.parent.glob(".*.part")), run)
    run.kill()
    run.communicate(timeout=60)
    assert not stored.exists()
    assert list(stored.parent.glob(".*.part"))
    site.answers[ROUTE] = answer(DATA)
    assert load("mushrooms").X.shape == (8124, 112)


def test_full_disk_is_named_and_leaves_nothing(site, stored, answer, full_disk):
    site.answers[ROUTE] = answer(DATA)
    with full_disk(10_000), pytest.raises(OSError, match="cannot store the download") as caught:
        load("mushrooms")
    assert Path(caught.value.filename).parent == stored.parent
    assert names(stored.parent) == []
