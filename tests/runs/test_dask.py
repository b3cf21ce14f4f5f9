"""Sweeps on a real Dask cluster: a scheduler and two workers, each a process of this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

import surefoot
from surefoot.cli import app
from surefoot.runs import Record, States
from surefoot.search import tune
from surefoot.study import ClusterError, Method, RunFailed, Study

pytest.importorskip("distributed")

from tests.processes import Program, wait_until
from tests.runs.dask_cluster import SMALL, cluster

NETWORK = {
    "problem": "digits-mlp",
    "problem_options": {"hidden": [16]},
    "methods": ["sgd", "ngn"],
    "lrs": [0.1, 1.0],
    "seeds": 2,
    "epochs": 3,
    "batch_size": 64,
}
LARGE = {**SMALL, "lrs": np.geomspace(1e-3, 1e1, 100).tolist(), "seeds": 10}
MANY_CHUNKS = {**LARGE, "problem_options": {"d": 1000}, "lrs": LARGE["lrs"][::5], "epochs": 25, "every": 10}
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its background jobs to ignore it
from surefoot.study import Study
study = Study(**{study!r})
print("ready", flush=True)
study.run(sys.argv[1], engine="dask", address={address!r})
"""


def make(settings):
    return Study(**settings)


def launch(settings, address, store, prefix=""):
    process = Program(prefix + PROGRAM.format(study=settings, address=address), store)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("dask")) as started:
        yield started


@pytest.fixture(scope="module")
def alone():
    """Results of the engine on this machine."""
    known = {}

    def find(settings):
        key = repr(settings)
        if key not in known:
            known[key] = make(settings).run(processes=1).dataset
        return known[key]

    return find


def test_two_thousand_short_runs_are_a_few_tasks(running, alone, assert_same_bits):
    before = running.tasks_done()
    result = make(LARGE).run(engine="dask", address=running.address)
    assert result.dataset.status.size == 2000
    assert 1 <= running.tasks_done() - before <= 40
    assert_same_bits(result.dataset, alone(LARGE))


def test_a_killed_worker_changes_no_bit(running, alone, assert_same_bits):
    killed = []

    def kill(done, total):
        if not killed:
            killed.append(done)
            running.kill_worker()

    result = make(MANY_CHUNKS).run(engine="dask", address=running.address, progress=kill)
    running.add_worker()
    assert 0 < killed[0] < 400
    assert_same_bits(result.dataset, alone(MANY_CHUNKS))


def test_a_network_sweep_survives_its_worker_and_its_client(running, alone, assert_same_bits, tmp_path):
    path, study = tmp_path / "s.db", make(NETWORK)
    with launch(NETWORK, running.address, path) as client:
        wait_until(lambda: study.plan(path).done, client)
        running.kill_worker()
        client.kill()
    running.add_worker()
    assert study.plan(path).todo > 0
    result = study.run(path, engine="dask", address=running.address)
    assert_same_bits(result.dataset, alone(NETWORK))
    assert os.listdir(tmp_path) == ["s.db"]


@pytest.mark.slow
def test_what_nobody_waits_for_any_more_ends(running, tmp_path):
    settings = {**NETWORK, "epochs": 2000}
    with launch(settings, running.address, tmp_path / "s.db") as client:
        wait_until(lambda: list(tmp_path.glob("*.states/*.state")), client)
        client.kill()
    wait_until(lambda: not running.on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)), seconds=60)
    wait_until(lambda: not _at_work(running), seconds=60)


def _at_work(running):
    return any(psutil.Process(process.pid).cpu_percent(0.3) > 20 for process in running.workers)


