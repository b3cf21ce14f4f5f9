"""The batched engine: that a run's bits depend on nothing but the run, and that divergence is data."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.runs.engine_cases import METHODS, PROBLEMS, numbers, run_batched, runs_of, small_logistic, sweep

from surefoot.problems import ArrayProblem, LinearPredictor, LinearRegression, LogisticRegression, Quadratic
from surefoot.runs import STEP_FIELDS, Record, Settings, SweepWork, parse_method
from surefoot.runs._row_orders import row_orders


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_alone_equals_itself_in_any_sweep_bit_for_bit(name):
    problem, batch_size, (low, high) = PROBLEMS[name]
    lrs = np.geomspace(low, 300 * high, 7)  # far beyond the stable rates, so that neighbours diverge
    runs = runs_of(METHODS, lrs, [0, 1, 5])
    epochs = 3 if name != "vowel" else 1
    together = sweep(problem, runs, batch_size, epochs)
    random = np.random.default_rng(0)
    shuffled = [runs[i] for i in random.permutation(len(runs))]
    elsewhere = dict(zip(shuffled, sweep(problem, shuffled, batch_size, epochs), strict=True))
    for index in random.choice(len(runs), 21, replace=False):
        alone = sweep(problem, [runs[index]], batch_size, epochs)[0]
        assert numbers(alone) == numbers(together[index]) == numbers(elsewhere[runs[index]]), runs[index]


def test_dna_is_bit_stable_too():
    problem = LogisticRegression("dna")
    runs = runs_of(["sgd", "sps", "ngn", "spp"], np.geomspace(0.01, 100, 3), [0, 1])
    together = sweep(problem, runs, 400, epochs=1)
    for index in (0, 13, 22):
        assert numbers(sweep(problem, [runs[index]], 400, epochs=1)[0]) == numbers(together[index])


def test_numbers_are_those_of_the_prototype_in_kind():
    problem = LinearRegression(start="zeros")
    lrs = [0.01, 0.1, 0.215, 1.0, 100.0]
    traces = sweep(problem, runs_of(["sgd", "sps", "ngn", "spp"], lrs, [0, 1, 2]), 5, epochs=10)
    final = np.array([trace.epochs["train_loss"][-1] for trace in traces]).reshape(4, len(lrs), 3).mean(axis=2)
    sgd, sps, ngn, spp = final
    assert 0.02 < sgd[0] < 0.1
    assert sgd[1] < 1e-4
    assert sgd[2] > 1e6
    assert np.isinf(sgd[4])
    assert np.all(sps[2:] < 1e-5)
    assert np.all(ngn[3:] < 1e-7)
    assert np.all(spp[3:] < 1e-13)


def test_divergence_is_data():
    problem = LinearRegression()
    trace = sweep(problem, runs_of(["sgd"], [100.0], [0]), 5, epochs=10)[0]
    assert trace.status == "diverged"
    assert 0 < trace.diverged_at < 100
    for name in ("loss", "grad_sq", "size", "delta", "distance"):
        assert np.isfinite(trace.steps[name][: trace.diverged_at]).all(), name
        assert np.isposinf(trace.steps[name][trace.diverged_at :]).all(), name
    assert np.isfinite(trace.steps["rate"]).all()
    assert np.isposinf(trace.epochs["train_loss"][trace.diverged_at // 10 + 1 :]).all()
    assert trace.final["last_loss"] == trace.final["average_loss"] == np.inf
    assert np.isfinite(trace.final["best_loss"])


def test_an_overflow_in_the_last_step_is_seen():
    problem = Quadratic([1.0], [0.0])
    traces = sweep(problem, runs_of(["sgd"], [1e200], [0]), 1, epochs=1)
    assert np.isfinite(traces[0].steps["loss"]).all()
    diverging = sweep(problem, runs_of(["sgd"], [1e308 * 1.7], [0]), 1, epochs=2)[0]
    assert diverging.status == "diverged"


def test_nothing_is_nan_for_any_rate():
    for problem, batch_size, _ in PROBLEMS.values():
        runs = runs_of(METHODS, [1e-300, 1e-8, 1e6, 1e150, 1e300], [0])
        for trace in sweep(problem, runs, batch_size, epochs=1):
            for values in [*trace.steps.values(), *trace.epochs.values(), np.array(list(trace.final.values()))]:
                assert not np.isnan(values).any(), trace.key


@pytest.mark.parametrize("every", [3, 7, 60])
def test_every_keeps_the_same_numbers_of_fewer_steps(every):
    problem = LinearRegression()
    runs = runs_of(["sps", "sgd", "spp"], [0.01, 1.0], [0])
    for full, thin in zip(
        sweep(problem, runs, 5, epochs=6), sweep(problem, runs, 5, epochs=6, every=every), strict=True
    ):
        for name in STEP_FIELDS:
            assert np.array_equal(full.steps[name][::every], thin.steps[name]), name
        assert full.final == thin.final
        assert full.diverged_at == thin.diverged_at


def test_violations_of_the_lower_bound_are_counted_and_take_no_step():
    problem = LinearRegression(noise=1.0)
    trace = sweep(problem, runs_of(["sps(lower_bound=1e6)"], [0.1], [0]), 5, epochs=2)[0]
    assert trace.violations == 20
    assert not trace.steps["size"].any()
    assert not trace.steps["distance"].any()
    assert sweep(problem, runs_of(["sps"], [0.1], [0]), 5, epochs=2)[0].violations == 0


def test_violations_end_with_the_run():
    # The second row's loss is below the bound at the start, to which a diverged run is put back.
    problem = Quadratic([1.0, 1e-3], [0.0])
    trace = sweep(problem, runs_of(["log-ngn(lower_bound=1e-4)"], [1e6], [0]), 1, epochs=1000)[0]
    assert trace.status == "diverged"
    assert trace.violations == np.count_nonzero(trace.steps["loss"] < 1e-4) < 20


def test_validation_losses_are_those_of_the_held_out_rows():
    problem = small_logistic(3)
    trace = sweep(problem, runs_of(["sgd"], [0.5], [0]), 4)[0]
    assert len(trace.epochs["valid_loss"]) == len(trace.epochs["train_loss"]) == 3
    assert len(sweep(LinearRegression(), runs_of(["sgd"], [0.01], [0]), 5)[0].epochs["valid_loss"]) == 0


def test_best_loss_is_the_smallest_full_loss_among_the_measured_iterates():
    trace = sweep(LinearRegression(), runs_of(["sgd"], [0.1], [0]), 5, epochs=4)[0]
    assert trace.final["best_loss"] == min(*trace.epochs["train_loss"][:-1], trace.final["last_loss"])


def test_iid_batches_differ_from_shuffled_ones_and_have_no_row_twice():
    rows = next(row_orders(3, 40, 8, "iid"))
    assert rows.shape == (5, 8)
    assert all(len(set(batch)) == 8 for batch in rows.tolist())
    assert len(set(rows.ravel().tolist())) < 40
    assert sorted(next(row_orders(3, 40, 8, "shuffle")).ravel().tolist()) == list(range(40))


def test_seeds_set_the_order_of_the_data_and_nothing_else():
    traces = sweep(LinearRegression(), runs_of(["sgd"], [0.01], [0, 1]), 50, epochs=3)
    np.testing.assert_allclose(traces[0].steps["loss"], traces[1].steps["loss"], rtol=1e-12)
    others = sweep(LinearRegression(), runs_of(["sgd"], [0.01], [0, 1]), 5, epochs=3)
    assert not np.allclose(others[0].steps["loss"], others[1].steps["loss"])


def test_large_sweeps_come_in_chunks():
    problem = LinearRegression()
    runs = runs_of(["sgd", "sps"], np.geomspace(1e-3, 0.1, 4000), [0])
    sizes = []
    run_batched(
        problem,
        runs,
        steps_per_epoch=10,
        epochs=1,
        batch_size=5,
        schedule=np.ones(10),
        on_chunk=lambda traces: sizes.append(len(traces)),
    )
    assert sum(sizes) == len(runs)
    assert len(sizes) > 1


def test_processes_change_no_bit():
    problem = small_logistic(3)
    runs = runs_of(["sps", "spp"], [0.1, 1.0, 10.0], [0, 1])
    here = sweep(problem, runs, 4)
    there = sweep(problem, runs, 4, processes=2)
    assert [numbers(trace) for trace in here] == [numbers(trace) for trace in there]


class Unpicklable(LinearPredictor):
    name = "unpicklable"

    def __init__(self):
        super().__init__([[1.0], [2.0]], [1.0, 2.0])
        self.tie = lambda: None

    def row_loss(self, predictions, targets):
        return 0.5 * (predictions - targets) ** 2, predictions - targets


def test_what_cannot_be_sent_to_other_processes_runs_here():
    runs = runs_of(["sgd", "ngn"], [0.1, 0.2], [0, 1])
    assert len(sweep(Unpicklable(), runs, 1, processes=2)) == 8


class Median(ArrayProblem):
    """mean |x − a_i|."""

    name, features = "median", 1

    def __init__(self, values):
        self.values, self.n_rows = np.asarray(values, float), len(values)

    def describe(self):
        return {"values": self.values.tolist()}

    def evaluate(self, points, rows):
        gap = points - self.values[rows]
        return np.abs(gap).mean(axis=1), np.sign(gap).mean(axis=1, keepdims=True)


def test_a_problem_of_one_s_own_is_one_class():
    problem = Median([1.0, 2.0, 4.0, 8.0, 16.0])
    traces = sweep(problem, runs_of(["sgd", "sps", "ngn"], [0.1], [0, 1]), 5, epochs=500)
    for trace in traces:
        assert trace.final["last_loss"] == pytest.approx(np.abs(problem.values - 4.0).mean(), rel=0.02)


def test_keyboard_interrupt_passes_through_and_keeps_what_was_handed_over():
    problem = LinearRegression()
    runs = runs_of(["sgd"], np.geomspace(1e-3, 0.1, 7000), [0])
    kept = []

    def keep(traces):
        if kept:
            raise KeyboardInterrupt
        kept.extend(traces)

    with pytest.raises(KeyboardInterrupt):
        sweep_with(problem, runs, keep)
    assert kept


def sweep_with(problem, runs, on_chunk):
    run_batched(problem, runs, steps_per_epoch=10, epochs=1, batch_size=5, schedule=np.ones(10), on_chunk=on_chunk)


def test_chunks_hold_every_run_once_and_few_numbers():
    problem = LogisticRegression("dna")
    settings = Settings(100, 10, 16, np.ones(1000), "shuffle", 1)
    runs = runs_of(METHODS, np.geomspace(0.01, 100, 40), range(4))
    work = SweepWork(problem, {name: parse_method(name) for name in METHODS}, settings)
    chunks = work.groups([Record(run, 1000) for run in runs])
    assert sorted(record.key for chunk in chunks for record in chunk) == sorted(runs)
    assert max(len(chunk) for chunk in chunks) * problem.dimension < 1e5


SCRIPT = """
import signal
import sys
import time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its background jobs to ignore it
sys.path.insert(0, sys.argv[1])
from tests.runs.engine_cases import run_batched, runs_of
import numpy as np
from surefoot.problems import LinearRegression

def keep(traces):
    print("chunk", len(traces), flush=True)

if __name__ == "__main__":
    steps = 10 * 2000
    runs = runs_of(["sps", "ngn"], np.geomspace(1e-3, 1.0, 500), range(4))
    try:
        run_batched(LinearRegression(), runs, steps_per_epoch=10, epochs=2000, batch_size=5, schedule=np.ones(steps),
                    every=100, on_chunk=keep, processes=2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_control_c_ends_the_workers_at_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), str(Path(__file__).parents[2])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("chunk")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to the workers too
    output, errors = process.communicate(timeout=20)
    assert output.rstrip().endswith("interrupted")
    assert errors == ""
    assert process.returncode == 0
    assert ends_soon(process.pid), "a worker is still there"


def ends_soon(group):
    """Whether a process group is empty within a few seconds; the last to go is Python's own resource tracker."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
