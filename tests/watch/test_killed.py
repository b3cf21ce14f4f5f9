"""A watched script that is interrupted or killed ends as it does alone, and leaves a trace and a page."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import surefoot

SCRIPT = """
import time, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step in range(100_000):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        time.sleep(0.002)
finally:
    print("finally", flush=True)
"""


COMMAND = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its background jobs to ignore it
runpy.run_module("surefoot", run_name="__main__")
"""


@pytest.fixture
def started(tmp_path, environment):
    """A run that has shown some steps."""
    (tmp_path / "train.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "watch", "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    trace = tmp_path / "surefoot-watch" / "train-1" / "trace.csv"
    until = time.monotonic() + 300
    page = trace.with_name("page.html")
    while not (trace.exists() and trace.read_text().count("\n") > 50 and "loops of" in page.read_text()):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.1)
    yield process
    process.kill()
    process.communicate()


def test_killed(started, tmp_path):
    started.kill()
    stdout, _ = started.communicate()
    assert (started.returncode, stdout) == (-signal.SIGKILL, "")
    folder = tmp_path / "surefoot-watch" / "train-1"
    with open(folder / "trace.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(len(rows)))
    assert all(float(row["loss"]) >= 0 for row in rows)
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert page.endswith("</html>\n")
    assert 'data-state="running"' in page
    assert "of 100000 (loops of 100000)" in page


def test_terminated_and_interrupted(started):
    started.send_signal(signal.SIGINT)
    stdout, stderr = started.communicate(timeout=120)
    assert (started.returncode, stdout) == (-signal.SIGINT, "finally\n")  # as Python itself ends
    assert "KeyboardInterrupt" in stderr
    assert str(Path(surefoot.__file__).parent) not in stderr.partition("Traceback")[2].partition("KeyboardInterrupt")[0]
    # It was broken off before a tenth of its length: it is judged by what there is of it.
    assert ", if the run is to have " in stderr
