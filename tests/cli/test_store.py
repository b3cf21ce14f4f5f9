"""``surefoot store``: what a store holds, and how it is removed."""

import json

import pytest
from typer.testing import CliRunner

from surefoot.cli import app
from surefoot.runs import Key, Record, States
from surefoot.study import Study


def command(*arguments):
    found = CliRunner().invoke(app, ["store", *map(str, arguments)])
    assert found.exit_code == 0, found.stderr
    return found.stdout


@pytest.fixture
def store(tmp_path):
    """Two studies; of the second one, and of code that nobody has any more, runs are unfinished."""
    path = tmp_path / "s.db"
    for methods in ("sgd", "sps"):
        study = Study("linear-regression", methods=methods, lrs=[0.1, 0.2], seeds=1, epochs=1, batch_size=5)
        study.run(path)
    for context, lr in ((study._context(), 0.3), ("gone" * 5, 0.4)):
        States(f"{path}.states", context).save(Record(Key("sps", lr, 0), 10, [1.0]), {"x": 1.0})
    return path


def test_ls_shows_studies_with_their_runs(store):
    assert "linear-regression" in command("ls", store)
    rows = json.loads(command("ls", store, "--json"))
    # Both have the same problem and settings, so they share their runs.
    assert [(row["methods"], row["runs"], row["unfinished"]) for row in rows] == [(["sgd"], 4, 1), (["sps"], 4, 1)]


def test_prune_removes_what_no_study_goes_on_with(store):
    assert "removed 1 files" in command("prune", store)
    assert len(list(store.with_name("s.db.states").iterdir())) == 1
    assert "removed 0 files" in command("prune", store)


def test_delete_removes_one_study(store):
    command("delete", store, "0")
    (row,) = json.loads(command("ls", store, "--json"))
    assert row["methods"] == ["sps"]
    found = CliRunner().invoke(app, ["store", "delete", str(store), "7"])
    assert "study must be a number below 1" in found.stderr
    assert found.exit_code != 0
