"""``surefoot watch`` on plain torch scripts."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from watch_scripts import LOOP

import surefoot
from surefoot.watch import HOPELESS


def test_a_script_prints_and_returns_what_it_does_alone(watch, tmp_path, environment):
    found = watch(LOOP, "--lr", "0.1", "--debug")
    alone = subprocess.run(
        [sys.executable, "train.py", "--lr", "0.1", "--debug"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert (found.stdout, found.code) == (alone.stdout, 0)  # the same losses, to the last digit
    losses = [float(row["loss"]) for row in found.trace]
    assert len(losses) == 96
    assert losses[:3] == [float(word) for word in alone.stdout.split()[1:]]
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


def test_without_stop_a_lost_run_goes_on_and_nan_is_data(watch):
    found = watch(LOOP, "--lr", "1e9", options=["--quiet"])
    assert (found.code, found.stderr) == (0, "")
    assert len(found.trace) == 96
    assert found.trace[-1]["loss"] == "inf"
    assert "Too large" in found.page


def test_both_optimizers_of_a_gan_are_judged_by_name(watch):
    source = """
    import torch
    torch.manual_seed(0)
    G = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    D = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    opt_g, opt_d = (torch.optim.Adam(net.parameters(), lr=1e-3) for net in (G, D))
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    one, zero = torch.ones(64, 1), torch.zeros(64, 1)
    for step in range(60):
        fake = G(torch.randn(64, 8))
        opt_d.zero_grad()
        (bce(D(torch.randn(64, 2) + 2), one) + bce(D(fake.detach()), zero)).backward()
        opt_d.step()
        opt_g.zero_grad()
        loss = bce(D(fake), one)
        loss.backward()
        opt_g.step()
        if step == 0:
            print(loss.item())
    """
    found = watch(source)
    assert found.code == 0
    for name in ("opt_d (Adam)", "opt_g (Adam)"):
        assert f"{name}: 60 steps." in found.stderr
        assert f"<h2>{name}" in found.page
    first = next(row for row in found.trace if row["optimizer"] == "opt_g (Adam)")
    assert float(first["loss"]) == pytest.approx(float(found.stdout))


def test_accumulated_and_scaled_losses_are_summed(watch):
    source = """
    import torch
    torch.manual_seed(0)
    X, model = torch.randn(256, 10), torch.nn.Linear(10, 1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), batch_size=8)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    print(model(X[:32]).square().mean().item())
    for epoch in range(6):
        for i, (x,) in enumerate(loader):
            scaler.scale(model(x).square().mean() / 4).backward()
            if (i + 1) % 4 == 0:
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
        scheduler.step()
    """
    found = watch(source)
    assert found.code == 0
    assert float(found.trace[0]["loss"]) == pytest.approx(float(found.stdout))
    assert len(found.trace) == 48
    assert "of 48 (loops of 6 × 32, a step every 4)" in found.stderr


def test_what_cannot_be_judged_gets_a_word(watch):
    source = """
    import torch
    torch.manual_seed(0)
    point, mirror, plane = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
    deaf = torch.optim.Adam([point])
    for _ in range(30):
        (point.grad,) = torch.autograd.grad(point.square().sum(), point)
        deaf.step()

    def train():
        searching = torch.optim.LBFGS([mirror])

        def closure():
            searching.zero_grad()
            loss = mirror.square().sum()
            loss.backward()
            return loss

        for _ in range(5):
            searching.step(closure)
        del searching

    train()
    class Rateless(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": None})
        def step(self, closure=None):
            return "stepped"
    rateless = Rateless([plane])
    print(rateless.step())
    """
    found = watch(source)
    assert (found.code, found.stdout) == (0, "stepped\n")
    assert "deaf (Adam): 30 steps. It could not be judged, because its loss could not be heard" in found.stderr
    assert "searching (LBFGS): 5 steps. Unknown: LBFGS looks at several points within a step" in found.stderr
    assert "rateless (Rateless) cannot be watched: it has no learning rate of its own" in found.stderr


def test_nothing_to_watch_gets_a_word_and_stdin_is_the_scripts(watch):
    found = watch("import sys; print(sys.stdin.read(), 'numpy' in sys.modules); sys.exit(7)", input="hello")
    assert (found.stdout, found.code) == ("hello False\n", 7)
    assert "has not imported torch: there was nothing to watch" in found.stderr
    assert not found.folder.exists()


def test_no_optimizer_gets_a_word(watch):
    found = watch("import torch")
    assert "has built no torch optimizer in this process: there was nothing to watch" in found.stderr


@pytest.mark.slow
def test_no_step_gets_a_word(watch):
    found = watch("import torch\nx = torch.optim.Adam([torch.ones(1)])\nx.undefined")
    assert "has built Adam, and made no step with it: there was nothing to judge" in found.stderr
    assert found.code == 1


def test_a_traceback_shows_frames_of_the_script_only(watch):
    source = """
    import torch
    x = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([x], lr=0.1)
    optimizer.zero_grad()
    x.sum().backward()
    optimizer.step()

    def closure():
        (x * 2).backward()

    optimizer.step(closure)
    """
    found = watch(source)
    assert found.code == 1
    assert "grad can be implicitly created only for scalar outputs" in found.stderr
    trace = found.stderr.partition("Traceback")[2].partition("RuntimeError")[0]
    assert "train.py" in trace
    assert "in closure" in trace
    assert str(Path(surefoot.__file__).parent) not in trace


@pytest.mark.slow
def test_modules_children_folders_and_deleted_models(watch, tmp_path):
    """Spawned and forked children, workers, ``chdir``, ``locals()``: all as without it."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
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
        print(__name__, __package__, sys.argv[1:], sys.path[0] == os.environ["HERE"])
    """
    found = watch(source, "--flag", options=["-m"], file="package/train.py", name="package.train")
    assert found.code == 0, found.stderr
    assert found.stdout == "__main__ package ['--flag'] True\n"
    assert found.stderr.count("watching") == 1
    assert "31 steps." in found.stderr
