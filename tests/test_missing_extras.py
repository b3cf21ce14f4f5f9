"""Without an extra, what needs it says which one to install; everything else works."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import surefoot as sf
from surefoot.cli import app

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = {"bench", "dev", "docs"}


def study():
    return sf.Study("toy", methods="sgd", lrs=[0.1], seeds=1, epochs=2, batch_size=1)


def verify():
    from surefoot import pep

    pep.one_step_index(method="sgd", lr=1.0)


NEEDS = {
    "dask": (["distributed"], lambda: study().run(engine="dask")),
    "jax": (["optax"], lambda: importlib.import_module("surefoot.integrations.optax")),
    "lightning": (["lightning.pytorch"], lambda: importlib.import_module("surefoot.integrations.lightning")),
    "optuna": (["optuna.pruners"], lambda: importlib.import_module("surefoot.integrations.optuna")),
    "pep": (["PEPit"], verify),
    "tensorboard": (["torch.utils.tensorboard"], lambda: importlib.import_module("surefoot.integrations.tensorboard")),
    "transformers": (["transformers"], lambda: importlib.import_module("surefoot.integrations.transformers")),
}
"""For every extra: modules of it, and something that needs them."""


def test_no_extra_is_forgotten():
    assert set(NEEDS) == set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS


@pytest.mark.parametrize("extra", NEEDS)
def test_the_error_names_the_extra(extra, monkeypatch, tmp_path):
    modules, use = NEEDS[extra]
    monkeypatch.chdir(tmp_path)
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)  # importing it fails, as if it were not there
    for ours in ("surefoot.runs._dask", *(f"surefoot.integrations.{name}" for name in (*NEEDS, "optax"))):
        monkeypatch.delitem(sys.modules, ours, raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'surefoot\[{extra}\]'"):
        use()


WITHOUT_EXTRAS = """
import contextlib, io, json, sys

for name in {blocked!r}:
    sys.modules[name] = None  # importing it fails, and nobody finds it
from surefoot.cli import main

found = {{}}
for words in {commands!r}:
    sys.argv, out, err = ["surefoot", *words.split()], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            found[words] = (end.code or 0, out.getvalue(), err.getvalue())
print(json.dumps(found))
"""
"""The command where no package of an extra can be imported: code, output and complaints of each call."""

FINE = ("--help", "doctor", "data list", "claims quadratics --quiet")


@pytest.fixture(scope="module")
def commands():
    blocked = ["PEPit", "cvxpy", "jax", "optax", "dask", "distributed"]
    blocked += ["lightning", "optuna", "tensorboard", "transformers", "accelerate"]
    code = WITHOUT_EXTRAS.format(blocked=blocked, commands=[*FINE, "pep spp", "claims spp-worst-case --json"])
    environment = {**os.environ, "SUREFOOT_PEP_CACHE": "off"}  # what was solved before needs no package
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("words", FINE)
def test_the_command_works_without_any_extra(commands, words):
    code, _, complaints = commands[words]
    assert code == 0, complaints


def test_a_command_that_needs_one_says_so(commands):
    code, _, complaints = commands["pep spp"]
    assert code == 1
    assert "pip install 'surefoot[pep]'" in complaints
    assert "Traceback" not in complaints


def test_a_claim_that_needs_one_is_not_judged(commands):
    (row,) = json.loads(commands["claims spp-worst-case --json"][1])
    assert row["verdict"] == "not-run"
    assert "pip install 'surefoot[pep]'" in row["measured"]


def test_doctor_says_how_to_get_what_is_missing(monkeypatch):
    monkeypatch.setattr("surefoot.cli._machine._installed", lambda name: None)
    shown = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "120"}).stdout
    installed = set(importlib.metadata.metadata("surefoot").get_all("Provides-Extra"))  # may be older than pyproject
    assert installed >= {"jax", "pep"}
    for extra in installed - FOR_DEVELOPERS:
        assert f"pip install 'surefoot[{extra}]'" in shown
    assert "pip install 'numpy'" in shown
