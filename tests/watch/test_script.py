"""``surefoot watch`` on plain torch scripts."""

from __future__ import annotations

import csv
import math
import re
import runpy
import shlex
import signal
import subprocess
import sys

import pytest
import torch
from tests.watch.watch_scripts import LOOP, SEVERAL
from typer.testing import CliRunner

from surefoot.cli import app
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
    assert {row["optimizer"] for row in found.trace} == {"SGD"}
    assert [int(row["step"]) for row in found.trace] == list(range(96))
    assert "step 50. Holds: " in found.stderr  # the length of the run is not known
    assert "if the run is to be ten times as long (500 steps)" in found.stderr
    assert "judged again at 50, 100, 200, 400, … steps; --horizon STEPS makes the verdict surer" in found.stderr
    assert "96 steps. Holds: " in found.stderr
    assert "page surefoot-watch/train-1/page.html, trace surefoot-watch/train-1/trace.csv" in found.stderr
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


def test_both_optimizers_of_a_gan_are_numbered_and_not_judged(several):
    for name in ("Adam", "Adam 2"):
        assert f"{name}: 60 steps. Unknown: it takes turns with another optimizer" in several.stderr
        assert f"<h2>{name}" in several.page
    assert first_loss(several, "Adam 2") == pytest.approx(float(several.stdout.split()[0]))


def test_accumulated_and_scaled_losses_are_summed(several):
    assert first_loss(several, "AdamW") == pytest.approx(float(several.stdout.split()[1]))
    assert sum(row["optimizer"] == "AdamW" for row in several.trace) == 48
    assert "of 44 (CosineAnnealingLR, about)" in several.stderr


def test_what_cannot_be_judged_is_said(several):
    assert several.stdout.split()[2] == "stepped"
    assert "Adam 3: 30 steps. It could not be judged, because its loss is not known" in several.stderr
    assert "LBFGS: 5 steps. Unknown: LBFGS evaluates the loss at several points within a step" in several.stderr
    assert "Rateless cannot be watched: it has no learning rate of its own" in several.stderr


def test_a_script_that_is_interrupted_ends_as_it_does_alone(several):
    assert (several.code, several.stdout.split()[-1]) == (-signal.SIGINT, "finally")  # as Python itself ends
    assert "Interrupted" in several.page
    # It was broken off before a tenth of its length: it is judged by what there is of it.
    assert re.search(r"SGD: 60 steps\. .*, if the run is to be ten times as long \(600 steps\)", several.stderr)


def test_a_traceback_begins_with_the_script(several):
    first, _, second = several.stderr.partition("Traceback")[2].partition("During handling of the above")
    assert "grad can be implicitly created only for scalar outputs" in first
    assert "in closure" in first
    assert "KeyboardInterrupt" in second
    for trace in (first, second.partition("surefoot: ")[0]):
        assert "train.py" in trace.partition("File")[2].splitlines()[0]


def test_nothing_to_watch_is_said_and_stdin_is_the_scripts(watch):
    found = watch("import sys; print(sys.stdin.read(), 'numpy' in sys.modules); sys.exit(7)", input="hello")
    assert (found.stdout, found.code) == ("hello False\n", 7)
    assert "has not imported torch: there was nothing to watch" in found.stderr
    assert not found.folder.exists()


@pytest.mark.slow
def test_modules_children_folders_and_deleted_models(watch):
    """Spawned and forked children, workers and ``chdir``: all as without it."""
    source = """
    import gc, multiprocessing, os, sys, weakref, torch

    def train(steps=25):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
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
        print(__name__, __package__, sys.argv[1:], sys.path[0])
    """
    found = watch(source, "--flag", options=["-m"], file="package/train.py", name="package.train")
    assert found.code == 0, found.stderr
    assert found.stdout == f"__main__ package ['--flag'] {found.folder.parent.parent}\n"
    assert found.stderr.count("watching") == 1
    assert "31 steps." in found.stderr


NESTED = """
import importlib.util
assert importlib.util.find_spec("torch") is not None
import torch
torch.manual_seed(0)
X = torch.randn(4096, 10)
Y = X.sum(1, keepdim=True).sin()
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for i in range(0, 4096, 32):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(X[i : i + 32]), Y[i : i + 32]).backward()
        optimizer.step()
print("trained")
"""


@pytest.fixture(scope="module")
def nested(watch):
    """40 rounds of two loops with a bar, which are 1280 steps; torch is only asked for at first."""
    bars = NESTED.replace("range(0,", "tqdm(range(0,").replace("32):", "32), mininterval=0):", 1)
    return watch("from tqdm import tqdm\n" + bars)


