"""The files of runs that wait: what a killed process leaves behind is swept, what others write is left alone."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from surefoot._base.states import load_run, save_run
from surefoot.runs import RunFiles
from surefoot.study import Study


def test_what_killed_processes_were_writing_goes_when_a_store_is_opened(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    folder = tmp_path / "s.db.runs"
    folder.mkdir()
    names = [f".{'0' * 20}.run.{pid}.abcd.part" for pid in (ended.pid, os.getpid())]
    for name in (*names, ".notes.part", "another.run"):
        (folder / name).write_bytes(b"half")
    Study("linear-regression", methods="sgd", lrs=[0.1], seeds=1, epochs=1, batch_size=5).run(tmp_path / "s.db")
    assert sorted(file.name for file in folder.iterdir()) == sorted([names[1], ".notes.part", "another.run"])


def test_nothing_to_sweep_without_a_folder(tmp_path):
    RunFiles(str(tmp_path / "nowhere")).sweep()
    assert not list(tmp_path.iterdir())


def test_states_may_hold_numbers_and_arrays_of_numpy_beside_tensors(tmp_path):
    state = {"x": torch.ones(2), "lr": np.float64(0.1), "seen": [np.arange(3), (np.float32(2), "a")]}
    save_run(tmp_path / "a.run", {}, state)
    _, found = load_run(tmp_path / "a.run")
    assert found["lr"] == 0.1
    np.testing.assert_array_equal(found["seen"][0], np.arange(3))
    assert found["seen"][1] == (2.0, "a")
    assert isinstance(found["seen"][0], np.ndarray)
    with pytest.raises(TypeError, match="arrays of numbers beside tensors"):
        save_run(tmp_path / "a.run", {}, {"x": torch.ones(2), "words": np.array(["a"])})
