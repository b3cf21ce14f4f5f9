"""Writing the page: what is refused, what is escaped, how large it is."""

import re
import sqlite3
from contextlib import closing
from html.parser import HTMLParser

import pytest

from surefoot import report
from surefoot.paper import experiments
from surefoot.study import StoreError


def test_result_writes_its_page_alone_and_the_same_each_time(result, tmp_path):
    one = result.report(tmp_path / "report.html").read_bytes()
    assert b"<title>linear-regression on synthetic</title>" in one
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert one == result.report(tmp_path / "report.html").read_bytes()


def test_page_asks_for_nothing_outside(result, tmp_path):
    text = report.write(result, tmp_path / "report.html").read_text(encoding="utf-8")
    outside = [url for url in re.findall(r"https?://[^\s\"'<>]+", text) if url != "http://www.w3.org/2000/svg"]
    assert outside == []
    assert "default-src 'none'" in text


def test_title_cannot_become_markup(result, tmp_path, hostile_title):
    class Counter(HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags, self.text = [], []

        def handle_starttag(self, tag, attrs):
            self.tags.append((tag, tuple(name for name, _ in attrs)))

        def handle_data(self, data):
            self.text.append(data)

    plain, hostile = Counter(), Counter()
    plain.feed(report.write(result, tmp_path / "a.html", title="plain").read_text(encoding="utf-8"))
    hostile.feed(report.write(result, tmp_path / "b.html", title=hostile_title).read_text(encoding="utf-8"))
    assert hostile.tags == plain.tags
    assert hostile_title in hostile.text


def test_a_file_that_is_no_study_is_named(tmp_path):
    (tmp_path / "notes.db").write_text("x" * 200)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    for name, kind in {"nothing": FileNotFoundError, "notes": StoreError, "other": StoreError}.items():
        with pytest.raises(kind, match=name):
            report.from_store(tmp_path / f"{name}.db", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_missing_folders_and_results_are_named_before_any_work(result, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        report.write(result, tmp_path / "absent" / "report.html")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        report.write(result, tmp_path)
    with pytest.raises(ValueError, match="at least one result"):
        report.write_many({}, tmp_path / "report.html")


def test_paper_size_study_fits_in_three_megabytes(tmp_path):
    path = report.write(experiments.run("linear-regression"), tmp_path / "report.html")
    assert path.stat().st_size < 3_000_000
