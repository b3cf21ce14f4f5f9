"""Several processes train one network together: the same study on two ranks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.processes import run_ranks, wait_until

from surefoot.study import Result, Study

PROGRAM = """
import sys, pathlib
import torch, torch.distributed
from surefoot.monitor import PartialBound
from surefoot.study import Study

torch.distributed.init_process_group("gloo")
store, folder, settings, stop = sys.argv[1], sys.argv[2], {settings!r}, {stop}
result = Study(**settings, stop=stop).run(store or None)
rank = torch.distributed.get_rank()
result.dataset.drop_attrs().to_netcdf(pathlib.Path(folder, f"{{rank}}.nc"), engine="scipy")
torch.distributed.destroy_process_group()
"""
SETTINGS = {
    "problem": "digits-mlp",
    "problem_options": {"hidden": [16]},
    "methods": ["sgd", "ngn", "adamw"],
    "lrs": [0.01, 0.1],
    "seeds": 1,
    "epochs": 2,
    "batch_size": 51,  # which two ranks cannot share equally
    "distance": 1.0,
}
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(folder, store="", settings=SETTINGS, stop="()", **options):
    (folder / "program.py").write_text(PROGRAM.format(settings=settings, stop=stop))
    return subprocess.Popen([*LAUNCH, folder / "program.py", store, folder], **options)


def results(folder):
    import xarray

    found = [xarray.load_dataset(folder / f"{rank}.nc", engine="scipy") for rank in range(2)]
    assert found[0].identical(found[1])
    return found[0]


@pytest.fixture(scope="module")
def alone():
    return Study(**SETTINGS).run(processes=1).dataset


def _rank(rank, folder):
    """A rank as torchrun would start it."""
    import torch.distributed

    torch.distributed.init_process_group("gloo", f"file://{folder / 'rendezvous'}", rank=rank, world_size=2)
    result = Study(**SETTINGS).run(folder / "s.db")
    result.dataset.drop_attrs().to_netcdf(folder / f"{rank}.nc", engine="scipy")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(_rank, (folder,), 2)
    return folder


def test_two_ranks_take_the_steps_of_one_process(together, alone):
    found = results(together)
    for name in ("loss", "grad_sq", "size", "delta", "distance", "train_loss", "valid_loss", "last_loss"):
        np.testing.assert_allclose(found[name], alone[name], rtol=2e-3, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(found[name][..., :5], alone[name][..., :5], rtol=1e-4, atol=1e-6, err_msg=name)
    assert (found.status == alone.status).all()


def test_the_first_rank_writes_what_all_return(together):
    stored = Result.load(together / "s.db").dataset
    np.testing.assert_array_equal(stored.loss, results(together).loss)
    assert not list(together.glob("s.db.*"))


def test_runs_of_several_ranks_are_kept_apart(together):
    assert Study(**SETTINGS).plan(together / "s.db").done == 0


@pytest.mark.slow
def test_ranks_go_on_from_a_checkpoint(tmp_path):
    settings = {**SETTINGS, "methods": ["ngn"], "lrs": [0.1], "epochs": 60}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    with start(broken, broken / "s.db", settings) as process:
        wait_until(lambda: list(broken.glob("*.runs/*.run")), process)
        process.terminate()
    assert Study(**settings).plan(broken / "s.db").done == 0
    for folder in (broken, whole):
        with start(folder, folder / "s.db" if folder is broken else "", settings) as process:
            assert process.wait(timeout=300) == 0
    assert results(broken).identical(results(whole))


@pytest.mark.slow
def test_ranks_may_share_the_best_bound(tmp_path):
    with start(tmp_path, stop="[PartialBound('shared', slack=1.0, with_bias=True)]") as process:
        assert process.wait(timeout=300) == 0
    assert {"finished", "stopped"} == set(results(tmp_path).status.values.astype(str).ravel())


@pytest.mark.slow
def test_a_batch_smaller_than_the_ranks_is_refused(tmp_path):
    with start(tmp_path, settings={**SETTINGS, "batch_size": 1}, stderr=subprocess.PIPE, text=True) as process:
        _, message = process.communicate(timeout=300)
    assert "need engine='auto' and a batch_size of at least 2, got engine='auto' and batch_size=1" in message