def test_a_run_that_raises_is_named_and_finished_ones_are_kept(running, tmp_path):
    def optimizer(parameters, lr):
        import torch

        if lr == 0.5:
            raise ArithmeticError("half is too much")
        return torch.optim.SGD(parameters, lr)

    path = tmp_path / "s.db"
    settings = {**NETWORK, "methods": [Method("mine", optimizer=optimizer)], "lrs": [0.1, 0.2, 0.5], "seeds": 1}
    with pytest.raises(RunFailed, match=r"mine lr=0\.5, seed 0, .*raised ArithmeticError: half is too much"):
        make(settings).run(path, engine="dask", address=running.address)
    assert make({**settings, "lrs": [0.1, 0.2]}).plan(path).done > 0


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_a_search_on_the_cluster_has_the_answer_of_one_process(running, tmp_path, stored):
    study, before = make({**NETWORK, "lrs": [0.01, 0.1, 1.0, 10.0], "seeds": 1, "epochs": 1}), running.tasks_done()
    store = tmp_path / "s.db" if stored else None
    found = tune(study, engine="dask", address=running.address, store=store)
    alone = tune(study, processes=1)
    assert running.tasks_done() > before + 10
    assert (found.table, found.lr, found.loss, found.steps) == (alone.table, alone.lr, alone.loss, alone.steps)
    for one, other in zip(found.run.model.parameters(), alone.run.model.parameters(), strict=True):
        assert (one == other).all()


def test_a_worker_with_another_surefoot_is_refused(running, tmp_path):
    shutil.copytree(Path(surefoot.__file__).parent, tmp_path / "surefoot", ignore=shutil.ignore_patterns("*.xz"))
    (tmp_path / "surefoot" / "_version.py").write_text('__version__ = "0.0.7"\n')
    running.add_worker(path=tmp_path)
    running.wait_for(3)
    with pytest.raises(ClusterError, match=rf"surefoot 0\.0\.7, this process has {re.escape(surefoot.__version__)}"):
        make(SMALL).run(engine="dask", address=running.address)
    running.kill_worker(-1)


def test_a_worker_of_several_threads_is_refused(running):
    running.add_worker("--nthreads", "2")
    running.wait_for(3)
    with pytest.raises(ClusterError, match=r"has 2 threads, .*--nthreads 1 --nworkers 2"):
        make(SMALL).run(engine="dask", address=running.address)
    running.kill_worker(-1)


def test_runs_go_to_workers_that_offer_what_they_take(running, alone, assert_same_bits):
    with pytest.raises(ClusterError, match=r"a run takes 4 CPU, but no worker offers that many: .*--resources 'CPU=4'"):
        make(SMALL).run(engine="dask", address=running.address, cpus=4)
    running.add_worker("--resources", "CPU=4 GPU=1", "--name", "large")
    running.wait_for(3)
    busy = set()

    def look(done, total):
        busy.update(
            running.on_scheduler(
                lambda dask_scheduler: [
                    task.processing_on.name for task in dask_scheduler.tasks.values() if task.processing_on
                ]
            )
        )

    result = make(MANY_CHUNKS).run(engine="dask", address=running.address, cpus=4, gpus=1, progress=look)
    running.kill_worker(-1)
    assert busy == {"large"}
    assert_same_bits(result.dataset, alone(MANY_CHUNKS))


@pytest.mark.parametrize(("name", "problem"), [("study", "linear-regression"), ("tune", "digits-mlp")])
def test_the_command_takes_engine_and_address(running, tmp_path, name, problem):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'problem = "{problem}"\nmethods = ["sgd"]\nlrs = [0.01, 0.1]\nseeds = 2\nepochs = 1\nbatch_size = 50\n'
    )
    command = [name, str(spec), "--json", "--store"]
    before = running.tasks_done()
    one = CliRunner().invoke(app, [*command, str(tmp_path / "1.db")])
    other = CliRunner().invoke(
        app, [*command, str(tmp_path / "2.db"), "--engine", "dask", "--address", running.address]
    )
    assert one.exit_code == other.exit_code == 0
    assert one.stdout.replace("1.db", "2.db") == other.stdout
    assert running.tasks_done() > before


