"""The quick start of the documentation runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "which-optimizer.md"


def test_the_quick_start_runs_and_has_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    code = block.group(1)
    assert len(code.splitlines()) == 5
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("Step(size=tensor(")


def test_the_page_on_geometries_runs_and_proves_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    page = DOCS / "geometries.md"
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for number, code in enumerate(blocks, 1):
        exec(compile(code, f"{page.name}, block {number}", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("Step(size=tensor(")
    assert float(printed[1]) < 0.5
    assert "reached=True) True" in printed[2]
