"""The batched engine against a plain loop: one run, one step at a time."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.runs.engine_cases import METHODS, PROBLEMS, runs_of, sweep

from surefoot.monitor import DeltaExplosion
from surefoot.problems import ArrayProblem
from surefoot.rules import Stop, StopRule
from surefoot.runs._row_orders import row_orders
from surefoot.runs._types import STEP_FIELDS
from surefoot.study import Study, parse_method
from surefoot.theory import models, schedules


@dataclass
class PlainTrace:
    loss: list = field(default_factory=list)
    grad_sq: list = field(default_factory=list)
    rate: list = field(default_factory=list)
    size: list = field(default_factory=list)
    delta: list = field(default_factory=list)
    distance: list = field(default_factory=list)
    train_loss: list = field(default_factory=list)
    last_loss: float = 0.0
    average_loss: float = 0.0


def plain_run(problem, run, *, epochs, batch_size, schedule, sampling="shuffle"):
    """What the engine does, for one run."""
    model, start = parse_method(run.method).model, problem.initial_point()
    x, trace = start.copy(), PlainTrace()

    def full(point):
        return float(problem.full_loss(point[None, None])[0, 0])

    orders = row_orders(run.seed, problem.n_rows, batch_size, sampling)
    weighted, step = np.zeros_like(x), 0
    trace.train_loss.append(full(x))
    for _ in range(epochs):
        for rows in next(orders):
            rate = run.lr * schedule[step]
            losses, gradients = problem.loss_and_gradient(x[None, None], rows[None])
            loss, gradient = float(losses[0, 0]), gradients[0, 0]
            grad_sq = float(gradient @ gradient)
            trace.loss.append(loss)
            trace.grad_sq.append(grad_sq)
            trace.rate.append(rate)
            trace.distance.append(float(np.linalg.norm(x - start)))
            weighted += schedule[step] * x
            trace.last_loss = full(x)
            if model is None:
                proximal = problem.prox(x[None, None], rows[None], np.full((1, 1), rate))
                new = proximal.points[0, 0]
                moved = float((new - x) @ (new - x))
                trace.size.append(np.sqrt(moved / grad_sq) if grad_sq > 0 else rate)
                trace.delta.append(max(loss - float(proximal.losses[0, 0]) - moved / (2 * rate), 0.0))
                x = new
            else:
                size, delta = model.step(loss, grad_sq, float(rate))
                trace.size.append(size)
                trace.delta.append(delta)
                x = x - size * gradient
            step += 1
        trace.train_loss.append(full(x))
    trace.average_loss = full(weighted / np.sum(schedule))
    return trace


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_engine_agrees_with_a_plain_loop(name, method):
    problem, batch_size, lrs = PROBLEMS[name]
    epochs = 30 if problem.n_rows == 1 else 1 if name == "vowel" else 3
    steps = problem.n_rows // batch_size * epochs
    factors = schedules.cosine(steps) if name.startswith("ridge") else np.ones(steps)
    runs = runs_of([method], lrs, [7])
    for run, trace in zip(
        runs, sweep(problem, runs, batch_size, epochs=epochs, schedule=lambda _: factors), strict=True
    ):
        plain = plain_run(problem, run, epochs=epochs, batch_size=batch_size, schedule=factors)
        assert trace.status == "finished"
        for key in STEP_FIELDS:
            expected = np.array(getattr(plain, key))
            scale = np.max(np.abs(expected)) if key in ("loss", "grad_sq", "delta") else 1.0
            np.testing.assert_allclose(trace.steps[key], expected, rtol=1e-10, atol=1e-13 * scale, err_msg=key)
        np.testing.assert_allclose(trace.epochs["train_loss"], plain.train_loss, rtol=1e-10, atol=1e-15)
        for key in ("last_loss", "average_loss"):
            np.testing.assert_allclose(trace.final[key], getattr(plain, key), rtol=1e-10, atol=1e-15)


def test_what_a_rule_has_ended_does_not_depend_on_who_else_runs(assert_same_bits):
    """Its slot goes on from the start, which counts nowhere."""
    common = {"lrs": [1.0, 3.0], "seeds": 1, "epochs": 60, "batch_size": 5, "stop": DeltaExplosion(), "distance": 1.0}
    alone = Study("linear-regression", methods=["sgd"], **common).run(processes=1).dataset
    beside = Study("linear-regression", methods=["sgd", "sps"], **common).run(processes=1).dataset
    assert set(alone.status.values.ravel()) == {"stopped"}
    assert_same_bits(beside.sel(algorithm=["sgd"]), alone)


class Bowl(ArrayProblem):
    """½x² of one row, from 1."""

    name, n_rows, features = "bowl", 1, 1

    def describe(self):
        return {}

    def initial_point(self):
        return np.ones(1)

    def evaluate(self, points, rows):
        return 0.5 * (points**2).sum(axis=-1), points


@dataclass(frozen=True)
class At(StopRule):
    """Ends every run at a step."""

    step: int

    def first(self, history):
        return Stop("it is time", self.step, 0.0, "it is time") if len(history.loss) > self.step else None


@pytest.mark.filterwarnings("ignore::surefoot.study.LowerBoundWarning")
def test_a_run_that_is_ended_before_its_last_step_has_no_loss_there():
    common = {"methods": ["sps(lower_bound=0.4)", "sgd"], "lrs": [0.5], "seeds": 1, "epochs": 10, "batch_size": 1}
    assert np.isinf(Study(Bowl(), **common, stop=At(8)).run(processes=1).dataset.last_loss.values).all()


@pytest.mark.filterwarnings("ignore::surefoot.study.LowerBoundWarning")
def test_steps_after_the_end_are_no_violations():
    common = {"methods": ["sgd", "sps(lower_bound=0.6)"], "lrs": [0.5], "seeds": 1, "epochs": 5, "batch_size": 1}
    for rows in (1, 4):  # which are asked for rules after every step, and after every fourth
        problem = Bowl()
        problem.n_rows = rows
        found = Study(problem, **common, stop=At(3)).run(processes=1).dataset
        losses = found.loss.values[1, 0, 0]
        assert found.violations.values[1].item() == (losses[np.isfinite(losses)] < 0.6).sum() == 4


@dataclass(frozen=True)
class Halved(models.Linear):
    """A model of one's own, derived from that of SGD."""

    def solve(self, xp, point):
        size, delta = super().solve(xp, point)
        return 0.5 * size, delta


def test_a_model_derived_from_the_linear_one_takes_its_own_steps():
    study = Study("linear-regression", methods=[Halved()], lrs=[0.01], seeds=1, epochs=1, batch_size=5)
    assert (study.run(processes=1).dataset["size"].values == 0.005).all()
