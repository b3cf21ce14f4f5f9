"""``surefoot init`` writes a spec that runs as it is, and never destroys anything."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from surefoot.cli._init import STARTS
from surefoot.cli._main import app
from surefoot.problems._create import PROBLEMS
from surefoot.study import Spec, Study


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    return tmp_path


def test_spec_runs_as_it_is(folder):
    written = run("init", "--problem", "linear-regression")
    assert written.exit_code == 0, written.stderr
    assert "surefoot study SPEC.toml" in written.stdout
    found = run("study", "SPEC.toml", "--json")
    assert found.exit_code == 0, found.stderr
    rows = json.loads(found.stdout)["methods"]
    assert [row["algorithm"] for row in rows] == ["sgd", "sps", "spp"]
    assert (folder / "SPEC.db").exists()


@pytest.mark.parametrize("problem", STARTS)
def test_every_start_is_a_spec(problem, folder):
    assert run("init", "spec.toml", "--problem", problem, "--quiet").stdout == ""
    assert Spec.from_toml("spec.toml").problem == problem
    assert problem in PROBLEMS


@pytest.mark.parametrize("problem", STARTS)
def test_every_key_is_explained_and_works_when_it_is_uncommented(problem, folder):
    run("init", "spec.toml", "--problem", problem)
    text = (folder / "spec.toml").read_text(encoding="utf-8")
    if STARTS[problem].data is None:
        text = re.sub("^(?=methods)", 'data = "vowel"\n', text, flags=re.MULTILINE)
    uncommented = re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)
    (folder / "spec.toml").write_text(uncommented, encoding="utf-8")
    assert set(tomllib.loads(uncommented)) == {field.name for field in fields(Spec)}
    Spec.from_toml("spec.toml")


@pytest.mark.parametrize("problem", [name for name in STARTS if name != "resnet20"])  # its data are not in the package
def test_options_of_the_problem_are_its_own(problem, folder):
    run("init", "spec.toml", "--problem", problem)
    text = (folder / "spec.toml").read_text(encoding="utf-8")
    begin, _, options = text.partition("[problem_options]")
    options = re.sub(r"^# (?=\w+ = )", "", options, flags=re.MULTILINE)
    (folder / "spec.toml").write_text(f"{begin}[problem_options]{options}", encoding="utf-8")
    assert Study.from_spec("spec.toml").steps > 0


class TestProblemOfTheUsers:
    def test_module_is_written_beside_the_spec_and_trains(self, folder):
        (folder / "deep").mkdir()
        written = run("init", "deep/mine.toml", "--problem", "init_network:make")
        assert "deep/init_network.py" in written.stdout
        spec = folder / "deep" / "mine.toml"
        smaller = {"count = 5": "count = 1", "epochs = 3": "epochs = 1", '"sgd", "sps", "ngn"': '"sps"'}
        text = spec.read_text(encoding="utf-8")
        for old, new in smaller.items():
            assert old in text
            text = text.replace(old, new)
        spec.write_text(text, encoding="utf-8")
        found = run("study", "deep/mine.toml", "--json")
        assert found.exit_code == 0, found.stderr
        assert len(json.loads(found.stdout)["methods"]) == 1

    def test_module_that_exists_is_left_alone(self, folder):
        (folder / "mine.py").write_text("precious")
        assert "mine.py" not in run("init", "--force", "--problem", "mine:make").stdout
        assert (folder / "mine.py").read_text() == "precious"

    @pytest.mark.parametrize("problem", ["mine:", ":make", "my network:make", "../mine:make", "class:make", "mine:if"])
    def test_names_must_be_names(self, problem, folder):
        found = run("init", "--problem", problem)
        assert found.exit_code == 2
        assert "module:factory" in found.stderr
        assert not list(folder.iterdir())


class TestNothingIsDestroyed:
    def test_file_that_exists_is_kept(self, folder):
        (folder / "SPEC.toml").write_text("precious")
        found = run("init")
        assert found.exit_code == 1
        assert "--force" in found.stderr
        assert (folder / "SPEC.toml").read_text() == "precious"

    def test_force_overwrites(self, folder):
        (folder / "SPEC.toml").write_text("old")
        assert run("init", "--force").exit_code == 0
        assert "problem = " in (folder / "SPEC.toml").read_text(encoding="utf-8")
        assert [path.name for path in folder.iterdir()] == ["SPEC.toml"]

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["none/SPEC.toml"], 1, "'none' does not exist"),
            (["SPEC.db"], 2, "SPEC.db"),
            (["--problem", "logistic"], 2, "did you mean 'logistic-regression'"),
        ],
    )
    def test_refusals_say_why(self, arguments, code, message, folder):
        found = run("init", *arguments)
        assert found.exit_code == code
        assert message in found.stderr
        assert not list(folder.iterdir())
