"""Rows with ``lower_bound="level"`` at ten times the rate, on transformers and convolutions: what they lose.

    python benchmarks/level_rows.py [--quick] [--tasks development|held-out|all] [--rows NAME ...]

Each cell is how far a row's held-out loss is above its own best of nine rates, in percent, after 200 steps at a
constant rate that is ten times too large: ten times the best rate of AdamW for the rows in Adam's metric and for AdamW
itself, ten times their own best for the rows in the spectral one. The goal is 5 %. Runs are kept in a file
(``--cache``), so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import nn

import surefoot.optim as sfo
from _tasks import HELD_OUT, TASKS
from no_rate import HALF_DECADES, Key, Method, Runs, plain

GOAL, STEPS = 5.0, 200
KINDS = ("gpt", "cnn-norm", "cnn-plain")
SMALL = ("language-1000", "images-1000")
"""Of the random draw that may be looked at: see ``_drawn_tasks.py``."""


AVERAGINGS = {
    "": None,
    "one scale": sfo.AveragedDirection(0.9),
    "linearisations": sfo.Linearisations(0.9, bias_correction=True),
}
"""*One scale* is momentum that a bad batch shortens as a whole: what NGNAdam, SPSMuon and NGNMuon have at a level."""


def row(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """A row of the table of optimizers, at a level, with its own averaging or with another one."""
    name, _, averaging = name.partition(", ")
    made: Any = getattr(sfo, name)
    return made(model.parameters(), lr, lower_bound="level", averaging=AVERAGINGS[averaging])  # type: ignore[no-any-return]


DIAGONAL = ("SPSAdam", "NGNAdam", "MoMoAdam", "NGNMomentumAdam", "SPSAdam, one scale", "NGNAdam, linearisations")
SPECTRAL = ("SPSMuon", "NGNMuon", "NGNMomentumMuon", "SPSMuon, linearisations", "NGNMuon, linearisations")
ROWS = {
    "AdamW": Method(plain("AdamW"), tuple(HALF_DECADES)),
    **{name: Method(partial(row, name), tuple(10 ** (k / 2) for k in range(-7, 2))) for name in DIAGONAL},
    **{name: Method(partial(row, name), tuple(10 ** (k / 2) for k in range(-6, 4))) for name in SPECTRAL},
}


def above(runs: Runs, method: str, task: str, rate: float) -> float:
    """How far the loss at a rate is above the row's own best, in percent."""

    def loss(lr: float) -> float:
        return runs.get(Key(method, task, lr, 0, STEPS, "constant"))[1]

    return 100 * (loss(rate) / min(map(loss, ROWS[method].rates)) - 1)


def best_rate(runs: Runs, method: str, task: str) -> float:
    return min(ROWS[method].rates, key=lambda lr: runs.get(Key(method, task, lr, 0, STEPS, "constant"))[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small transformer and a small convolution")
    parser.add_argument("--tasks", choices=("development", "held-out", "all"), default="all")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help="some rows only")
    parser.add_argument("--cache", type=Path, default=Path("out/level_rows.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.cache.parent.mkdir(parents=True, exist_ok=True)
    held = {"development": (False,), "held-out": (True,), "all": (False, True)}[options.tasks]
    tasks = [name for name, task in TASKS.items() if task.kind in KINDS and (name in HELD_OUT) in held]
    if options.quick:
        tasks = list(SMALL)
    runs = Runs(options.cache, ROWS)
    out = Table(title="Above the row's own best loss at ten times the rate, in %")
    for column in ("row", *tasks, "worst", f"≤ {GOAL:g} %"):
        out.add_column(column, justify="left" if column == "row" else "right")
    with Progress(console=Console(stderr=True)) as progress:
        for name in progress.track(options.rows, description="rows"):
            cells = []
            for task in progress.track(tasks, description=name):
                tuned = best_rate(runs, name if name in SPECTRAL else "AdamW", task)
                cells.append(above(runs, name, task, 10 * tuned))
            goal = "" if name == "AdamW" else "yes" if max(cells) <= GOAL else "NO"
            out.add_row(name, *(f"{cell:.1f}" for cell in cells), f"{max(cells):.1f}", goal)
    Console(width=140 if not Console().is_terminal else None).print(out)


if __name__ == "__main__":
    main()
