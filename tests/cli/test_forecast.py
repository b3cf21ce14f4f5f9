"""``surefoot forecast``: a table of runs in, the best rate of each schedule out."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from surefoot.cli import app


def measured(lr, steps, schedule):
    return 1 + (lr * steps) ** -0.5 + (6 if schedule == "constant" else 2) * lr


@pytest.fixture
def runs(tmp_path):
    path = tmp_path / "runs.csv"
    lines = [
        f"{name},{lr},{schedule},{steps},{measured(lr, steps, schedule) + shift}"
        for name, shift in (("a", 0.0), ("b", 0.3))
        for lr in (0.01, 0.03, 0.1)
        for steps in (200, 400, 800)
        for schedule in ("linear", "constant")
    ]
    path.write_text("\n".join(["dataset,lr,schedule,steps,final_loss", *lines]) + "\n")
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, ["forecast", *map(str, arguments)], env={"COLUMNS": "120", "TERM": "dumb"})


def test_best_rate_of_each_schedule(runs):
    found = invoke(runs, "--group", "dataset=a", "--steps", 1600)
    assert found.exit_code == 0, found.output
    assert "18 runs up to 800 steps, lr 0.01 to 0.1" in found.stdout
    assert "Best for 1600 steps: " in found.stdout
    assert "wsd(cooldown=0.2)" in found.stdout


def test_json_and_picture(runs, tmp_path):
    arguments = ["--lr", 0.03, "--schedule", "linear", "--steps", 1600, "--plot", tmp_path / "fit.png", "--json"]
    found = invoke(runs, "--group", "dataset=b", *arguments)
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert answer["forecast"]["loss"] == pytest.approx(measured(0.03, 1600, "linear") + 0.3, rel=0.04)
    assert answer["best"][0]["steps"] == 1600
    assert {"floor", "bias_power", "offset"} <= answer["parameters"].keys()
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_several_groups_are_listed(runs):
    found = invoke(runs)
    assert found.exit_code == 0
    assert "dataset a: 18 runs" in found.stdout
    assert "name one with --group" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--steps", 1600], 2, "group must say which of 2 models or data sets"),
        (["--group", "dataset=z"], 2, "--group must fit one of dataset=a, dataset=b; got 'dataset=z'"),
        (["--lr", 0.1], 2, "--lr and --schedule go together"),
        (["--group", "dataset=a", "--lr", 9, "--schedule", "linear"], 2, "lr must be between"),
        (["--curves", "none.csv"], 1, "curves: there is no file 'none.csv'"),
    ],
)
def test_errors_are_one_sentence(runs, arguments, code, message):
    found = invoke(runs, *arguments)
    assert found.exit_code == code
    (line,) = found.stderr.splitlines()
    assert message in line


def test_an_export_of_an_experiment_tracker(tmp_path):
    lines = [
        f"run-{number},{step},{lr},{measured(lr, step, 'constant')}"
        for number, lr in enumerate([0.01, 0.02, 0.05, 0.1])
        for step in range(10, 401, 10)
    ]
    (tmp_path / "export.csv").write_text("\n".join(["Name,step,learning_rate,loss", *lines]) + "\n")
    found = invoke(tmp_path / "export.csv", "--steps", 800, "--lr", 0.02, "--schedule", "constant", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["forecast"]["loss"] == pytest.approx(measured(0.02, 800, "constant"), rel=0.02)
