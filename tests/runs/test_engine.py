"""The batched engine: that a run's bits depend on nothing but the run, and that divergence is data."""

import numpy as np
import pytest
from tests.runs.engine_cases import METHODS, PROBLEMS, numbers, runs_of, sweep

from surefoot.problems import LinearRegression, LogisticRegression
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
    problem = LinearRegression(([[1.0]], [0.0]))
    traces = sweep(problem, runs_of(["sgd"], [1e200], [0]), 1, epochs=1)
    assert np.isfinite(traces[0].steps["loss"]).all()
    diverging = sweep(problem, runs_of(["sgd"], [1e308 * 1.7], [0]), 1, epochs=2)[0]
    assert diverging.status == "diverged"


@pytest.mark.filterwarnings("ignore:.*proximal points are not certain:RuntimeWarning")
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
    problem = LinearRegression(([[1.0], [1e-3]], [0.0, 0.0]))
    trace = sweep(problem, runs_of(["log-ngn(lower_bound=1e-4)"], [1e6], [0]), 1, epochs=1000)[0]
    assert trace.status == "diverged"
    assert trace.violations == np.count_nonzero(trace.steps["loss"] < 1e-4) < 20


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


def test_chunks_hold_every_run_once_and_few_numbers():
    problem = LogisticRegression("dna")
    settings = Settings(100, 10, 16, np.ones(1000), "shuffle", 1)
    runs = runs_of(METHODS, np.geomspace(0.01, 100, 40), range(4))
    work = SweepWork(problem, {name: parse_method(name) for name in METHODS}, settings)
    tasks = work.tasks([Record(run, 1000) for run in runs], 1000)
    assert sorted(key for keys, _, _ in tasks for key in keys) == sorted(runs)
    assert max(len(keys) for keys, _, _ in tasks) * problem.dimension < 1e5
