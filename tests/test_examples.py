"""Every script of the gallery runs as it is, and says something."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import matplotlib
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
EXTRAS = {
    "jax_optax": "optax",
    "lightning_callback": "lightning",
    "optuna_pruner": "optuna",
    "transformers_callback": "transformers",
}
"""Scripts that need an extra, and a package of it."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning against a newer torch
def test_script_runs(script, tmp_path, monkeypatch, capsys):
    if script.stem in EXTRAS:
        pytest.importorskip(EXTRAS[script.stem])
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_is_short_and_says_what_it_shows(script):
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    assert ast.get_docstring(ast.parse(text))


def test_gallery_is_listed():
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [script.name for script in SCRIPTS if f"({script.name})" not in listed] == []
    assert len(SCRIPTS) <= 12
