"""Wheel and sdist: what a stranger installs works in an empty environment, without extras. Needs the package index."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from surefoot import __version__

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


SPEC = """
problem = "linear-regression"
methods = ["sgd"]
lrs = [0.01, 0.1]
seeds = 1
epochs = 4
batch_size = 5
"""


def run(*arguments, cwd):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in arguments]
    found = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=environment, timeout=1800)
    assert found.returncode == 0, f"{arguments}\n{found.stdout}\n{found.stderr}"
    return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Both archives; the wheel is made from the sdist, as `python -m build` does."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def empty(built, tmp_path_factory):
    """An environment with the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder / "venv", with_pip=True)
    (wheel,) = built.glob("*.whl")
    run(folder / "venv/bin/pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    return folder


def test_archives_hold_the_package_and_little_else(built):
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name == f"surefoot-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    here = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in here if "__pycache__" not in name and "egg-info" not in name} <= set(names)
    assert all(name.startswith(("surefoot/", f"surefoot-{__version__}.dist-info/")) for name in names)
    with tarfile.open(source) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "constraints.txt"} <= kept
    assert not [name for name in kept if name.endswith((".db", ".pyc")) or name.startswith((".venv", "out/", "site/"))]


def test_command_and_study_work_in_an_empty_environment(empty):
    command = empty / "venv/bin/surefoot"
    assert run(command, "--version", cwd=empty).strip() == f"surefoot {__version__}"
    assert "Start here" in run(command, "--help", cwd=empty)
    (empty / "tiny.toml").write_text(SPEC)
    assert "holds" in run(command, "study", "tiny.toml", "--quiet", cwd=empty)
    run(command, "report", "tiny.db", "-o", "tiny.html", cwd=empty)
    assert "<title>" in (empty / "tiny.html").read_text(encoding="utf-8")


def test_optimizer_monitor_and_search_work_in_an_empty_environment(empty):
    code = """
import torch, surefoot as sf, surefoot.optim as sfo
from surefoot.search import TorchRun
torch.manual_seed(0)
X = torch.randn(64, 4)
make = lambda: torch.nn.Linear(4, 1)
loss_fn = lambda model, batch: (model(batch) - batch.sum(1, keepdim=True)).square().mean()
model = make()
opt = sfo.Surefoot(model.parameters())
with sf.StabilityMonitor(opt, horizon=8) as monitor:
    for batch in X.split(8):
        opt.zero_grad(); loss = loss_fn(model, batch); loss.backward(); monitor.record(loss); opt.step()
print(opt.last_step, monitor.verdict())
runs = TorchRun(make, lambda seed: X.split(8), loss_fn, torch.optim.SGD)
print(sf.tune(runs, lrs=[0.01, 0.1], horizon=16).lr)
print(sf.__file__)
"""
    printed = run(empty / "venv/bin/python", "-c", code, cwd=empty)
    assert "stability index" in printed
    assert str(empty) in printed
