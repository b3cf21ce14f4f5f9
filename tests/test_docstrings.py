"""The examples of all docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import matplotlib
import pytest

import surefoot

ROOT = Path(surefoot.__file__).parent
FILES = [path for path in sorted(ROOT.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", [module_of(path) for path in FILES])
def test_examples_run(name, tmp_path, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "pip install 'surefoot[" not in str(error):  # names the extra that is missing
            raise
        pytest.skip(str(error))
    assert doctest.testmod(module).failed == 0
