"""tune: near the best of the grid, for a few runs."""

import numpy as np
import pytest

from surefoot.search import ProblemRun, Run, tune
from surefoot.study import Study
from surefoot.theory import schedules

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


def test_diverged_runs_end(tape):
    horizon = 400
    losses = curves(LRS, LRS[6], horizon)
    losses[10:, :, 2:] = np.nan
    losses[8] = 1.2  # dead
    found = tune(tape(LRS, losses, 0.01 * np.ones(losses.shape)), LRS, horizon)
    assert found.lr == LRS[6]
    assert all(row.outcome in ("diverged", "never started") for row in found.table[10:])
    assert all(row.steps <= 3 for row in found.table[10:])
    assert found.table[8].outcome == "dropped"
    assert found.table[8].steps <= horizon / 8


@pytest.mark.parametrize("method", ["sgd", "sps", "ngn"])
def test_regret_on_a_real_problem(regression, method):
    study = Study(regression, methods=method, lrs=LRS, epochs=10, batch_size=5, seeds=[0])
    result = study.run()
    final = result.dataset.last_loss.values[0, :, 0]
    found = tune(ProblemRun(regression, method, batch_size=5), LRS, 100)
    assert found.loss == final[list(LRS).index(found.lr)]
    assert (found.loss - final.min()) / (result.initial_loss - final.min()) <= 0.05
    assert found.cost <= 0.45
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


def test_the_table_prints_and_becomes_a_frame(regression):
    found = tune(ProblemRun(regression, "sgd", batch_size=5), LRS, 100)
    lines = str(found.table).splitlines()
    assert len(lines) == 1 + sum(row.steps > 0 for row in found.table) < len(LRS)
    assert all(row.reason for row in found.table if row.steps)
    assert list(found.table.to_frame().lr) == list(LRS)


class Scored(Run):
    """A run whose loss falls with the rate until it is too large, and that can be evaluated."""

    def __init__(self, lr, best=0.1, horizon=200, accuracy=None):
        steps = np.arange(horizon)
        self.losses = 1.0 + np.exp(-8.0 * np.exp(-abs(np.log(lr / best))) * steps / horizon)
        self.accuracy, self.step = accuracy, 0
        if accuracy is not None:
            self.evaluate = lambda: self.accuracy

    def advance(self, k):
        part = self.losses[self.step : self.step + k]
        self.step += k
        return part, np.zeros(len(part))

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def test_an_accuracy_is_maximised():
    """Of the two that get to the end, the one with the larger accuracy wins, and its loss is told beside it."""
    accuracies = {0.1: 0.7, 0.2: 0.8}
    runs = lambda lr, seed: Scored(lr, 0.14, accuracy=accuracies[lr])  # noqa: E731
    best, worst = (tune(runs, [0.1, 0.2], 8, maximize=maximize) for maximize in (True, False))
    assert (best.lr, best.score) == (0.2, 0.8)
    assert 1.0 < best.loss < 2.1
    assert (worst.lr, worst.loss) == (0.1, 0.7)


def test_an_accuracy_that_is_not_finite_does_not_win():
    accuracies = {0.1: 0.7, 0.2: np.nan}
    found = tune(lambda lr, seed: Scored(lr, 0.14, accuracy=accuracies[lr]), [0.1, 0.2], 8, maximize=True)
    assert found.lr == 0.1


@pytest.mark.parametrize("best", [3e-4, 0.07, 20.0])
def test_a_search_finds_its_own_rates(best):
    found = tune(lambda lr, seed: Scored(lr, best), horizon=200)
    assert abs(np.log(found.lr / best)) <= np.log(1.3)
    lrs = np.array([row.lr for row in found.table])
    beside = np.sort(abs(np.log(lrs / found.lr)))[1:3]
    assert beside.max() <= np.log(1.3)


def test_refinement_of_its_own_rates_ends_at_its_factor(regression):
    lrs = [row.lr for row in tune(ProblemRun(regression, "sgd", batch_size=5), horizon=100).table]
    assert min(np.diff(np.log(lrs))) > np.log(1.3) / 2 - 1e-9


@pytest.mark.parametrize(("best", "lrs"), [(1.0, [0.01, 0.02, 0.04]), (0.001, [0.01, 0.02, 0.04])])
def test_a_grid_is_extended_where_the_best_is_at_its_end(best, lrs):
    runs = lambda lr, seed: Scored(lr, best)  # noqa: E731
    plain, extended = tune(runs, lrs, 200), tune(runs, lrs, 200, extend=True)
    assert any("extend=True" in text for text in plain.warnings)
    assert abs(np.log2(extended.lr / best)) <= 1.0
    assert not any("extend=True" in text for text in extended.warnings)


def test_the_answer_is_readable():
    found = tune(lambda lr, seed: Scored(lr), [0.001, 0.01, 0.1, 1.0], 200)
    text = str(found)
    assert text.startswith(f"lr = 0.1 for the price of {found.steps / 200:.1f} runs of 4 (")
    assert f"confidence {found.confidence:.2f}" in text
    assert str(found.table) in text
    page = found._repr_html_()
    assert page.count("<tr") == 1 + sum(row.steps > 0 for row in found.table)
    assert "<td>0.1</td>" in page


def test_finished_runs_of_a_store_count(regression, tmp_path):
    """After the whole study the answer is the study's best."""
    study = Study(regression, methods=["sgd", "sps"], lrs=LRS, epochs=10, batch_size=5, seeds=[0])
    best = study.run(tmp_path / "study.db").dataset.last_loss
    found = tune(study, store=tmp_path / "study.db")
    assert found.loss == float(best.min())
    assert found.steps < 0.5 * best.size * 100


def test_progress_and_schedule_as_in_a_study(capsys):
    runs = lambda lr, seed: Scored(lr)  # noqa: E731
    found = tune(runs, [0.01, 0.1, 1.0], 200, schedule="linear", progress=True)
    assert found.table == tune(runs, [0.01, 0.1, 1.0], 200, schedule=schedules.linear(200)).table
    assert "steps" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"schedule must be .*, got 'lineer'"):
        tune(runs, [0.01, 0.1, 1.0], 200, schedule="lineer")
