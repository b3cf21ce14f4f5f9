"""Runs of networks that are interrupted, killed, or find their checkpoint damaged or the disk full."""

import errno
import json
import os
import pickle
import re
import signal
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.processes import Program, wait_until
from tests.study.network_cases import TRAIN, Noisy, make_problem, make_study

from surefoot.problems import NetworkProblem, networks
from surefoot.runs import _network_job as engine
from surefoot.runs._network_job import NetworkJob
from surefoot.runs._training import NetworkRun
from surefoot.runs._workers import Stopped
from surefoot.study import CheckpointError, Method, Result, Study, StudyInterrupted


def job_of(study, folder):
    return NetworkJob(study.problem, study.shared, str(folder), study._context())


def stopped_in_the_middle(study, folder, run=0):
    """Begin a run, and leave it after one piece of steps; the checkpoint that it leaves."""
    looks = iter([False, True])
    with pytest.raises(Stopped):
        job_of(study, folder).do(study.runs[run], lambda: next(looks))
    (path,) = Path(folder).glob("*.pt")
    return path


@pytest.mark.parametrize("method", ["ngn", "momo", "ngn-adam", "adamw"])
def test_a_run_that_is_stopped_at_every_look_ends_with_the_same_bits(method, tmp_path):
    """24 steps an epoch, with looks inside of them, dropout, batch norm, a schedule and states of the optimizers."""
    study = make_study(methods=[method], lrs=[0.1], schedule="cosine", batch_size=2, epochs=2)
    job, (run,) = job_of(study, tmp_path), study.runs
    times, trace = 0, None
    while trace is None:
        looks = iter([False, True])
        try:
            (trace,) = job.do(run, lambda looks=looks: next(looks))
        except Stopped:
            times += 1
            torch.rand(3)  # whatever else goes on
    assert times == 3
    expected = study.run(processes=1).dataset.squeeze()
    for name, values in trace.steps.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    np.testing.assert_array_equal(trace.epochs["valid_loss"], expected.valid_loss)
    assert trace.final["last_loss"] == float(expected.last_loss)


def test_begun_runs_come_first(tmp_path):
    study = make_study()
    stopped_in_the_middle(study, tmp_path, run=2)
    assert job_of(study, tmp_path).tasks(study.runs)[0] == study.runs[2]


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


def test_runs_underway_count_with_their_share(tmp_path):
    study = make_study()
    job, shares = job_of(study, tmp_path), []
    assert job.underway() == 0.0
    job.do(study.runs[0], lambda: bool(shares.append(job.underway())))
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, pytest.approx(1 / 3))  # told before the last third was begun
    job.finish(study.runs[0])
    assert job.underway() == 0.0
    assert list(tmp_path.iterdir()) == []


def test_runs_of_another_study_do_not_count(tmp_path):
    study, other = make_study(), make_study(epochs=2)
    stopped_in_the_middle(other, tmp_path)
    job_of(other, tmp_path).do(other.runs[1])
    assert job_of(other, tmp_path).underway() > 0.0
    assert job_of(study, tmp_path).underway() == 0.0


def test_what_a_killed_process_was_writing_goes_with_its_run(tmp_path):
    study = make_study()
    path = stopped_in_the_middle(study, tmp_path)
    (tmp_path / f".{path.name}.abc.part").write_bytes(b"half")
    job_of(study, tmp_path).finish(study.runs[0])
    assert list(tmp_path.iterdir()) == []


# Killed.

