"""How long a run will be: from loops, schedulers, and nobody."""

from __future__ import annotations

import sys

import pytest
import torch
from tests.watch import watch_loops

from surefoot.watch._horizon import Planned, _length
from surefoot.watch._loops import Loops, places


@pytest.mark.parametrize(
    ("loops", "lengths", "counter"),
    [
        (watch_loops.nested, (4, 2, 7), 2),
        (watch_loops.calling, (3, 7), None),
        (watch_loops.built_inside, (3,), None),  # the outer loop goes on with another optimizer
    ],
)
def test_loops_over_ranges_loaders_and_tensors(loops, lengths, counter):
    assert loops() == Loops(lengths, counter)


@pytest.mark.parametrize(
    "loops", [watch_loops.endless, watch_loops.counting, watch_loops.streaming, watch_loops.behind]
)
def test_what_cannot_be_read_is_not_known(loops):
    assert loops() is None


def test_places_are_lines():
    assert (__file__, sys._getframe().f_lineno) in places(sys._getframe())


def test_reading_variables_leaves_no_trace():
    seen, config = watch_loops.with_locals()
    assert config == {}
    assert "later" not in seen or sys.version_info >= (3, 13)
    assert watch_loops.without_locals() == 3


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)


def linear(opt, num_training_steps):
    return torch.optim.lr_scheduler.LambdaLR(opt, lambda step: max(0.0, 1 - step / num_training_steps))


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 70), 70),
        (lambda opt: torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=80), 80),
        (lambda opt: torch.optim.lr_scheduler.PolynomialLR(opt, 90), 90),
        (lambda opt: torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=10), None),  # a warmup
        (lambda opt: torch.optim.lr_scheduler.StepLR(opt, 30), None),
        (lambda opt: linear(opt, 60), 60),
        (
            lambda opt: torch.optim.lr_scheduler.SequentialLR(
                opt,
                [
                    torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=10),
                    torch.optim.lr_scheduler.CosineAnnealingLR(opt, 70),
                ],
                [10],
            ),
            80,
        ),
    ],
)
def test_length_of_a_scheduler(make, steps):
    assert _length(make(optimizer())) == steps


def test_a_scheduler_that_steps_with_the_optimizer_knows_the_length():
    opt = optimizer()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 70)
    planned = Planned()
    planned.add(scheduler)
    for step in range(1, 5):
        opt.step()
        scheduler.step()
        planned.look(step, None)
    assert planned.known == (70, "CosineAnnealingLR")
    planned.look(71, None)
    assert planned.known is None  # it was wrong, and is not guessed again
    planned.look(72, None)
    assert planned.known is None


def test_a_scheduler_that_steps_once_an_epoch_counts_epochs():
    opt = optimizer()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    planned = Planned()
    planned.add(scheduler)
    for step in range(1, 26):
        opt.step()
        if step % 10 == 0:
            scheduler.step()
        planned.look(step, None)
    assert planned.known is not None
    assert 80 <= planned.known.steps <= 100
    assert planned.known.source == "CosineAnnealingLR, about"


def test_what_is_told_stays():
    planned = Planned(50)
    planned.look(60, None)
    planned.settle(60)
    assert planned.known == (50, "--horizon")
