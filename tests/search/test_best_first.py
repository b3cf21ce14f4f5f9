"""objective="bound": the answer of the exhaustive grid, with its proof."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.search import NoRateWorks, ProblemRun, tune
from surefoot.study import Study
from surefoot.theory import bounds, schedules

LRS = np.geomspace(1e-3, 1e2, 11)


def exhaustive(study, **options):
    total = study.run().bound(**options).total.values
    place = np.unravel_index(np.argmin(total), total.shape)
    return study.methods[place[0]].name, study.lrs[place[1]], total


def searched(study, bias, **options):
    factories = {
        method.name: ProblemRun(study.problem, method, batch_size=study.batch_size, schedule=study.factors)
        for method in study.methods
    }
    return tune(factories, study.lrs, study.steps, objective="bound", bias=bias, seeds=study.seeds, **options)


@pytest.mark.parametrize(
    ("problem", "method", "bias"),  # every pair of two of them
    [
        ("regression", "sgd", 1.0), ("logistic", "sgd", "envelope"),
        ("regression", "sps", "envelope"), ("logistic", "sps", 1.0),
        ("regression", "ngn", 1.0), ("logistic", "ngn", "envelope"),
        ("regression", "spp", "envelope"), ("logistic", "spp", 1.0),
    ],
)  # fmt: skip
def test_the_answer_is_that_of_the_grid(problem, method, bias, request):
    options = {"bias": bias} if bias == "envelope" else {"distance": bias}
    study = Study(request.getfixturevalue(problem), methods=method, lrs=LRS, epochs=3, batch_size=5, seeds=2)
    _, lr, total = exhaustive(study, **options)
    found = searched(study, bias)
    assert found.lr == lr
    assert found.bound == total.min()
    assert found.certificate is not None
    assert found.certificate.holds


def test_methods_compete(regression):
    study = Study(regression, methods=["sgd", "sps", "ngn"], lrs=LRS, epochs=3, batch_size=5, seeds=1)
    method, lr, total = exhaustive(study, distance=1.0)
    found = searched(study, 1.0)
    assert (found.method, found.lr, found.bound) == (method, lr, total.min())


def test_a_schedule_enters_the_weights(regression):
    study = Study(regression, methods="sgd", lrs=LRS, epochs=3, batch_size=5, seeds=1, schedule="cosine")
    _, lr, total = exhaustive(study, distance=1.0)
    found = searched(study, 1.0)
    assert (found.lr, found.bound) == (lr, total.min())


def test_every_dropped_candidate_is_really_worse(regression):
    """The certificate's partial sums are lower bounds of what the whole grid says."""
    study = Study(regression, methods="sgd", lrs=LRS, epochs=3, batch_size=5, seeds=2)
    _, _, total = exhaustive(study, distance=1.0)
    whole = dict(zip(study.lrs, total[0], strict=True))
    certificate = searched(study, 1.0).certificate
    assert len(certificate.dropped) == len(LRS) - 1
    for other in certificate.dropped:
        assert certificate.bound <= other.bound <= whole[other.lr] * (1 + 1e-9)


def test_never_started_candidates_are_certified_by_their_bias(regression):
    found = tune(ProblemRun(regression, "sgd", batch_size=5), LRS, 100, objective="bound", bias=1.0)
    idle = [other for other in found.certificate.dropped if other.steps == 0]
    assert idle
    assert all(other.noise == 0.0 and other.bias >= found.bound for other in idle)


indices = st.floats(0.0, 1e3) | st.sampled_from([0.0, 1e-300, 1e300, np.inf])


@given(data=st.data(), count=st.integers(1, 6), seeds=st.integers(1, 3), horizon=st.integers(1, 12))
@settings(max_examples=100)
def test_any_non_negative_indices(tape, data, count, seeds, horizon):
    """For all indices, rates and schedules: argmin and value are the grid's, and the proof holds."""
    deltas = np.array(
        data.draw(st.lists(indices, min_size=count * seeds * horizon, max_size=count * seeds * horizon))
    ).reshape(count, seeds, horizon)
    deltas[0] = np.minimum(deltas[0], 1.0)  # one works
    lrs = np.geomspace(0.01, 10.0, count)
    factors = np.array(data.draw(st.lists(st.floats(1e-3, 1.0), min_size=horizon, max_size=horizon)))
    runs = tape(lrs, np.ones(deltas.shape), deltas)
    # What follows a step that is not finite is never seen: the grid counts it as ∞, too.
    known = np.where(np.logical_or.accumulate(np.isinf(deltas), axis=2), np.inf, deltas)
    with np.errstate(over="ignore"):
        total = bounds.last_iterate(lrs[:, None] * factors, known.mean(axis=1), 2.0).total
    found = tune(runs, lrs, horizon, objective="bound", bias=2.0, seeds=seeds, schedule=factors)
    assert found.bound == total.min()
    assert found.lr == lrs[np.argmin(total)]
    assert found.certificate.holds


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 1.0])
def test_tolerance_is_kept_and_saves_steps(regression, tolerance):
    study = Study(regression, methods="ngn", lrs=LRS, epochs=10, batch_size=5, seeds=1)
    _, _, total = exhaustive(study, distance=1.0)
    exact, loose = searched(study, 1.0), searched(study, 1.0, tolerance=tolerance)
    assert loose.bound <= (1 + tolerance) * total.min()
    assert loose.certificate.holds
    assert loose.steps <= exact.steps


