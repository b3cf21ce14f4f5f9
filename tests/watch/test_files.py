"""A watched script that is killed leaves a trace and a page that are whole."""

from __future__ import annotations

import csv
import signal

from tests.processes import Program, wait_until

LOOP = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100_000):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
"""

WITHOUT_PAUSES = """
import runpy
from surefoot.watch import _session
_session.PAUSES = 0.0, 0.0
runpy.run_module("surefoot", run_name="__main__")
"""
"""The command, with a page at every step: whoever kills it may do so while it writes."""


def test_killed(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(LOOP)
    folder = tmp_path / "surefoot-watch" / "train-1"
    trace, page = folder / "trace.csv", folder / "page.html"
    monkeypatch.chdir(tmp_path)
    with Program(WITHOUT_PAUSES, "watch", "train.py") as run:
        try:
            wait_until(lambda: trace.exists() and trace.read_text().count("\n") > 50, run, 300)
            wait_until(lambda: "ten times as long" in page.read_text(encoding="utf-8"), run, 300)
        finally:
            run.kill()
        stdout, _ = run.communicate(timeout=60)
    assert (run.returncode, stdout) == (-signal.SIGKILL, "")
    with open(trace, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(len(rows)))
    assert all(float(row["loss"]) >= 0 for row in rows)
    text = page.read_text(encoding="utf-8")
    assert text.endswith("</html>\n")
    assert 'data-state="running"' in text
