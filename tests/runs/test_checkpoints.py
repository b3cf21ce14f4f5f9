"""Runs of networks that are interrupted, killed, or find their checkpoint damaged or the disk full."""

import errno
import io
import json
import os
import re
import signal
import sys
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.processes import Program, wait_until
from tests.runs.network_cases import Noisy, make_problem, make_study

from surefoot.runs import Record, States, _states, work_of
from surefoot.search import TorchRun
from surefoot.study import CheckpointError, Result, Study, StudyInterrupted


def states_of(study, folder):
    return States(str(folder), study._context(), study._seen.identities)


def work_in(study, folder):
    return work_of(study.problem, study.methods, study.shared, states_of(study, folder))


def do(study, folder, run=0, stop=None):
    """Take a run to its end, from wherever it is."""
    (record,) = work_in(study, folder).do(([study.runs[run]], 0, study.steps), stop)
    return record.trace


def stopped_in_the_middle(study, folder, run=0):
    """Begin a run, and leave it after some steps; the file that it leaves."""
    looks = iter([False, True])
    with pytest.raises(CancelledError):
        do(study, folder, run, lambda: next(looks))
    (path,) = Path(folder).glob("*.state")
    return path


@pytest.mark.parametrize("method", ["ngn", "momo", "ngn-adam", "adamw"])
def test_a_run_that_is_stopped_at_every_look_ends_with_the_same_bits(method, tmp_path):
    """A look after every step; dropout, batch norm, a schedule and states of the optimizers."""
    study = make_study(methods=[method], lrs=[0.1], schedule="cosine", batch_size=2, epochs=2)
    times, trace = 0, None
    while trace is None:
        looks = iter([False, True])
        try:
            trace = do(study, tmp_path, stop=lambda looks=looks: next(looks, False))
        except CancelledError:
            times += 1
            torch.rand(3)  # whatever else goes on
    assert times == 47
    expected = study.run(processes=1).dataset.squeeze()
    for name, values in trace.steps.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    np.testing.assert_array_equal(trace.epochs["valid_loss"], expected.valid_loss)
    assert trace.final["last_loss"] == float(expected.last_loss)


def test_begun_runs_come_first(tmp_path, monkeypatch):
    study, taken = make_study(), []
    stopped_in_the_middle(study, tmp_path / "s.db.states", run=2)
    take = TorchRun._step
    monkeypatch.setattr(TorchRun, "_step", lambda self: (taken.append(self.key), take(self))[1])
    study.run(tmp_path / "s.db", processes=1)
    assert list(dict.fromkeys(taken)) == [study.runs[place] for place in (2, 0, 1, 3)]


def test_ctrl_c_keeps_finished_runs_and_leaves_nothing_behind_in_the_end(tmp_path, assert_same_bits):
    def press(done, total):
        if done == 2:
            raise KeyboardInterrupt

    study, store = make_study(), tmp_path / "s.db"
    with pytest.raises(StudyInterrupted, match="interrupted after 2 of 4 runs; finished runs are kept"):
        study.run(store, progress=press, processes=1)
    assert study.plan(store).done == 2
    assert_same_bits(study.run(store, processes=1).dataset, study.run(processes=1).dataset)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_run_that_was_killed_before_its_result_was_stored_is_stored(tmp_path, monkeypatch, assert_same_bits):
    study, taken = make_study(), []
    last = study.runs[3]
    work = work_in(study, tmp_path / "s.db.states")
    work._hands_over = True  # as a process does that hands its runs over
    work.do(([last], 0, study.steps))
    take = TorchRun._step
    monkeypatch.setattr(TorchRun, "_step", lambda self: (taken.append(self.key), take(self))[1])
    found = study.run(tmp_path / "s.db", processes=1)
    assert set(taken) == set(study.runs) - {last}
    assert_same_bits(found.dataset, study.run(processes=1).dataset)
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_unfinished_runs_wait_in_the_folder_that_is_chosen(tmp_path, monkeypatch):
    study, taken, folder = make_study(), [], tmp_path / "elsewhere"
    stopped_in_the_middle(study, folder)
    take = TorchRun._step
    monkeypatch.setattr(TorchRun, "_step", lambda self: (taken.append(1), take(self))[1])
    study.run(tmp_path / "s.db", states=folder, processes=1)
    assert 0 < 4 * study.steps - len(taken) < study.steps
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_what_a_killed_process_was_writing_goes_with_its_run(tmp_path):
    study, store = make_study(), tmp_path / "s.db"
    path = stopped_in_the_middle(study, tmp_path / "s.db.states")
    path.with_name(f".{path.name}.abc.part").write_bytes(b"half")
    study.run(store, processes=1)
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


# Killed.

