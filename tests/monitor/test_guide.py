"""The guide runs as it is written, and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "when-a-run-diverges.md"


@pytest.mark.slow
def test_every_block_runs_as_written():
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", text, re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        found, expected = (_without_numbers(part) for part in (printed.getvalue(), shown))
        assert found == expected


def _without_numbers(text: str) -> list[str]:
    """The words: the numbers of a training depend on the machine in their last digits."""
    return re.sub(r"[-\d.e]*\d[\d.%]*", "#", text).split()
