"""Runs with a level in place of a lower bound: ``sps(lower_bound=level)``."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.search import ProblemRun
from surefoot.study import Study, parse_method
from surefoot.theory import level, models

SETTINGS = {"lrs": [0.1, 1.0, 100.0], "seeds": 2, "epochs": 8, "batch_size": 2}  # 200 steps: more than one block
METHODS = ["sgd", "sps(lower_bound=level)", "ngn(lower_bound=level(share=0.5, smoothing=0.5))"]


@pytest.fixture(scope="module")
def result():
    return Study("linear-regression", methods=METHODS, **SETTINGS).run()


@pytest.mark.parametrize(
    ("position", "model", "rule"),
    [(1, models.Truncated(), level.Rule()), (2, models.SquareRoot(), level.Rule(share=0.5, smoothing=0.5))],
)
def test_sizes_and_indices_are_those_of_the_level(result, position, model, rule):
    data = result.dataset.isel(algorithm=position, seed=0)
    for rate, lr in enumerate(SETTINGS["lrs"]):
        seen, losses, grad_sqs = level.Seen(), data["loss"].values[rate], data["grad_sq"].values[rate]
        assert len(losses) > 128
        for step, (loss, grad_sq) in enumerate(zip(losses, grad_sqs, strict=True)):
            seen, gap, steady = level.observe(rule, seen, float(loss), float(lr * grad_sq))
            scale = model.step(gap, steady, 1.0).size
            assert data["size"].values[rate, step] == pytest.approx(scale * lr, rel=1e-10)
            delta = models.safe_delta(gap, float(lr * grad_sq), 1.0, scale)
            assert data["delta"].values[rate, step] == pytest.approx(delta, rel=1e-9, abs=1e-15)


def test_neighbours_do_not_matter(result):
    """SGD diverges beside it at a rate of 100, and is taken out."""
    alone = Study("linear-regression", methods=METHODS[1], **SETTINGS).run()
    np.testing.assert_array_equal(alone.dataset.loss.values[0], result.dataset.loss.values[1])
    assert np.isinf(result.dataset.last_loss.values[0, -1]).all()


@pytest.mark.parametrize("spec", ["sps(lower_bound=level)", "sps(lower_bound='level')", "SPS( lower_bound = level() )"])
def test_a_level_has_one_name(spec):
    assert parse_method(spec).name == "sps(lower_bound=level)"
    assert parse_method(spec, lower_bound=-2.0).level == level.Rule()


def test_networks_hand_it_to_the_optimizer():
    import torch

    import surefoot.optim as sfo
    from surefoot.runs._methods import build

    for spec in ("ngn(lower_bound=level(share=0.3))", "ngn-adam(lower_bound=level(share=0.3))"):
        optimizer = build(parse_method(spec), [torch.nn.Parameter(torch.zeros(2))], 0.1)
        assert optimizer.lower_bound_rule == sfo.Level(share=0.3)
        assert not optimizer.certifies


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sps(lower_bound=level(share=2))", r"share must be a number in \(0, 1\), got 2"),
        ("sps(lower_bound=level(part=0.1))", "parameter of 'level' must be .*, got 'part'"),
        ("sps(lower_bound='floor')", "lower_bound must be a number, level or"),
        ("sps(lower_bound=floor)", "with plain numbers"),
        ("sgd(lower_bound=level)", "parameter of method 'sgd' must be"),
    ],
)
def test_bad_levels_are_named(spec, message):
    with pytest.raises(ValueError, match=message):
        parse_method(spec)


def test_a_run_of_a_search_has_the_numbers_of_the_study(result):
    """Its level is part of its state."""
    study = Study("linear-regression", methods=METHODS, **SETTINGS)
    run = ProblemRun.of_study(study.problem, study.methods[1], study.shared)(1.0, 1)
    for k in (50, 1, 149):
        run.advance(k)
    there = result.dataset.isel(algorithm=1, lr=1, seed=1)
    np.testing.assert_array_equal(run.trace().steps["loss"], there.loss)
    np.testing.assert_array_equal(run.trace().steps["size"], there["size"])
