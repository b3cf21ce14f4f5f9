"""How long a run will be: from schedulers, and nobody."""

from __future__ import annotations

import functools

import pytest
import torch

from surefoot.watch._horizon import Planned


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)


def linear(opt, num_training_steps):
    """As Transformers makes it."""

    def factor(step, *, num_training_steps):
        return max(0.0, 1 - step / num_training_steps)

    part = functools.partial(factor, num_training_steps=num_training_steps)
    return torch.optim.lr_scheduler.LambdaLR(opt, part)


def asked_after(steps, scheduler, every=1):
    """What is known after so many steps, where a scheduler steps every so often."""
    planned = Planned()
    planned.add(scheduler)
    for step in range(1, steps + 1):
        scheduler.optimizer.step()
        if step % every == 0:
            scheduler.step()
        planned.look(step, None)
    return planned


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
    scheduler = make(optimizer())
    expected = None if steps is None else (steps, type(scheduler).__name__)
    assert asked_after(4, scheduler).known == expected


def test_a_length_that_is_exceeded_is_not_known():
    planned = asked_after(4, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer(), 70))
    for step in (71, 72):
        planned.look(step, None)
        assert planned.known is None  # it was wrong, and is not guessed again


def test_a_scheduler_that_steps_once_per_epoch_counts_epochs():
    known = asked_after(25, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer(), 10), every=10).known
    assert known is not None
    assert 80 <= known.steps <= 100
    assert known.source == "CosineAnnealingLR, about"


def test_a_length_that_no_run_has_is_not_known():
    assert asked_after(4, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer(), 10**12)).known is None


def test_a_length_that_is_given_stays():
    planned = Planned(50)
    planned.look(60, None)
    planned.settle(60)
    assert planned.known == (50, "--horizon")
