"""``find_lr`` of surefoot and Lightning's own range test against a grid.

Eight small cases, four per framework, drawn once (``_finder_cases.py``). The grid has nine rates, a factor of √10
apart; each is trained by the framework itself with two seeds (``--seeds``), and its loss is the mean over the last
tenth of the steps. ``find_lr`` gets the rates of the grid and one seed; the goal is half of the price of the grid with
one seed. ``Tuner.lr_find`` of Lightning runs with its defaults; it has no place for a schedule, and cases of
Transformers are given to it as a Lightning module with the same optimizer.

python benchmarks/finders.py                     prints the table; results are kept in --cache, and go on there
python benchmarks/finders.py --development       other cases, with which this command was written
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import transformers
from rich.console import Console
from rich.progress import Progress

from _finder_cases import (
    DEVELOPMENT_SEED,
    HELD_OUT_SEED,
    Case,
    Module,
    draw,
    lightning_trainer,
    loader,
    transformers_trainer,
)
from surefoot.integrations import lightning as in_lightning
from surefoot.integrations import transformers as in_transformers

OURS, RANGE_TEST = "surefoot", "range test"
NEAR = 2.0
"""A rate within this factor of the grid's best is found."""
GOAL = 0.5
"""The price of ``find_lr``, as a part of that of the grid."""


class Recorder(pl.Callback):
    """Keeps the losses of all batches."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        """Take the loss of a batch."""
        self.seen.append(float(outputs["loss"]))


def trained(case: Case, lr: float, seed: int) -> float:
    """The loss of the last tenth of a training by the framework itself; ∞ if one of them is not finite."""
    if not lr > 0:  # nothing was found
        return math.inf
    if case.framework == "lightning":
        recorder = Recorder()
        module, trainer = Module(case, lr), lightning_trainer(case, recorder)
        pl.seed_everything(seed, verbose=False)
        trainer.fit(module, loader(case))
        losses = np.array(recorder.seen)
    else:
        with tempfile.TemporaryDirectory() as folder:
            trainer = transformers_trainer(case, folder, lr, seed)
            transformers.set_seed(seed)
            trainer.train()
            losses = np.array(trainer.seen) * case.accumulate
    last = losses[-max(1, len(losses) // 10) :]
    return float(last.mean()) if np.isfinite(last).all() else math.inf


def found_by_us(case: Case) -> dict[str, float]:
    """What ``find_lr`` says, and its price as a part of that of the grid."""
    begin = time.perf_counter()
    if case.framework == "lightning":
        found = in_lightning.find_lr(lambda lr: (lightning_trainer(case), Module(case, lr), loader(case)), lrs=case.lrs)
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = in_transformers.find_lr(lambda lr: transformers_trainer(case, folder, lr), lrs=case.lrs)
    return {"lr": found.lr, "price": found.cost, "seconds": time.perf_counter() - begin}


def found_by_range_test(case: Case) -> dict[str, float]:
    """What Lightning's own finder suggests; NaN if nothing."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        pl.seed_everything(0, verbose=False)
        trainer = lightning_trainer(case)
        finder = pl.tuner.Tuner(trainer).lr_find(Module(case, bare=True), train_dataloaders=loader(case))
        suggestion = None if finder is None else finder.suggestion()
    return {"lr": math.nan if suggestion is None else suggestion}


def results(cases: list[Case], seeds: range, cache: Path) -> dict[str, Any]:
    """All numbers, computed or from the cache."""
    known: dict[str, Any] = json.loads(cache.read_text()) if cache.exists() else {}

    def get(key: str, compute: Callable[..., Any], *arguments: Any) -> Any:
        if key not in known:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                known[key] = compute(*arguments)
            cache.write_text(json.dumps(known, indent=1))
        return known[key]

    with Progress(console=Console(stderr=True)) as progress:
        for case in progress.track(cases, description="finding"):
            get(f"{case.name} {OURS}", found_by_us, case)
            get(f"{case.name} {RANGE_TEST}", found_by_range_test, case)
        for seed in seeds:
            for case in progress.track(cases, description=f"training, seed {seed}"):
                rates = {f"{lr:.4g}": lr for lr in case.lrs}
                rates |= {finder: known[f"{case.name} {finder}"]["lr"] for finder in (OURS, RANGE_TEST)}
                for name, lr in rates.items():
                    get(f"{case.name} {name} {seed}", trained, case, lr, seed)
    return known


def factor(one: float, other: float) -> float:
    """How far two rates are apart."""
    return max(one / other, other / one) if one > 0 else math.inf


def table(cases: list[Case], seeds: range, known: dict[str, Any]) -> str:
    """The table of the docs."""

    def mean(key: str) -> float:
        return float(np.mean([known[f"{key} {seed}"] for seed in seeds]))

    lines = [
        "| case | grid: rate, loss | `find_lr`: rate, loss | factor | price | range test: rate, loss | factor |",
        "|---|---|---|---|---|---|---|",
    ]
    near = [0, 0]
    for case in cases:
        losses = {lr: mean(f"{case.name} {lr:.4g}") for lr in case.lrs}
        best = min(losses, key=lambda lr: losses[lr])
        cells = []
        for place, finder in enumerate((OURS, RANGE_TEST)):
            found = known[f"{case.name} {finder}"]
            apart = factor(found["lr"], best)
            near[place] += apart <= NEAR
            cells.append(f"{found['lr']:.2g}, {mean(f'{case.name} {finder}'):.3f} | {apart:.1f}")
        price = known[f"{case.name} {OURS}"]["price"]
        lines.append(
            f"| {case.framework}: {case} | {best:.2g}, {losses[best]:.3f} | {cells[0]} | {price:.0%} | {cells[1]} |"
        )
    lines.append("")
    lines.append(
        f"Within a factor of {NEAR:g} of the grid's best: find_lr in {near[0]} of {len(cases)} cases, the range test "
        f"in {near[1]}. Seeds {', '.join(map(str, seeds))}."
    )
    prices = [known[f"{case.name} {OURS}"]["price"] for case in cases]
    missed = sum(price > GOAL for price in prices)
    lines.append(f"Price of find_lr: {np.mean(prices):.0%} of the grid, over {GOAL:.0%} in {missed} cases.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--development", action="store_true", help="the cases that may be looked at")
    parser.add_argument("--only", help="names of cases, with commas")
    parser.add_argument("--seeds", type=int, default=2, help="trainings of every rate")
    parser.add_argument("--cache", type=Path, default=Path("finders.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    cases = draw(DEVELOPMENT_SEED if options.development else HELD_OUT_SEED)
    if options.only:
        cases = [case for case in cases if case.name in options.only.split(",")]
    seeds = range(options.seeds)
    print(table(cases, seeds, results(cases, seeds, options.cache)))


if __name__ == "__main__":
    main()
