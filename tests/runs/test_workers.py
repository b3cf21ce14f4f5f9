"""Worker processes: what they are sent, what they answer, and how they end."""

import multiprocessing
import os
import signal
import threading
import time
from contextlib import closing

import pytest
from tests.processes import wait_until

from surefoot.runs._workers import CannotTravel, WorkerDied, Workers


@pytest.fixture(autouse=True, scope="module")
def _quick_workers():
    """How a process starts is tested here, too: none is forked from a ready one."""


class Server:
    """Does what a function does."""

    def __init__(self, function):
        self.function = function

    def do(self, task):
        return self.function(task)


class Picky(Exception):
    """Cannot be pickled as it is: its constructor wants two things, and tells one."""

    def __init__(self, one, two):
        super().__init__(one)


def answers(workers, count):
    found = []
    while len(found) < count:
        some = workers.take(60)
        assert some, "no answer within a minute"
        found += some
    return found


def test_closures_travel_and_answers_come_back():
    factor = 3
    with closing(Workers(Server(lambda task: factor * task), 2)) as workers:
        for worker, task in enumerate((1, 2)):
            workers.give(worker, task)
        assert sorted((answer.task, answer.value) for answer in answers(workers, 2)) == [(1, 3), (2, 6)]
        assert workers.ready == [0, 1]
    assert not multiprocessing.active_children()


def test_what_cannot_be_sent_says_why():
    with pytest.raises(CannotTravel, match="TypeError: cannot pickle"):
        Workers(Server(threading.Lock()), 1)


def test_errors_come_back_with_their_cause():
    def fail(task):
        if task == "picky":
            raise Picky("left", "right")
        raise ValueError("bad") from KeyError("worse")

    with closing(Workers(Server(fail), 1)) as workers:
        workers.give(0, "plain")
        workers.give(0, "picky")
        plain, picky = (answer.error for answer in answers(workers, 2))
    assert isinstance(plain, ValueError)
    assert isinstance(plain.__cause__, KeyError)
    assert isinstance(picky, RuntimeError)
    assert str(picky) == "Picky: left"


def test_a_worker_that_is_killed_is_noticed():
    with closing(Workers(Server(lambda task: os.kill(os.getpid(), signal.SIGKILL)), 1)) as workers:
        workers.give(0, None)
        (answer,) = answers(workers, 1)
    assert isinstance(answer.error, WorkerDied)


def test_a_worker_ends_in_the_middle_of_a_task():
    with closing(Workers(Server(lambda task: time.sleep(600)), 1)) as workers:
        workers.give(0, None)
        while not workers.ready:
            time.sleep(0.01)
        assert workers.take(0.1) == []  # that it has come up is no answer, and is not waited upon
        (process,) = multiprocessing.active_children()
    assert process.exitcode == -signal.SIGTERM
    assert not multiprocessing.active_children()


class OfDask(Server):
    """The same on a Dask cluster, whose tasks can be told to stop."""

    needs_torch = False

    def fingerprint(self):
        return "the same everywhere"

    def do(self, task, stop):
        return super().do(task)


def test_an_error_does_not_overtake_what_was_done_before_it_on_a_cluster():
    """It comes with a message, and results have to be fetched."""
    pytest.importorskip("distributed")
    from surefoot.runs._dask import DaskWorkers

    def do(task):
        if task == "fails":
            raise ArithmeticError("too much")
        return [bytes(100_000_000)]

    with closing(DaskWorkers(OfDask(do), 1)) as workers:
        for task in ("large", "fails"):
            workers.give(0, task)
        found = []
        wait_until(lambda: found.extend(workers.take(1.0)) or any(answer.error is not None for answer in found))
    assert {answer.task: type(answer.error) for answer in found} == {"large": type(None), "fails": ArithmeticError}
