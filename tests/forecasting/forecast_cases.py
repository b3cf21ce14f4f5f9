"""Runs with known losses: the form itself with fixed numbers, plus a little noise."""

from __future__ import annotations

import numpy as np

from surefoot.forecasting import _schedules
from surefoot.forecasting import curve as form

TRUTH = np.array([2.5, -1.0, 0.45, -2.0, 0.8, -0.1, 0.02, 1.0])
UNITS = form.Reference(rate=0.01, growth=0.005, total=5.0, noise=3.0)
DECAY = 0.1


def true_loss(lr, schedule, steps, at=None, **options):
    rates = lr * _schedules.factors(schedule, steps, warmup=20, **options)
    return float(form.loss(TRUTH, form.trace(rates[: at or steps], weight_decay=DECAY), UNITS))


def row(lr, schedule, steps, run, noise=0.0, **options):
    loss = true_loss(lr, schedule, steps, **options) + noise
    return {"run": run, "lr": lr, "schedule": schedule, "steps": steps, "warmup": 20, "weight_decay": DECAY,
            "final_loss": loss, **options}  # fmt: skip


def make(seed=0, noise=0.001):
    random = np.random.default_rng(seed)
    cases = [
        (lr, schedule, steps, options)
        for steps in (600, 1200)
        for lr in (0.003, 0.01, 0.03)
        for schedule, options in (("cosine", {}), ("wsd", {"cooldown": 0.2}), ("constant", {}))
    ]
    return [
        row(lr, schedule, steps, run, noise * random.standard_normal(), **options)
        for run, (lr, schedule, steps, options) in enumerate(cases)
    ]


def curves_of(rows, offset=0.03):
    """Losses on another set, lower by the offset."""
    return [
        {"run": each["run"], "step": step,
         "valid_loss": true_loss(each["lr"], each["schedule"], each["steps"], at=step, **options) - offset}
        for each in rows
        for options in [{"cooldown": each["cooldown"]} if "cooldown" in each else {}]
        for step in range(100, each["steps"] + 1, 100)
    ]  # fmt: skip
