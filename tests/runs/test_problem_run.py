"""Runs on convex problems have the numbers of a study."""

import numpy as np
import pytest

from surefoot.problems import LinearRegression, LogisticRegression
from surefoot.runs._types import STEP_FIELDS
from surefoot.search import ProblemRun
from surefoot.study import Study


@pytest.fixture(scope="module")
def regression():
    return LinearRegression(noise=0.5)


def same_bits(one, other):
    return np.asarray(one, float).tobytes() == np.asarray(other, float).tobytes()


@pytest.mark.parametrize("method", ["sgd", "sps", "ngn", "power(p=0.25)", "spp"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("pieces", [[30], [7, 1, 22]])
def test_traces_equal_a_study_to_the_last_bit(regression, method, schedule, pieces):
    lrs = [0.01, 0.3, 30.0]
    study = Study(regression, methods=method, lrs=lrs, epochs=3, batch_size=5, seeds=[3], schedule=schedule)
    data = study.run().dataset.isel(algorithm=0, seed=0)
    recipe = ProblemRun.of_study(regression, study.methods[0], study.shared)
    for place, lr in enumerate(lrs):
        run, there = recipe(lr, 3), data.isel(lr=place)
        for k in pieces:
            run.advance(k)
        trace = run.trace()
        assert trace.status == there.status
        assert trace.diverged_at == there.diverged_at
        for name in STEP_FIELDS:
            assert same_bits(trace.steps[name], there[name].values), name
        assert same_bits(trace.epochs["train_loss"], there.train_loss.values)
        assert all(same_bits(value, there[name].values) for name, value in trace.final.items())


@pytest.mark.parametrize("data", ["vowel"])
def test_several_classes_and_validation(data):
    problem = LogisticRegression(data)
    study = Study(problem, methods="sgd", lrs=[1.0, 1e200], epochs=2, batch_size=16, seeds=1)
    there = study.run().dataset.isel(algorithm=0, seed=0)
    for place, lr in enumerate(study.lrs):
        run = ProblemRun.of_study(problem, study.methods[0], study.shared)(lr, 0)
        run.advance(study.steps)
        trace = run.trace()
        assert trace.diverged_at == there.diverged_at.values[place]
        for name, values in (trace.steps | trace.epochs).items():
            assert same_bits(values, there[name].values[place]), name


def test_going_on_from_a_state(regression):
    recipe = ProblemRun(regression, "ngn", batch_size=5)
    straight, first, second = recipe(0.1, 0), recipe(0.1, 0), recipe(0.1, 0)
    straight.advance(30)
    first.advance(13)
    second.load_state_dict(first.state_dict())
    second.advance(17)
    assert same_bits(straight.state_dict()["points"], second.state_dict()["points"])
    assert same_bits(straight.state_dict()["steps"], second.state_dict()["steps"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number from 1 to 50"),
        ({"batch_size": 51}, "batch_size must be a whole number from 1 to 50"),
        ({"batch_size": 5, "sampling": "random"}, "sampling must be one of shuffle, iid"),
    ],
)
def test_bad_settings(regression, options, message):
    with pytest.raises(ValueError, match=message):
        ProblemRun(regression, "sgd", **options)
