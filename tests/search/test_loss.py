"""objective="loss": near the best of the grid, for a few runs."""

import numpy as np
import pytest

from surefoot.search import ProblemRun, tune
from surefoot.study import Study

LRS = np.geomspace(1e-3, 1e2, 17)


def curves(lrs, best, horizon, seeds=1, noise=0.0):
    """Losses that fall fastest at the rate ``best``, with noise that all rates share."""
    random = np.random.default_rng(0)
    steps = np.arange(horizon)
    speed = np.exp(-np.abs(np.log(np.array(lrs) / best)))
    batches = noise * random.normal(size=(seeds, horizon))
    losses = 0.2 + np.exp(-8.0 * speed[:, None] * steps / horizon)
    return losses[:, None, :] * (1.0 + batches)


@pytest.mark.parametrize("place", [0, 3, 8, 13, 16])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_best_rate_wins_wherever_it_is(tape, place, noise):
    losses = curves(LRS, LRS[place], 200, noise=noise)
    found = tune(tape(LRS, losses, 0.01 * np.ones(losses.shape)), LRS, 200)
    assert found.lr == LRS[place]
    assert found.cost < 0.25
    assert found.certificate is None


def test_a_plateau_is_left_to_the_side_that_is_better(tape):
    """Beyond some rate all are equal (as with Polyak's step); the best one is at its left end."""
    losses = curves(LRS, LRS[5], 200)
    losses[8:] = losses[8]
    found = tune(tape(LRS, losses, 0.01 * np.ones(losses.shape)), LRS, 200)
    assert found.lr == LRS[5]


def test_all_data_orders_count(tape):
    """A rate that is best for one order only does not win."""
    losses = curves(LRS, LRS[8], 100, seeds=3)
    losses[10, 0] *= 0.9
    losses[10, 1:] *= 2.0
    found = tune(tape(LRS, losses, 0.01 * np.ones(losses.shape)), LRS, 100, seeds=3)
    assert found.lr == LRS[8]
    assert found.table[8].steps == 300


def test_diverged_and_dead_runs_end(tape):
    horizon = 400
    losses = curves(LRS, LRS[6], horizon)
    losses[10:, :, 2:] = np.nan
    losses[7] = 1.2  # dead
    deltas = 0.01 * np.ones(losses.shape)
    deltas[7, :, 10:] = 0.0
    found = tune(tape(LRS, losses, deltas), LRS, horizon)
    assert found.lr == LRS[6]
    assert all(row.outcome in ("diverged", "never started") for row in found.table.rows[10:])
    assert all(row.steps <= 3 for row in found.table.rows[10:])
    assert found.table[7].outcome == "dead"


def test_the_bound_rules_out_beyond_the_slack(tape):
    """A candidate whose loss leads is dropped if its bound is far beyond the best: slack decides."""
    lrs, horizon = [0.1, 0.2, 0.4], 90
    losses = curves(lrs, 0.4, horizon)
    deltas = np.full(losses.shape, 1e-3)
    deltas[2] = 50.0
    tight = tune(tape(lrs, losses, deltas), lrs, horizon, bias=1.0, slack=2.0)
    loose = tune(tape(lrs, losses, deltas), lrs, horizon, bias=1.0, slack=1e6)
    assert tight.lr == 0.2
    assert "bound above 2" in tight.table[2].reason
    assert loose.lr == 0.4


@pytest.mark.parametrize("method", ["sgd", "sps", "ngn"])
def test_regret_on_a_real_problem(regression, method):
    study = Study(regression, methods=method, lrs=LRS, epochs=10, batch_size=5, seeds=[0])
    result = study.run()
    final = result.dataset.last_loss.values[0, :, 0]
    found = tune(ProblemRun(regression, method, batch_size=5), LRS, 100)
    assert found.loss == final[list(LRS).index(found.lr)]
    assert (found.loss - final.min()) / (result.initial_loss - final.min()) <= 0.05
    assert found.cost <= 0.25
    assert found.run.step == 100


def test_methods_compete_in_the_loss(regression):
    runs = {name: ProblemRun(regression, name, batch_size=5) for name in ("sgd", "ngn")}
    found = tune(runs, LRS, 100)
    losses = {name: tune(run, LRS, 100).loss for name, run in runs.items()}
    assert found.method in runs
    assert found.loss <= 1.1 * min(losses.values())


def test_refinement_looks_between(regression):
    runs = ProblemRun(regression, "sgd", batch_size=5)
    coarse = [0.001, 0.01, 0.1, 1.0]
    plain, fine = tune(runs, coarse, 100), tune(runs, coarse, 100, refine=2)
    assert len(fine.table) > len(plain.table)
    assert fine.loss <= plain.loss


def test_one_candidate_is_run_to_its_end(regression):
    found = tune(ProblemRun(regression, "sgd", batch_size=5), [0.01], 50)
    assert (found.lr, found.steps, found.cost) == (0.01, 50, 1.0)


def test_a_horizon_of_one_step(regression):
    assert tune(ProblemRun(regression, "sgd", batch_size=5), [0.01, 0.1], 1).steps >= 1


def test_the_plot_shows_every_candidate(regression):
    found = tune(ProblemRun(regression, "sgd", batch_size=5), LRS, 100)
    ax = found.plot()
    assert len(ax.patches) == len(LRS)
    texts = [text.get_text() for text in ax.texts]
    assert sum(text == "chosen" for text in texts) == 1
    assert any(text.startswith("diverged: at step") for text in texts) or any("never" in text for text in texts)


def test_the_table_prints_and_becomes_a_frame(regression):
    found = tune(ProblemRun(regression, "sgd", batch_size=5), LRS, 100)
    assert len(str(found.table).splitlines()) == len(LRS) + 1
    assert list(found.table.to_frame().lr) == list(LRS)


def test_the_table_says_plainly_that_a_rate_never_started(regression):
    found = tune(ProblemRun(regression, "sgd", batch_size=5), LRS, 100, objective="bound", bias=1.0)
    idle = [line for line in str(found.table).splitlines() if "never started" in line]
    assert idle
    assert "nan" not in str(found.table)
    assert all(line.split()[1:3] == ["0", "–"] for line in idle)
    frame = found.table.to_frame()
    assert frame.loss.dtype == float
    assert (frame.loss.isna() == (frame.outcome == "never started")).all()


def test_a_search_on_convex_problems_does_not_need_torch():
    import subprocess
    import sys

    code = (
        "import sys; from surefoot.problems import LinearRegression; from surefoot.search import ProblemRun, tune;"
        "tune(ProblemRun(LinearRegression(), 'sgd', batch_size=5), [0.01, 0.1], 20); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
