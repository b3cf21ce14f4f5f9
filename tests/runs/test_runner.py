"""The executor, where other processes have a part in its runs."""

import numpy as np
import pytest

from surefoot.runs import Bench, Keeper, Key, Lane, Place, Progress, Run, RunError, RunFiles, Runner
from surefoot.runs._lane import Told
from surefoot.runs._workers import Answer


class Descent(Run):
    def __init__(self, lr, seed):
        self.lr, self.x = lr, 1.0

    def advance(self, k):
        losses = []
        for _ in range(k):
            losses.append(0.5 * self.x**2)
            self.x -= self.lr * self.x
        return Progress(losses, losses)

    def state_dict(self):
        return {"x": self.x}

    def load_state_dict(self, state):
        self.x = state["x"]


class AfterOthers(Keeper):
    """Somebody else has taken a run to its end while this process claimed it."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def claim(self, lanes):
        for lane in lanes:
            if lane.key == self.run:
                ones = np.ones(lane.horizon)
                lane.take(Told(0, ones, ones))
        return True


def test_a_run_that_others_have_finished_when_it_is_claimed_is_not_computed(tmp_path):
    keys = [Key("descent", lr, 0) for lr in (0.1, 0.5)]
    lanes = [Lane(key, 20) for key in keys]
    bench = Bench({"descent": Descent}, 20, [10, 20], RunFiles(str(tmp_path)))
    with Runner(bench, keeper=AfterOthers(keys[0])) as runner:
        runner.advance(lanes, 20)
    assert [lane.done for lane in lanes] == [20, 20]
    np.testing.assert_array_equal(lanes[0].losses, np.ones(20))
    assert lanes[1].losses[0] == 0.5
    assert np.all(np.diff(lanes[1].losses) < 0)


class ErrorFirst:
    """A pool in which one of two runs fails, and the other one is done at the same moment."""

    def __init__(self, work):
        self.work, self.given = work, []

    def __len__(self):
        return 2

    def give(self, worker, task):
        self.given.append(task)

    def take(self, seconds):
        fails, done = self.given
        return [Answer(fails, None, ArithmeticError("too much")), Answer(done, self.work.do(done))]

    def close(self):
        pass


def test_what_is_done_beside_a_run_that_fails_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Place, "pool", lambda place, work, count, named: ErrorFirst(work))
    fails, done = lanes = [Lane(Key("descent", lr, 0), 20) for lr in (0.1, 0.5)]
    bench = Bench({"descent": Descent}, 20, [20], RunFiles(str(tmp_path)))
    runner = Runner(bench, place=Place(processes=2), whole=True)
    with runner, pytest.raises(RunError, match=r"descent lr=0\.1.*too much"):
        runner.advance(lanes, 20)
    assert (fails.recorded, done.recorded) == (0, 20)
