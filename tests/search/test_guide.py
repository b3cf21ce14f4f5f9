"""The guide runs as it is written."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "tune.md"


@pytest.mark.slow
def test_every_block_of_the_guide(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    names = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    assert "has the smallest bound" in capsys.readouterr().out