def test_loops_over_ranges_are_not_misread(nested):
    """No length is guessed from them."""
    assert (nested.stdout, nested.code) == ("trained\n", 0), nested.stderr
    assert "of 40" not in nested.stderr
    assert "Too small" not in nested.stderr
    assert "SGD: 1280 steps. " in nested.stderr
    assert len(nested.trace) == 1280


def test_names_are_shown_and_not_obeyed(watch):
    """A script and a class may be called anything: no name clears the screen, and one may be no UTF-8."""
    source = """
    import torch
    kind = type("\\x1b[2JSGD\\nsurefoot: fine,", (torch.optim.SGD,), {})
    x = torch.nn.Parameter(torch.ones(3))
    for step in range(3):
        optimizer = kind([x], lr=0.1)
        x.square().sum().backward()
        optimizer.step()
    """
    found = watch(source, "\x1b[31m", file="\x1b[2J\udce9.py", name="\x1b[2J\udce9.py")
    assert found.code == 0, found.stderr
    assert "\x1b" not in found.stderr
    assert r"watching \x1b[2JSGD\nsurefoot: fine,, " in found.stderr
    assert not any(line.startswith("surefoot: fine") for line in found.stderr.splitlines())
    (folder,) = found.folder.parent.iterdir()
    assert "\x1b" not in (folder / "page.html").read_text(encoding="utf-8")
    with open(folder / "trace.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 3


def test_a_line_does_not_cut_into_a_progress_bar(nested):
    lines = [match.start() for match in re.finditer("surefoot: ", nested.stderr)]
    assert len(lines) > 3
    assert {nested.stderr[place - 1 : place] for place in lines} <= {"", "\n", "\r"}
    assert "100%" in nested.stderr


GROWING = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
body, head = torch.nn.Linear(8, 16).requires_grad_(False), torch.nn.Linear(16, 1)
optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
for step in range(120):
    if step == 60:
        optimizer.add_param_group({"params": body.requires_grad_(True).parameters(), "lr": 0.001})
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    loss = (head(body(x).tanh()) - x.sum(1, keepdim=True)).square().mean()
    if step == 60:  # only new parameters have gradients
        loss = body(x).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


def test_a_script_that_adds_parameters_with_stderr_closed(tmp_path, environment, alone):
    """No loss is missed, also not in the step in which they are new, and nothing breaks where nothing can be said."""
    (tmp_path / "train.py").write_text(GROWING)
    line = f"{shlex.quote(sys.executable)} -m surefoot watch train.py 2>&-"
    result = subprocess.run(
        line, shell=True, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment, timeout=600
    )
    assert result.returncode == 0
    with open(tmp_path / "surefoot-watch" / "train-1" / "trace.csv", newline="") as file:
        losses = [row["loss"] for row in csv.DictReader(file)]
    assert (len(losses), losses[-1]) == (120, result.stdout.strip())
    assert all(math.isfinite(float(loss)) for loss in losses)
    assert alone(GROWING) == result.stdout


TWO_THREADS = """
import threading, torch
torch.set_num_threads(1)

def train(seed):
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(300):
        x = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
    last[seed] = loss.item()

last = {}
threads = [threading.Thread(target=train, args=(seed,)) for seed in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(last[1], last[2])
"""


def test_a_script_with_two_training_threads(watch, alone):
    found = watch(TWO_THREADS)
    assert (found.stdout, found.code) == (alone(TWO_THREADS), 0), found.stderr
    losses = {name: [row["loss"] for row in found.trace if row["optimizer"] == name] for name in NAMES}
    assert [len(values) for values in losses.values()] == [300, 300]
    assert sorted(values[-1] for values in losses.values()) == sorted(found.stdout.split())
    assert "Unknown" not in found.stderr


NAMES = ("SGD", "SGD 2")


# What is asked for and cannot be: a sentence and exit code 2, before anything runs.


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nothing.py"], "SCRIPT must be a Python file, 'nothing.py' does not exist"),
        (["."], "is a folder; -m runs a package"),
        (["notes.txt"], "SCRIPT must be a Python file (.py), got 'notes.txt'"),
        (["-m", "no.such"], "MODULE after -m must be one that can be imported, got 'no.such'"),
        (["--horizon", "0", "train.py"], "--horizon must be a whole number from 1 to 10000000, got 0"),
        (["--horizon", str(10**20), "train.py"], f"from 1 to 10000000, got {10**20}"),
        (["--horizon", "many", "train.py"], "Invalid value for '--horizon'"),
        (["--out", "notes.txt", "train.py"], "--out must be a folder, 'notes.txt' cannot be one: File exists"),
        (["--out", "notes.txt/x", "train.py"], "--out must be a folder, 'notes.txt/x' cannot be one: Not a directory"),
        (["--unknown", "train.py"], "--unknown"),
        ([], "SCRIPT.py"),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('it runs')")
    (tmp_path / "notes.txt").write_text("notes")
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