def test_runs_that_all_diverge_do_so_without_a_warning(regression):
    """Their distance from the start overflows before their loss does."""
    runs = ProblemRun(regression, "sgd", batch_size=5)
    with pytest.raises(NoRateWorks, match="not finite at step"):
        tune(runs, [1e5, 1e6], 400, objective="bound", bias=1.0)


def test_it_costs_less_than_the_grid(regression):
    found = tune(ProblemRun(regression, "sgd", batch_size=5), LRS, 100, objective="bound", bias=1.0)
    assert found.cost < 0.5
    assert found.steps == sum(row.steps for row in found.table)
    assert found.cost == pytest.approx(found.steps / (100 * len(LRS)))


def test_refinement_is_certified_too(regression):
    runs = ProblemRun(regression, "sgd", batch_size=5)
    plain = tune(runs, LRS, 100, objective="bound", bias=1.0)
    fine = tune(runs, LRS, 100, objective="bound", bias=1.0, refine=2)
    assert len(fine.table) > len(plain.table)
    assert fine.bound <= plain.bound
    assert fine.certificate.holds
    assert [row.lr for row in fine.table] == sorted(row.lr for row in fine.table)


def test_a_negative_index_gives_no_certificate(tape):
    deltas = np.ones((2, 1, 10))
    deltas[1, 0, 3] = -0.5
    lrs = [0.1, 1.0]
    found = tune(tape(lrs, np.ones((2, 1, 10)), deltas), lrs, 10, objective="bound", bias=5.0)
    assert found.certificate is None


def test_a_run_may_say_that_its_indices_prove_nothing(tape):
    class Heuristic(tape):
        def __call__(self, lr, seed):
            run = super().__call__(lr, seed)
            run.certifies = False
            return run

    lrs = [0.1, 1.0]
    found = tune(Heuristic(lrs, np.ones((2, 1, 10)), np.ones((2, 1, 10))), lrs, 10, objective="bound", bias=1.0)
    assert found.certificate is None


def test_the_pool_revives_what_looked_worse(regression):
    """With a pool the answer is the minimiser for the pool as it is at the end, and there is no certificate."""
    runs = ProblemRun(regression, "sgd", batch_size=5)
    found = tune(runs, LRS, 100, objective="bound", bias="pool")
    assert found.certificate is None
    best = min(row.bound for row in found.table)
    assert found.bound == best


def test_the_pool_does_not_favour_rates_that_stand_still(regression):
    found = tune(ProblemRun(regression, "sgd", batch_size=5), LRS, 100, objective="bound", bias="pool")
    assert found.lr > LRS[0]


@pytest.fixture
def near(tape):
    """Recorded runs that stay near the start."""

    class Near(tape):
        def __call__(self, lr, seed):
            run = super().__call__(lr, seed)
            run.distance = lambda: 0.1
            return run

    return Near


def test_a_pool_needs_distances(tape):
    runs = tape([0.1], np.ones((1, 1, 10)), np.ones((1, 1, 10)))
    with pytest.raises(TypeError, match=r"bias='pool' needs runs with distance\(\)"):
        tune(runs, [0.1], 10, objective="bound")


def test_a_dead_run_does_not_win(near):
    """Vanished indices at a high loss would make the bound smallest; the loss says otherwise."""
    lrs, horizon = [0.1, 1.0], 200
    losses = np.stack([np.linspace(1.0, 0.1, horizon), np.ones(horizon)])[:, None]
    deltas = np.stack([np.full(horizon, 0.05), np.r_[np.full(20, 0.01), np.zeros(horizon - 20)]])[:, None]
    found = tune(near(lrs, losses, deltas), lrs, horizon, objective="bound", bias="pool")
    assert found.lr == 0.1
    assert found.table[1].outcome == "dead"


def test_a_loss_above_its_own_bound_refutes_it(near):
    """Without convexity small indices prove nothing: a complete run that contradicts its bound does not win."""
    lrs, horizon = [0.1, 1.0], 100
    losses = np.stack([np.linspace(1.0, 0.1, horizon), np.full(horizon, 1.0)])[:, None]
    deltas = np.stack([np.full(horizon, 0.3), np.full(horizon, 1e-3)])[:, None]

    found = tune(near(lrs, losses, deltas), lrs, horizon, objective="bound", bias="pool")
    assert found.lr == 0.1
    assert "refutes its bound" in found.table[1].reason


@pytest.mark.parametrize("name", ["warmup(steps=5)", "linear", "wsd"])
def test_schedules_by_the_factory(regression, name):
    factors = schedules.from_name(name, 50)
    runs = ProblemRun(regression, "sgd", batch_size=5, schedule=factors)
    found = tune(runs, LRS, 50, objective="bound", bias=1.0)
    assert found.certificate.holds