SWEEP = {"methods": ["ngn", "adamw"], "lrs": [0.01], "seeds": 1, "epochs": 25, "batch_size": 2}
"""Two runs of 600 steps: about a second each."""
PROGRAM = f"""
import sys
from tests.runs.network_cases import make_study
from surefoot.runs import _work
_work._SAVE_SECONDS, _work._SAVE_SHARE = 0.05, 0.5
make_study(**{SWEEP!r}).run(sys.argv[1], processes=int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def whole():
    return make_study(**SWEEP).run(processes=1).dataset


def kill_when(condition, *program):
    """Start a program and kill it without warning once the condition holds; its workers then end by themselves."""
    with Program(*program, session=True) as process:
        wait_until(condition, process)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it had ended before"
    wait_until(lambda: is_empty(process.pid))


def is_empty(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_program_goes_on_inside_its_run(tmp_path, whole, assert_same_bits, monkeypatch):
    store, taken = tmp_path / "s.db", []
    folder = tmp_path / "s.db.states"
    for _ in range(2):  # the second attempt begins from a checkpoint, and is killed after a later one
        before = max((path.stat().st_mtime_ns for path in folder.glob("*.state")), default=0)

        def written(before=before):
            return any(path.stat().st_mtime_ns > before for path in folder.glob("*.state"))

        kill_when(written, PROGRAM, store, "1")
    study = make_study(**SWEEP)
    records = [Record(run, study.steps) for run in study.runs]
    for record in records:
        states_of(study, folder).load(record)
    saved = [record.taken for record in records if record.taken]
    done = study.plan(store).done
    take = TorchRun._step
    monkeypatch.setattr(TorchRun, "_step", lambda self: (taken.append(1), take(self))[1])
    assert_same_bits(study.run(store, processes=1).dataset, whole)
    assert sum(taken) == (2 - done) * 600 - sum(saved)
    assert min(saved) > 0


# What is wrong with a checkpoint.


@pytest.mark.parametrize("other", [{"problem": partial(Noisy, 8)}, {"epochs": 4}], ids=["model", "length"])
def test_a_file_of_another_run_is_refused(tmp_path, other):
    model = other.pop("problem", None)
    study, other = make_study(), make_study(None if model is None else make_problem(model), **other)
    theirs = stopped_in_the_middle(other, tmp_path / "other")
    ours = stopped_in_the_middle(study, tmp_path)
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(CheckpointError, match=f"{ours.name} is of another run; delete it"):
        do(study, tmp_path)


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "other state"])
def test_a_damaged_checkpoint_is_named_and_finished_runs_are_kept(tmp_path, damage):
    study, store = make_study(), tmp_path / "s.db"

    def press(done, total):
        raise KeyboardInterrupt

    with pytest.raises(StudyInterrupted):
        study.run(store, progress=press, processes=1)
    path = stopped_in_the_middle(study, tmp_path / "s.db.states", run=2)
    content = path.read_bytes()
    if damage == "other state":
        torch.save([1, 2], path)
    else:
        path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "foreign": b"hello"}[damage])
    with pytest.raises(CheckpointError, match=f"{path.name} is damaged.*; delete it, and its run is computed anew"):
        study.run(store, processes=1)
    assert study.plan(store).done == 1
    path.unlink()
    assert (study.run(store, processes=1).dataset.status == "finished").all()


def test_nothing_is_unpickled_from_a_checkpoint(tmp_path):
    study = make_study()
    path = stopped_in_the_middle(study, tmp_path)

    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    content = io.BytesIO()
    np.savez(content, skeleton=np.array([Trap()], object))
    path.write_bytes(_states._checksum(content.getvalue()) + content.getvalue())
    with pytest.raises(CheckpointError, match=f"{path.name} cannot be read"):
        do(study, tmp_path)
    assert not (tmp_path / "sprung").exists()


# No space left, and no place to write.

LIMIT = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of the file size")
def test_a_full_disk_ends_the_study_with_a_clear_error_and_keeps_finished_runs(tmp_path, assert_same_bits):
    """The limit is above what the store needs, and below the checkpoint of the large network."""
    build = "import sys\nfrom functools import partial\nfrom tests.runs.network_cases import *\n"
    study_of = "make_study(make_problem(partial(Noisy, {width})), methods=['sgd'], lrs=[0.01], epochs={epochs})"
    program = (
        LIMIT
        + build
        + "from surefoot.runs import _work\n_work._SAVE_SECONDS = 0.0\n"
        + study_of.format(width=16, epochs=1)
        + ".run(sys.argv[1], processes=1)\n"
        + study_of.format(width=20_000, epochs=2)
        + ".run(sys.argv[1], processes=1)\n"
    )
    store = tmp_path / "s.db"
    with Program(program, store) as process:
        _, message = process.communicate(timeout=120)
    told = re.search(r"CheckpointError: cannot write the checkpoint (.*\.state): (.*); finished runs are kept", message)
    assert told, message
    assert told[2] == os.strerror(errno.EFBIG)  # of a limit; a full disk has its own words
    small = make_study(methods=["sgd"], lrs=[0.01], epochs=1)
    assert small.plan(store).done == 1
    assert_same_bits(small.run(store).dataset, small.run(processes=1).dataset)
    assert list(tmp_path.rglob("*.part")) == []


# Errors of the user's.


def test_a_vector_loss_is_refused_before_any_run(tmp_path):
    loss = partial(torch.nn.functional.cross_entropy, reduction="none")
    with pytest.raises(TypeError, match=r"loss must give one number for a batch.* got \(2,\)"):
        make_study(make_problem(loss=loss)).run(tmp_path / "s.db")
    assert not (tmp_path / "s.db").exists()


def test_a_model_that_raises_in_the_middle_keeps_finished_runs(tmp_path):
    class Fragile(Noisy):
        calls = 0

        def forward(self, inputs):
            type(self).calls += 1
            if type(self).calls > 20:
                raise RuntimeError("out of memory")
            return super().forward(inputs)

    study = Study(
        make_problem(Fragile, validation=None), methods=["sgd"], lrs=[0.01, 0.1, 1.0], seeds=1, epochs=1, batch_size=8
    )
    with pytest.raises(RuntimeError, match="out of memory"):
        study.run(tmp_path / "s.db", processes=1)
    assert 0 < study.plan(tmp_path / "s.db").done < 3
    assert json.loads(Result.load(tmp_path / "s.db").dataset.attrs["settings"])["problem"]["name"] == "network"
