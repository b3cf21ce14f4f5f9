"""The command: what its parts print and return, and, in real processes, what only a process shows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import surefoot
from surefoot.cli import app
from surefoot.paper import cifar10


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "120", "TERM": "dumb"})


def process(*arguments, **options):
    line = [sys.executable, "-m", "surefoot", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=600, **options)


def test_version():
    assert process("--version").stdout.strip() == f"surefoot {surefoot.__version__}"


def test_doctor_as_json():
    found = json.loads(command("doctor", "--json").stdout)
    assert found["surefoot"] == surefoot.__version__
    assert {"name": "vowel", "where": "bundled"} in found["datasets"]
    packages = {row["name"]: row for row in found["packages"]}
    assert packages["numpy"]["extra"] == ""
    assert packages["jax"]["extra"] == "jax"


@pytest.mark.parametrize(
    ("arguments", "meant"), [(["powerlaw"], "power-law"), (["cifar10", "--preset", "smal"], "small")]
)
def test_unknown_figures_and_presets_suggest_and_exit_with_2(tmp_path, arguments, meant):
    result = command("reproduce", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert f"did you mean '{meant}'" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_network_figures_come_from_one_resumable_sweep(tmp_path):
    arguments = ("reproduce", "cifar10", "--preset", "smoke", "--out", tmp_path)
    first = process(*arguments)
    assert first.returncode == 0, first.stderr
    assert "25 runs, 25 of them computed now" in first.stdout
    assert len(list(tmp_path.glob("cifar10-*.png"))) == 5
    numbers = cifar10.recorded(tmp_path / "studies", ["smoke"])["smoke"]
    assert numbers.algorithm.values.tolist() == ["sgd", "sps", "ngn", "log-ngn", "sgd+warmup"]
    assert (tmp_path / "studies" / "cifar10-smoke.db").exists()
    assert "25 runs, 0 of them computed now" in process(*arguments).stdout


def test_out_that_cannot_be_a_folder_is_a_failure(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = command("reproduce", "power-law", "--out", tmp_path / "file")
    assert result.exit_code == 1
    assert "file" in result.stderr
    assert "power-law" not in result.stderr  # nothing was computed before it was said


SPEC = """
problem = "linear-regression"
methods = ["sgd", "sps"]
lrs = { from = 1e-2, to = 1e2, count = 5 }
seeds = 2
epochs = 4
batch_size = 5
distance = 1.0
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A spec whose runs are in its store, and what the command has said about them."""
    path = tmp_path_factory.mktemp("done") / "spec.toml"
    path.write_text(SPEC)
    return path, command("study", path)


class TestStudy:
    def test_runs_and_resumes(self, done):
        spec, first = done
        assert first.exit_code == 0, first.stderr
        assert spec.with_suffix(".db").exists()
        assert "SPS" in first.stdout
        rows = {row["algorithm"]: row for row in json.loads(command("study", spec, "--json").stdout)["methods"]}
        assert rows["sps"]["high"] == pytest.approx(100.0)
        assert rows["sgd"]["high"] < 1.0
        assert "20 runs are in" in command("study", spec).stderr

    def test_a_method_that_holds_nowhere_says_so(self, spec):
        spec.write_text(
            SPEC.replace("from = 1e-2, to = 1e2", "from = 1e6, to = 1e7").replace("epochs = 4", "epochs = 40")
        )
        found = command("study", spec)
        (row,) = (line for line in found.stdout.splitlines() if "SGD" in line)
        assert row.count("none") == 3
        assert "nan" not in found.stdout

    def test_unknown_key_is_named_with_a_suggestion(self, spec):
        spec.write_text(SPEC.replace("epochs", "epoch"))
        result = command("study", spec)
        assert result.exit_code == 2
        assert "epochs" in result.stderr
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize(("name", "message"), [(".", "spec '.' is a folder"), ("none.toml", "none.toml")])
    def test_missing_specs_are_named(self, tmp_path, monkeypatch, name, message):
        monkeypatch.chdir(tmp_path)
        result = command("study", name)
        assert result.exit_code == 1
        assert message in result.stderr


def test_claims_as_json():
    (row,) = json.loads(command("claims", "quadratics", "--json").stdout)
    assert row["verdict"] == "holds"
    assert set(row) == {"id", "claim", "rule", "measured", "verdict", "sweeps"}


def test_pep_verifies_a_statement(tmp_path, monkeypatch):
    pytest.importorskip("PEPit")
    monkeypatch.setenv("SUREFOOT_PEP_CACHE", str(tmp_path))
    result = command("pep", "one-step", "--json")
    rows = json.loads(result.stdout)
    assert result.exit_code == 0
    assert len(rows) == 18
    assert all(row["ok"] for row in rows)


class TestReport:
    def test_page_of_a_stored_study(self, done, tmp_path):
        page = tmp_path / "page.html"
        result = command("report", done[0].with_suffix(".db"), "-o", page, "--title", "<b>mine</b>")
        assert result.exit_code == 0, result.stderr
        assert "page.html" in result.stdout
        text = page.read_text(encoding="utf-8")
        assert "<b>mine</b>" not in text
        assert "&lt;b&gt;mine&lt;/b&gt;" in text

    @pytest.mark.parametrize("name", ["none.db", "foreign.db"])
    def test_missing_and_foreign_stores_are_named(self, tmp_path, name):
        (tmp_path / "foreign.db").write_text("not a study")
        result = command("report", tmp_path / name, "-o", tmp_path / "page.html")
        assert result.exit_code == 1
        assert name in result.stderr
        assert "Traceback" not in result.stderr
        assert not (tmp_path / "page.html").exists()


class TestTune:
    def test_finds_a_good_rate_for_less_than_the_grid(self, spec):
        found = json.loads(command("tune", spec, "--processes", 1, "--json").stdout)
        assert 0 <= found["confidence"] <= 1
        assert found["cost"] < 1
        assert len(found["table"]) == 10
