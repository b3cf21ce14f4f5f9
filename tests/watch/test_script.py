"""``surefoot watch`` on plain torch scripts."""

from __future__ import annotations

import math
import re
import runpy
import signal
import sys
from pathlib import Path

import pytest
import torch
from tests.watch.watch_scripts import LOOP, SEVERAL
from typer.testing import CliRunner

import surefoot
from surefoot.cli._main import app
from surefoot.watch import HOPELESS


@pytest.fixture
def alone(tmp_path, monkeypatch, capsys):
    """Run a script without anybody who watches, as a process with one thread would."""

    def run(source, *arguments):
        path = tmp_path / "train.py"
        path.write_text(source, encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.random.fork_rng():
                runpy.run_path(str(path), run_name="__main__")
        finally:
            torch.set_num_threads(threads)
        return capsys.readouterr().out

    return run


def test_a_script_prints_and_returns_what_it_does_alone(watch, alone):
    found = watch(LOOP, "--lr", "0.1", "--debug")
    printed = alone(LOOP, "--lr", "0.1", "--debug")
    assert (found.stdout, found.code) == (printed, 0)  # the same losses, to the last digit
    losses = [float(row["loss"]) for row in found.trace]
    assert len(losses) == 96
    assert losses[:3] == [float(word) for word in printed.split()[1:]]
    assert {row["optimizer"] for row in found.trace} == {"optimizer (SGD)"}
    assert [int(row["step"]) for row in found.trace] == list(range(96))
    assert "step 9 of 96 (loops of 3 × 32)" in found.stderr
    assert "page surefoot-watch/train-1/page.html, trace surefoot-watch/train-1/trace.csv" in found.stderr
    assert "of memory" in found.stderr
    assert 'data-state="over"' in found.page
    assert "Ended" in found.page


def test_stop_ends_a_hopeless_run_with_its_own_code(watch):
    found = watch(LOOP, "--lr", "1e9", options=["--stop"])
    assert found.code == HOPELESS
    assert found.stdout == ""
    assert "Traceback" not in found.stderr
    assert re.search(r"stopped at step \d+: the (loss has not been finite|rate is too large)", found.stderr)
    assert math.isinf(float(found.trace[-1]["loss"]))
    assert "Stopped at step" in found.page


@pytest.fixture(scope="module")
def several(watch):
    """A script with optimizers of all kinds, which fails and is interrupted."""
    return watch(SEVERAL)


def first_loss(found, optimizer):
    return float(next(row for row in found.trace if row["optimizer"] == optimizer)["loss"])


def test_both_optimizers_of_a_gan_are_judged_by_name(several):
    for name in ("opt_d (Adam)", "opt_g (Adam)"):
        assert f"{name}: 60 steps." in several.stderr
        assert f"<h2>{name}" in several.page
    assert first_loss(several, "opt_g (Adam)") == pytest.approx(float(several.stdout.split()[0]))


def test_accumulated_and_scaled_losses_are_summed(several):
    assert first_loss(several, "opt (AdamW)") == pytest.approx(float(several.stdout.split()[1]))
    assert sum(row["optimizer"] == "opt (AdamW)" for row in several.trace) == 48
    assert "of 48 (loops of 6 × 32, a step every 4)" in several.stderr


def test_what_cannot_be_judged_gets_a_word(several):
    assert several.stdout.split()[2] == "stepped"
    assert "deaf (Adam): 30 steps. It could not be judged, because its loss could not be heard" in several.stderr
    assert "searching (LBFGS): 5 steps. Unknown: LBFGS looks at several points within a step" in several.stderr
    assert "rateless (Rateless) cannot be watched: it has no learning rate of its own" in several.stderr


def test_a_script_that_is_interrupted_ends_as_it_does_alone(several):
    assert (several.code, several.stdout.split()[-1]) == (-signal.SIGINT, "finally")  # as Python itself ends
    assert "Interrupted" in several.page
    # It was broken off before a tenth of its length: it is judged by what there is of it.
    assert re.search(r"optimizer \(SGD\): 60 steps\. .*, if the run is to have ", several.stderr)


def test_a_traceback_shows_frames_of_the_script_only(several):
    first, _, second = several.stderr.partition("Traceback")[2].partition("During handling of the above")
    assert "grad can be implicitly created only for scalar outputs" in first
    assert "in closure" in first
    assert "KeyboardInterrupt" in second
    for trace in (first, second.partition("surefoot: ")[0]):
        assert "train.py" in trace
        assert str(Path(surefoot.__file__).parent) not in trace


def test_nothing_to_watch_gets_a_word_and_stdin_is_the_scripts(watch):
    found = watch("import sys; print(sys.stdin.read(), 'numpy' in sys.modules); sys.exit(7)", input="hello")
    assert (found.stdout, found.code) == ("hello False\n", 7)
    assert "has not imported torch: there was nothing to watch" in found.stderr
    assert not found.folder.exists()


@pytest.mark.slow
def test_modules_children_folders_and_deleted_models(watch):
    """Spawned and forked children, workers, ``chdir``, ``locals()``: all as without it."""
    source = """
    import gc, multiprocessing, os, sys, weakref, torch

    def train(lr=0.1, steps=25):
        config = locals()
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        assert set(config) == {"lr", "steps"}, config
        return weakref.ref(model), weakref.ref(optimizer)

    if __name__ == "__main__":
        for how in ("spawn", "fork"):
            child = multiprocessing.get_context(how).Process(target=train)
            child.start()
            child.join()
            assert child.exitcode == 0
        os.chdir("/")
        left = train(steps=31)
        gc.collect()
        assert [reference() for reference in left] == [None, None]
        if os.fork() == 0:
            sys.exit(3)
        os.wait()
        print(__name__, __package__, sys.argv[1:], sys.path[0])
    """
    found = watch(source, "--flag", options=["-m"], file="package/train.py", name="package.train")
    assert found.code == 0, found.stderr
    assert found.stdout == f"__main__ package ['--flag'] {found.folder.parent.parent}\n"
    assert found.stderr.count("watching") == 1
    assert "31 steps." in found.stderr


# What is asked for and cannot be: a sentence and exit code 2, before anything runs.


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nothing.py"], "SCRIPT must be a Python file, 'nothing.py' does not exist"),
        (["."], "is a folder; -m runs a package"),
        (["notes.txt"], "SCRIPT must be a Python file (.py, or one that begins with #!…python), got 'notes.txt'"),
        (["binary.py"], "SCRIPT must be a Python file"),
        (["-m", "no.such"], "MODULE after -m must be one that can be imported, got 'no.such'"),
        (["--horizon", "0", "train.py"], "--horizon must be a whole number of at least 1, got 0"),
        (["--horizon", "many", "train.py"], "Invalid value for '--horizon'"),
        (["--out", "notes.txt", "train.py"], "--out must be a folder, 'notes.txt' is a file"),
        (["--unknown", "train.py"], "--unknown"),
        ([], "SCRIPT.py"),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('it runs')")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "binary.py").write_bytes(b"\0\1\2")
    found = CliRunner().invoke(app, ["watch", *arguments], env={"COLUMNS": "200"})
    assert found.exit_code == (1 if "--out" in arguments else 2)
    assert word in found.stderr
    assert found.stdout == ""
    assert "Traceback" not in found.stderr


def test_what_python_says_of_a_broken_script(watch):
    found = watch("def broken(:\n    pass\n")
    assert found.code == 1
    assert "SyntaxError" in found.stderr
    assert "surefoot/" not in found.stderr.replace(str(found.folder.parent), "")