@pytest.mark.slow
def test_a_run_that_keeps_losing_its_worker_is_given_up(tmp_path):
    def optimizer(parameters, lr):
        import torch

        if lr == 0.5:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.optim.SGD(parameters, lr)

    settings = {**NETWORK, "methods": [Method("mine", optimizer=optimizer)], "lrs": [0.1, 0.5], "seeds": 1}
    with pytest.raises(RunFailed, match=r"ended twice .* mine lr=0\.5, seed 0\. All other runs are done") as raised:
        make(settings).run(tmp_path / "s.db", engine="dask", processes=2)
    assert raised.value.result.dataset.status.values.ravel().tolist() == ["finished", "missing"]


@pytest.mark.slow
def test_a_long_run_goes_on_from_its_checkpoint(running, alone, assert_same_bits, tmp_path):
    settings = {**NETWORK, "lrs": [0.1], "methods": ["sgd"], "epochs": 300}
    path, study = tmp_path / "s.db", make(settings)
    saved = []

    def kill_a_worker():
        wait_until(lambda: len(list(tmp_path.glob("*.states/*.state"))) >= 2)
        running.kill_worker()
        states = States(str(tmp_path / "s.db.states"), study._context(), study._seen.identities)
        for record in (Record(run, study.steps) for run in study.runs):
            states.load(record)
            saved.append(record.taken)

    with ThreadPoolExecutor(1) as thread:
        killing = thread.submit(kill_a_worker)
        result = study.run(path, engine="dask", address=running.address)
        killing.result()
    running.add_worker()
    assert min(saved) > 0
    assert max(saved) < study.steps
    assert_same_bits(result.dataset, alone(settings))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [MANY_CHUNKS, {**NETWORK, "epochs": 30}], ids=["convex", "network"])
def test_a_client_that_is_killed_again_and_again_gets_there(running, alone, assert_same_bits, tmp_path, settings):
    path, study = tmp_path / "s.db", make(settings)
    done = 0
    for _ in range(3):
        with launch(settings, running.address, path) as client:
            wait_until(lambda done=done, client=client: study.plan(path).done > done or client.poll() is not None)
            client.kill()
        done = study.plan(path).done
    assert done > 0
    assert_same_bits(study.run(path, engine="dask", address=running.address).dataset, alone(settings))


def has_client(empty):
    """Whether somebody beside the one who asks is connected."""
    names = empty.on_scheduler(lambda dask_scheduler: list(dask_scheduler.clients))
    return len([name for name in names if name.startswith("Client")]) > 1


@pytest.mark.slow
def test_workers_may_come_later(alone, assert_same_bits, tmp_path):
    with cluster(tmp_path, workers=0) as empty, ThreadPoolExecutor(1) as thread:
        started = thread.submit(make(SMALL).run, engine="dask", address=empty.address)
        wait_until(lambda: has_client(empty))
        assert not started.done()
        empty.add_worker()
        assert_same_bits(started.result(timeout=60).dataset, alone(SMALL))


@pytest.mark.slow
def test_a_later_worker_with_another_surefoot_is_refused(tmp_path):
    shutil.copytree(Path(surefoot.__file__).parent, tmp_path / "other" / "surefoot")
    (tmp_path / "other" / "surefoot" / "_version.py").write_text('__version__ = "0.0.7"\n')
    with cluster(tmp_path / "dask", workers=0) as empty, ThreadPoolExecutor(1) as thread:
        started = thread.submit(make(SMALL).run, engine="dask", address=empty.address)
        wait_until(lambda: has_client(empty))
        empty.add_worker(path=tmp_path / "other")
        with pytest.raises(ClusterError, match=r"surefoot 0\.0\.7, this process has"):
            started.result(timeout=60)


@pytest.mark.slow
def test_a_scheduler_that_is_lost(tmp_path):
    with cluster(tmp_path / "dask", workers=1) as doomed:
        store = tmp_path / "s.db"
        with pytest.raises(ClusterError, match=f"the scheduler {doomed.address} was lost, .*run the same study again"):
            make(MANY_CHUNKS).run(
                store, engine="dask", address=doomed.address, progress=lambda done, total: doomed.scheduler.kill()
            )
        assert make(MANY_CHUNKS).plan(store).done > 0
