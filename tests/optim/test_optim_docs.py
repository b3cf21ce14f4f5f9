"""The quick start of the documentation runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "which-optimizer.md"


def test_the_quick_start_runs_and_has_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    code = block.group(1)
    assert len(code.splitlines()) == 5
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("Step(size=tensor(")
