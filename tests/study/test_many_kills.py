"""Two hundred kills: of studies, searches and networks, alone and two processes at once on one store."""

import random
import sqlite3
import time

import numpy as np
import pytest
from tests.processes import Program
from tests.runs.network_cases import make_study

from surefoot.problems import LinearRegression
from surefoot.search import ProblemRun, tune
from surefoot.study import Result, Study

JOB = """
import sys
from surefoot.runs import _work
from tests.study.test_many_kills import JOBS
_work._SAVE_SECONDS, _work._SAVE_SHARE = 0.02, 0.5
JOBS[sys.argv[1]](sys.argv[2])
"""


def study(path=None):
    sweep = Study(
        "linear-regression", problem_options={"d": 500}, methods=["sps", "ngn"],
        lrs=np.geomspace(1e-3, 1e2, 20).tolist(), seeds=4, epochs=25, batch_size=5, every=10,
    )  # fmt: skip
    return sweep.run(path, processes=1)


def network(path=None):
    return make_study(methods=["ngn", "adamw"], lrs=[0.01], epochs=20, batch_size=2).run(path, processes=1)


def search(path=None):
    return tune(ProblemRun(LinearRegression(d=200), "ngn", batch_size=5), np.geomspace(1e-3, 1e2, 9), 2000, store=path)


def searched_study(path=None):
    return tune(make_study(methods=["ngn"], lrs=[0.01, 0.1, 1.0], epochs=15, batch_size=2), store=path)


JOBS = {"study": study, "network": network, "search": search, "searched": searched_study}


def kill(process):
    """Without warning; True if it was still at work."""
    with process:
        process.kill()
    return process.returncode < 0


def answer(kind, result):
    if kind in ("search", "searched"):
        return result.lr, result.loss, result.steps, str(result.table)
    data = result.dataset
    return {name: data[name].values.tobytes() for name in data.data_vars if data[name].dtype.kind != "U"}


def check_end(kind, path, whole):
    """The same bits as without a kill, and nothing left behind."""
    assert answer(kind, JOBS[kind](path)) == whole
    beside = sorted(other.name for other in path.parent.iterdir())
    searches = kind in ("search", "searched")
    assert beside == ([path.name, f"{path.name}.states"] if searches else [path.name])
    assert not list(path.parent.rglob("*.part"))
    assert searches or (Result.load(path).dataset.status != "missing").all()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def kill_often(kind, path, whole, seconds, kills, draw, together):
    """Kill processes at random moments, then let one go to the end; how many were at work when they were killed."""
    hit = 0
    for _ in range(kills):
        first, *others = [Program(JOB, kind, path) for _ in range(2 if together else 1)]
        time.sleep(draw.uniform(0.0, 0.8) * seconds)
        hit += kill(first)
        for other in others:
            if draw.random() < 0.5:
                time.sleep(draw.uniform(0.0, 0.3) * seconds)
                kill(other)
            else:
                with other:
                    _, messages = other.communicate(timeout=300)
                    assert all(line.endswith("this one waits for it") for line in messages.splitlines())
                    assert other.returncode == 0
    check_end(kind, path, whole)
    return hit


def run_kills(tmp_path, plan, seed):
    """``plan``: (kind, stores, kills of each, two processes at once)."""
    draw, total = random.Random(seed), {}
    for kind in dict.fromkeys(row[0] for row in plan):
        begin = time.perf_counter()
        whole = answer(kind, JOBS[kind]())
        seconds = time.perf_counter() - begin
        for number, (_, stores, kills, together) in enumerate(row for row in plan if row[0] == kind):
            for store in range(stores):
                folder = tmp_path / f"{kind}-{number}-{store}"
                folder.mkdir()
                hit = kill_often(kind, folder / "s.db", whole, seconds, kills, draw, together)
                done, struck = total.get(kind, (0, 0))
                total[kind] = done + kills, struck + hit
    return total


def test_a_few_kills(tmp_path):
    total = run_kills(tmp_path, [("study", 1, 2, True), ("network", 1, 2, True), ("search", 1, 2, True)], seed=1)
    assert sum(kills for kills, _ in total.values()) == 6


@pytest.mark.slow
def test_two_hundred_kills(tmp_path):
    plan = [
        ("study", 10, 4, False), ("study", 8, 3, True),
        ("network", 10, 4, False), ("network", 8, 3, True),
        ("search", 6, 4, False), ("search", 4, 3, True),
        ("searched", 6, 4, False), ("searched", 4, 3, True),
    ]  # fmt: skip
    total = run_kills(tmp_path, plan, seed=0)
    print(f"kills, and how many hit a process at work: {total}")
    assert sum(kills for kills, _ in total.values()) == 200
    assert sum(struck for _, struck in total.values()) > 100
