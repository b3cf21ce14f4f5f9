"""The Python of README and docs runs as it stands, and links inside the project lead somewhere."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_HERE = ("README.md", "index.md", "theory.md")
"""The guides are run by the tests of their rooms."""


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name in RUN_HERE], ids=lambda page: page.name)
def test_code_runs(page, tmp_path, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, code in enumerate(blocks(page), 1):
        exec(compile(code, f"{page.name}, block {number}", "exec"), names)
    assert len(names) > 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_exist(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_the_session_in_the_page_on_worst_cases_is_what_it_shows():
    pytest.importorskip("PEPit")
    runner = doctest.DocTestRunner()
    for code in blocks(ROOT / "docs" / "pep.md"):
        runner.run(doctest.DocTestParser().get_doctest(code, {}, "pep.md", None, 0))
    assert runner.tries > 0
    assert runner.failures == 0
