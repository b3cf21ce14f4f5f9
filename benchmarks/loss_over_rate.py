"""The README's picture: what is lost by a wrong learning rate, and by choosing none.

    python benchmarks/loss_over_rate.py [--out out] [--seeds 3] [--cache FILE.csv]

AdamW at twelve rates that are √10 apart, and Surefoot as it comes, on one network of each of three kinds: a transformer
on characters, a convolutional network on digits, a perceptron whose weights are in other units. They are the first
of the *drawn* tasks of their kinds (``_drawn_tasks.py``), which nobody looked at while the rule was chosen. 200 steps
at a constant rate. Lines are means over the seeds, bands go from the smallest to the largest loss. Runs are kept in a
file, which ``no_rate.py`` shares. Writes loss-over-rate.png and loss-over-rate.csv, and prints the table.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from _drawn_tasks import LAST
from no_rate import DEFAULTS, RECORDED, TUNED, Key, Runs
from surefoot.plots import look
from surefoot.plots.methods import GREY
from surefoot.plots.style import key, legend_below, mark_edge, new_figure

TASKS = {
    f"language-{LAST[0]}": "a transformer on characters",
    f"images-{LAST[0]}": "a convolutional network on digits",
    f"units-{LAST[0]}": "a perceptron in other units",
}
STEPS = 200
METHODS = {"AdamW": TUNED["AdamW"].rates, "Surefoot": DEFAULTS["Surefoot"].rates}


def losses(runs: Runs, seeds: int, progress: Progress) -> dict[tuple[str, str, float], tuple[float, np.ndarray]]:
    """(task, method, rate) → held-out loss before, and after for every seed."""
    wanted = [(task, method, lr) for task in TASKS for method, rates in METHODS.items() for lr in rates]
    found = {}
    for task, method, lr in progress.track(wanted, description="runs"):
        pairs = [runs.get(Key(method, task, lr, seed, STEPS, "constant")) for seed in range(seeds)]
        found[task, method, lr] = (float(np.mean([before for before, _ in pairs])), np.array([end for _, end in pairs]))
    return found


def draw(table: dict[tuple[str, str, float], tuple[float, np.ndarray]], path: Path) -> None:
    """One panel a task: AdamW over its rates, Surefoot as a line, because it has none."""
    tasks = list(dict.fromkeys(task for task, _, _ in table))
    figure, axes = new_figure(len(tasks), width=3.6, height=3.3)
    for ax, task in zip(axes, tasks, strict=True):
        start = table[task, "Surefoot", METHODS["Surefoot"][0]][0]
        top = 1.15 * start
        rates = np.array(METHODS["AdamW"])
        ends = np.array([table[task, "AdamW", lr][1] for lr in rates])
        mean = ends.mean(axis=1)
        adamw, ours = look("adamw"), look("surefoot")
        inside = mean <= top
        ax.plot(rates, np.where(inside, mean, np.nan), color=adamw.colour, marker=adamw.marker, label=adamw.label)
        shown = np.where(inside[:, None], np.minimum(ends, top), np.nan)
        ax.fill_between(rates, shown.min(axis=1), shown.max(axis=1), color=adamw.colour, alpha=0.18, linewidth=0)
        mark_edge(ax, rates, mean, top, adamw.colour)
        flat = table[task, "Surefoot", METHODS["Surefoot"][0]][1]
        ax.axhline(flat.mean(), color=ours.colour, linewidth=2.2, label=f"{ours.label}, no rate")
        ax.axhspan(flat.min(), flat.max(), color=ours.colour, alpha=0.18, linewidth=0)
        ax.axhline(start, color=GREY, linestyle=":", linewidth=1.0, label="loss at the start")
        ax.set(xscale="log", xlabel="learning rate of AdamW", ylim=(None, top), xlim=(rates[0] / 2, rates[-1] * 2))
        ax.set_title(TASKS[task], fontsize=10)
    axes[0].set_ylabel(f"held-out loss after {STEPS} steps")
    key(axes[0], "loss above the axis", linestyle="none", marker="^", fillstyle="none")
    if any(np.isinf(ends).any() for _, ends in table.values()):
        key(axes[0], "diverged for some seed", linestyle="none", marker="x")
    legend_below(figure, axes)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=RECORDED)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for folder in (options.out, options.cache.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with Progress(console=Console(stderr=True)) as progress:
        found = losses(Runs(options.cache, TUNED | DEFAULTS), options.seeds, progress)
    heads = ("task", "method", "rate", "start", "mean", "smallest", "largest")
    shown = Table(*heads, title=f"held-out loss after {STEPS} steps, {options.seeds} seeds")
    with (options.out / "loss-over-rate.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("task", "method", "lr", "seed", "initial", "final"))
        for (task, method, lr), (start, ends) in found.items():
            lr = lr if method == "AdamW" else math.nan
            writer.writerows((task, method, lr, seed, start, end) for seed, end in enumerate(ends.tolist()))
            rate = "none" if math.isnan(lr) else f"{lr:.3g}"
            shown.add_row(task, method, rate, *(f"{v:.3f}" for v in (start, ends.mean(), ends.min(), ends.max())))
    Console(width=100).print(shown)
    draw(found, options.out / "loss-over-rate.png")


if __name__ == "__main__":
    main()