SWEEP = {"methods": ["ngn", "adamw"], "lrs": [0.01], "seeds": 1, "epochs": 25, "batch_size": 2}
"""Two runs of 600 steps: about a second each."""
PROGRAM = f"""
import sys
from tests.study.network_cases import make_study
from surefoot.runs import _network_job
_network_job._CHECKPOINT_SECONDS, _network_job._CHECKPOINT_SHARE = 0.05, 0.5
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
    folder = tmp_path / "s.db.runs"
    for _ in range(2):  # the second attempt begins from a checkpoint, and is killed after a later one
        before = max((path.stat().st_mtime_ns for path in folder.glob("*.pt")), default=0)

        def written(before=before):
            return any(path.stat().st_mtime_ns > before for path in folder.glob("*.pt"))

        kill_when(written, PROGRAM, store, "1")
    saved = [torch.load(path, weights_only=True)["step"] for path in folder.glob("*.pt")]
    study = make_study(**SWEEP)
    done = study.plan(store).done
    advance = NetworkRun.take_steps
    monkeypatch.setattr(NetworkRun, "take_steps", lambda self, k: (taken.append(k), advance(self, k))[1])
    assert_same_bits(study.run(store, processes=1).dataset, whole)
    assert sum(taken) == (2 - done) * 600 - sum(saved)
    assert min(saved) > 0


@pytest.mark.slow
def test_killed_workers_go_on_inside_their_runs(tmp_path, whole, assert_same_bits):
    """Workers save once a second, as they do by default: they are processes of their own."""
    settings = SWEEP | {"epochs": 400}
    program = PROGRAM.replace(repr(SWEEP), repr(settings))
    store, folder = tmp_path / "s.db", tmp_path / "s.db.runs"
    kill_when(lambda: len(list(folder.glob("*.pt"))) == 2, program, store, "2")
    assert make_study(**settings).plan(store).done == 0
    resumed = make_study(**settings).run(store, processes=2)
    assert_same_bits(resumed.dataset, make_study(**settings).run(processes=1).dataset)


# What is wrong with a checkpoint.


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    study, other = make_study(), make_study(make_problem(partial(Noisy, 8)))
    theirs = stopped_in_the_middle(other, tmp_path / "other")
    ours = stopped_in_the_middle(study, tmp_path)
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(CheckpointError, match=f"{ours.name} is a checkpoint of another model; delete it"):
        job_of(study, tmp_path).do(study.runs[0])


def test_a_checkpoint_of_a_longer_run_is_refused(tmp_path):
    study, other = make_study(), make_study(epochs=4)
    theirs = stopped_in_the_middle(other, tmp_path / "other")
    ours = stopped_in_the_middle(study, tmp_path)
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(CheckpointError, match=r"does not fit .* of a run with 24 steps, not 18.; delete it"):
        job_of(study, tmp_path).do(study.runs[0])


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "other state"])
def test_a_damaged_checkpoint_is_named_and_finished_runs_are_kept(tmp_path, damage):
    study, store = make_study(), tmp_path / "s.db"

    def press(done, total):
        raise KeyboardInterrupt

    with pytest.raises(StudyInterrupted):
        study.run(store, progress=press, processes=1)
    path = stopped_in_the_middle(study, tmp_path / "s.db.runs", run=2)
    content = path.read_bytes()
    if damage == "other state":
        torch.save([1, 2], path)
    else:
        path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "foreign": b"hello"}[damage])
    with pytest.raises(CheckpointError, match=f"{path.name} is damaged .*; delete it, and its run starts anew"):
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

    torch.save({"model_digest": "", "model": Trap()}, path)
    with pytest.raises(CheckpointError, match="is damaged"):
        job_of(study, tmp_path).do(study.runs[0])
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
    build = "import sys\nfrom functools import partial\nfrom tests.study.network_cases import *\n"
    study_of = "make_study(make_problem(partial(Noisy, {width})), methods=['sgd'], lrs=[0.01], epochs={epochs})"
    program = (
        LIMIT
        + build
        + "from surefoot.runs import _network_job\n_network_job._CHECKPOINT_SECONDS = 0.0\n"
        + study_of.format(width=16, epochs=1)
        + ".run(sys.argv[1], processes=1)\n"
        + study_of.format(width=20_000, epochs=2)
        + ".run(sys.argv[1], processes=1)\n"
    )
    store = tmp_path / "s.db"
    with Program(program, store) as process:
        _, message = process.communicate(timeout=120)
    told = re.search(r"CheckpointError: cannot write the checkpoint (.*\.pt): (.*); finished runs are kept", message)
    assert told, message
    assert told[2] == os.strerror(errno.EFBIG)  # of a limit; a full disk has its own words
    small = make_study(methods=["sgd"], lrs=[0.01], epochs=1)
    assert small.plan(store).done == 1
    assert_same_bits(small.run(store).dataset, small.run(processes=1).dataset)
    assert [path.name for path in (tmp_path / "s.db.runs").iterdir() if path.name.endswith(".part")] == []


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "s.db.runs").write_text("a file is in the way")
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*s\.db\.runs.*; finished runs are kept"):
        make_study().run(tmp_path / "s.db", processes=1)


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    study, saved = make_study(epochs=100, methods=["sgd"], lrs=[0.01]), []
    clock = [0.0]

    def pass_time(seconds):
        clock[0] += seconds
        return clock[0]

    monkeypatch.setattr(engine, "_CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: pass_time(0.1)))
    monkeypatch.setattr(  # a slow disk, which is to take a hundredth of the time
        engine, "write_tensors", lambda path, state: (saved.append(path), pass_time(0.2))
    )
    job_of(study, tmp_path).do(study.runs[0])
    assert saved
    assert 0.2 * len(saved) <= 0.2 + 0.02 * clock[0]


# Bad methods, before any work.


def test_an_optimizer_that_is_none_is_refused_before_any_run(tmp_path):
    study = make_study(methods=["sgd", Method("mine", optimizer=lambda parameters, lr: None)])
    with pytest.raises(TypeError, match=r"optimizer of the method .mine. must give a torch\.optim\.Optimizer"):
        study.run(tmp_path / "s.db")
    assert study.plan(tmp_path / "s.db").done == 0


def test_spp_is_not_for_networks():
    with pytest.raises(ValueError, match="methods must not hold 'spp' on 'network', a problem without prox"):
        make_study(methods=["spp"])
    study = make_study()
    with pytest.raises(ValueError, match="the method 'spp' cannot train a network"):
        job_of(study, "nowhere").tasks([*study.runs, type(study.runs[0])(Method("spp"), 0.1, 0)])


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="batch_size must be at most the 48 training rows of 'network', got 49"):
        make_study(batch_size=49)


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


# Where runs are computed.


def test_networks_of_the_package_can_be_sent_to_other_processes():
    problem = NetworkProblem(partial(networks.mlp, 6, (8,), 3), TRAIN)
    assert b"__main__" not in pickle.dumps(job_of(make_study(problem), "folder"))


def test_workers_take_one_gpu_each(monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    for number in ((), (1,), (2,), (3,)):
        monkeypatch.setattr(engine.multiprocessing.current_process(), "_identity", number)
        engine._take_gpu()
    assert taken == [0, 1, 0]  # this process has the one it has
