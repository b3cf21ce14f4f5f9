"""Writing the page: what is refused, what is escaped, how large it is."""

import re
import sqlite3
from html.parser import HTMLParser

import pytest

from surefoot import report
from surefoot.paper import experiments
from surefoot.runs._store import Store
from surefoot.study import StoreError, Study


def test_result_writes_its_page(result, tmp_path):
    path = result.report(tmp_path / "report.html")
    assert "<title>linear-regression on synthetic</title>" in path.read_text(encoding="utf-8")


def test_same_study_gives_the_same_bytes(result, tmp_path):
    one, other = (report.write(result, tmp_path / name).read_bytes() for name in ("one.html", "other.html"))
    assert one == other


def test_page_asks_for_nothing_outside(result, tmp_path):
    text = report.write(result, tmp_path / "report.html").read_text(encoding="utf-8")
    outside = [url for url in re.findall(r"https?://[^\s\"'<>]+", text) if url != "http://www.w3.org/2000/svg"]
    assert outside == []
    assert "default-src 'none'" in text


def test_several_studies_share_a_page(result, validated, tmp_path):
    path = report.write_many({"one": result, "two": validated}, tmp_path / "report.html")
    assert re.findall('data-study="(.*?)"', path.read_text(encoding="utf-8")) == ["one", "two"]


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


def test_missing_store_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        report.from_store(tmp_path / "nothing.db", tmp_path / "report.html")


def test_text_file_is_no_store(tmp_path):
    (tmp_path / "notes.db").write_text("x" * 200)
    with pytest.raises(StoreError, match="not a surefoot study"):
        report.from_store(tmp_path / "notes.db", tmp_path / "report.html")


def test_foreign_database_is_no_store(tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        report.from_store(tmp_path / "other.db", tmp_path / "report.html")


def test_store_without_a_study_is_refused(tmp_path):
    Store.write(tmp_path / "empty.db").close()
    with pytest.raises(StoreError, match="holds no study"):
        report.from_store(tmp_path / "empty.db", tmp_path / "report.html")


def test_study_without_a_run_is_refused(tmp_path):
    study = Study("linear-regression", methods=["sps"], lrs=[0.1], seeds=1, epochs=1, batch_size=5)
    with Store.write(tmp_path / "planned.db") as store:
        store.register(study._context(), study._settings())
    with pytest.raises(StoreError, match="no finished run"):
        report.from_store(tmp_path / "planned.db", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_missing_folder_is_named_before_any_work(result, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        report.write(result, tmp_path / "absent" / "report.html")


def test_folder_is_no_page(result, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        report.write(result, tmp_path)


def test_no_results_are_no_page(tmp_path):
    with pytest.raises(ValueError, match="at least one result"):
        report.write_many({}, tmp_path / "report.html")


def test_nothing_is_left_beside_the_page(result, tmp_path):
    report.write(result, tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_paper_size_study_fits_in_three_megabytes(tmp_path):
    path = report.write(experiments.run("linear-regression"), tmp_path / "report.html")
    assert path.stat().st_size < 3_000_000
