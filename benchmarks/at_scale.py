"""Optimizers on networks of half a million parameters and more, over 1,000 to 2,000 steps: a table of docs/evidence.md.

    python benchmarks/at_scale.py [--networks gpt vit lstm vae] [--methods NAME ...] [--figure FILE] [--recorded]
        [--rates 5]

AdamW and Muon at five rates that are √10 apart (``--rates 3``: the three in the middle), and at more as long as the
best one is the first or the last; AdamW at 1e-3; schedule-free AdamW and Prodigy at their defaults; Surefoot as it
comes, and with a weight decay of 0.1. All have a warmup of a tenth of the steps and a cosine after it, but schedule-
free AdamW and a second run of Surefoot, which have none. Gradients are clipped at 1. One seed.

Every finished run is appended to ``at_scale.csv``: its held-out losses on the way, and the processor seconds that
training had taken by then. What is there is not trained again; the tables and the figure are printed from this file.
*Regret* is (held-out loss − tuned AdamW's)/(initial loss − tuned AdamW's), in percent. *At equal time* is the loss at
the moment at which tuned AdamW was done, on a straight line between the recorded ones. Other work on the machine makes
steps longer, so that a run takes as long as if all its steps had been those of the fastest twentieth.

While Surefoot's rule was made, a character transformer on Shakespeare (5 layers of width 96, batches of 480
characters) was looked at, and none of the networks, texts and images here.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import nn

import surefoot.optim as sfo
from _scale_networks import Recipe, recipes
from _training import Factory, factors, mode
from no_rate import Method as Peer
from no_rate import installed, muon, peer, plain, surefoot

RECORDED = Path(__file__).with_name("at_scale.csv")
POINTS = 20
"""How often the held-out loss of a run is measured."""


class Method(NamedTuple):
    """A way to train: more than one rate means that it is tuned."""

    factory: Factory
    rates: tuple[float, ...]
    schedule: str = "cosine"


def around(middle: float, places: int = 2) -> tuple[float, ...]:
    """Rates that are √10 apart."""
    return tuple(float(f"{middle * 10 ** (k / 2):.3g}") for k in range(-places, places + 1))


def decayed(model: nn.Module, cap: float) -> torch.optim.Optimizer:
    """Surefoot with the weight decay that transformers often have with AdamW."""
    return sfo.Surefoot(model.parameters(), cap=cap, weight_decay=0.1)


METHODS = {
    "Surefoot": Method(surefoot, (10.0,)),
    "Surefoot, no schedule": Method(surefoot, (10.0,), "constant"),
    "Surefoot, weight decay 0.1": Method(decayed, (10.0,)),
    "AdamW": Method(plain("AdamW"), around(10**-2.5)),
    "Muon": Method(muon, around(0.02)),
    "Prodigy": Method(peer("prodigyopt", "Prodigy"), (1.0,)),
    "schedule-free AdamW": Method(peer("schedulefree", "AdamWScheduleFree"), (0.0025,), "constant"),
}


class Point(NamedTuple):
    """A row of the file: a run at one of its steps."""

    network: str
    method: str
    lr: float
    parameters: int
    step: int
    seconds: float
    loss: float


Runs = dict[tuple[str, str, float], list[Point]]


def train(network: str, recipe: Recipe, method: str, lr: float) -> list[Point]:
    """One run, on one thread; a loss that is not finite ends it."""
    _, _, schedule = METHODS[method]
    torch.manual_seed(0)
    made = recipe.make(0)
    optimizer = METHODS[method].factory(made.model, lr)
    rates = [group["lr"] for group in optimizer.param_groups]
    parameters = sum(p.numel() for p in made.model.parameters())
    points = [Point(network, method, lr, parameters, 0, 0.0, made.held_out())]
    mode(optimizer, "train")
    seconds = 0.0
    for step, factor in enumerate(factors(schedule, recipe.steps), 1):
        start = time.process_time()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        optimizer.zero_grad()
        loss = made.batch_loss(step)
        loss.backward()
        nn.utils.clip_grad_norm_(made.model.parameters(), 1.0)
        optimizer.step()
        seconds += time.process_time() - start
        lost = not math.isfinite(loss.item())
        if lost or step % (recipe.steps // POINTS) == 0:
            mode(optimizer, "eval")
            value = math.inf if lost else made.held_out()
            mode(optimizer, "train")
            points.append(Point(network, method, lr, parameters, step, round(seconds, 2), value))
        if lost:
            break
    return points


def recorded() -> Runs:
    """The runs of the file."""
    runs: Runs = {}
    if RECORDED.exists():
        with RECORDED.open(newline="") as file:
            for row in csv.DictReader(file):
                point = Point(
                    row["network"],
                    row["method"],
                    float(row["lr"]),
                    int(row["parameters"]),
                    int(row["step"]),
                    float(row["seconds"]),
                    float(row["loss"]),
                )
                runs.setdefault((point.network, point.method, point.lr), []).append(point)
    return runs


def record(points: list[Point]) -> None:
    """Append a run to the file."""
    new = not RECORDED.exists()
    with RECORDED.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(Point._fields)
        writer.writerows((*point[:-1], f"{point.loss:.5f}") for point in points)


def final(points: list[Point]) -> float:
    return points[-1].loss


def best_rate(runs: Runs, network: str, method: str) -> float:
    """The rate of the recorded runs whose last loss is smallest."""
    return min(
        (key[2] for key in runs if key[:2] == (network, method)), key=lambda lr: final(runs[network, method, lr])
    )


def complete(runs: Runs, network: str, recipe: Recipe, methods: list[str], count: int, console: Console) -> None:
    """Train what is missing for a network; of every method the ``count`` rates in the middle first."""

    def have(method: str, lr: float) -> None:
        if (network, method, lr) not in runs:
            points = train(network, recipe, method, lr)
            record(points)
            runs[network, method, lr] = points
            console.print(f"{network}, {method} at {lr:g}: {final(points):.4f}, {points[-1].seconds:.0f} s")

    for name in methods:
        method = METHODS[name]
        if not installed(Peer(method.factory, method.rates)):
            console.print(f"{name} is left out: its package is not installed")
            continue
        middle = method.rates[len(method.rates) // 2]
        for lr in sorted(method.rates, key=lambda lr: abs(math.log(lr / middle)))[:count]:
            have(name, lr)
        step = math.sqrt(10.0)
        while len(method.rates) > 1:
            rates = sorted(key[2] for key in runs if key[:2] == (network, name))
            best = best_rate(runs, network, name)
            if rates[0] < best < rates[-1]:
                break
            have(name, float(f"{best / step if best == rates[0] else best * step:.3g}"))


def seconds_a_step(points: list[Point]) -> float:
    """Of the twentieth of a run in which steps were fastest."""
    return min((b.seconds - a.seconds) / (b.step - a.step) for a, b in itertools.pairwise(points))


def at_time(points: list[Point], seconds: float) -> float:
    """The loss after so many seconds of training."""
    each = seconds_a_step(points)
    return float(np.interp(seconds, [each * p.step for p in points], [p.loss for p in points]))


def chosen(runs: Runs, network: str) -> dict[str, list[Point]]:
    """Every method at its best rate, and AdamW at the rate that people take."""
    best = {
        method: runs[network, method, best_rate(runs, network, method)]
        for method in METHODS
        if any(key[:2] == (network, method) for key in runs)
    }
    return best | {"AdamW, 1e-3": runs[network, "AdamW", 1e-3]}


def networks_of(runs: Runs) -> list[str]:
    """Those that can be compared with AdamW."""
    return [network for network in dict.fromkeys(key[0] for key in runs) if (network, "AdamW", 1e-3) in runs]


def show(runs: Runs) -> None:
    """A table per network, and one of all regrets, at equal steps and at equal time."""
    regrets: dict[str, dict[str, str]] = {}
    for network in networks_of(runs):
        curves = chosen(runs, network)
        adamw = curves["AdamW"]
        initial, base, end = adamw[0].loss, final(adamw), adamw[-1].step * seconds_a_step(adamw)
        print(f"\n{network}: {adamw[0].parameters / 1e6:.2f} M parameters, {adamw[-1].step} steps\n")
        print("| method | rate | loss | ms per step | loss at equal time |\n|---|---|---|---|---|")
        for name, points in curves.items():
            timed, rate = at_time(points, end), "–" if "Surefoot" in name else f"{points[0].lr:g}"
            milliseconds = 1000 * seconds_a_step(points)
            print(f"| {name} | {rate} | {final(points):.3f} | {milliseconds:.0f} | {timed:.3f} |")
            both = [f"{100 * (loss - base) / (initial - base):+.1f}" for loss in (final(points), timed)]
            regrets.setdefault(name, {})[network] = " / ".join(both)
    networks = networks_of(runs)
    print(f"\n| regret in %, at equal steps / at equal time | {' | '.join(networks)} |\n|---{'|---' * len(networks)}|")
    for name, cells in regrets.items():
        print(f"| {name} | {' | '.join(cells.get(network, '–') for network in networks)} |")


def draw(runs: Runs, path: Path) -> None:
    """Held-out loss over steps and over time, of every method at its best rate."""
    import matplotlib.pyplot as plt

    networks = networks_of(runs)
    figure, axes = plt.subplots(2, len(networks), figsize=(3.4 * len(networks), 6), squeeze=False, layout="constrained")
    for column, network in enumerate(networks):
        for method, (_, *points) in chosen(runs, network).items():
            each = seconds_a_step(points)
            for row, xs in enumerate(([p.step for p in points], [each * p.step for p in points])):
                axes[row, column].plot(xs, [p.loss for p in points], label=method, lw=1.4)
        axes[0, column].set(title=network, xlabel="step")
        axes[1, column].set(xlabel="processor seconds of training")
        for ax in axes[:, column]:
            low, high = (float(f([runs[k][-1].loss for k in runs if k[0] == network])) for f in (min, np.median))
            ax.set_ylim(low - 0.1 * (high - low), high + 2.0 * (high - low))
    axes[0, 0].set_ylabel("held-out loss")
    axes[1, 0].set_ylabel("held-out loss")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=8, fontsize="small")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=recipes(), default=list(recipes()), help="some only")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME", help="some")
    parser.add_argument("--rates", type=int, default=5, help="rates to begin with, of methods that are tuned")
    parser.add_argument("--recorded", action="store_true", help="train nothing, print what is recorded")
    parser.add_argument("--figure", type=Path, help="draw what is recorded into this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=120)
    runs = recorded()
    for network in () if options.recorded else options.networks:
        complete(runs, network, recipes()[network](), options.methods, options.rates, console)
    show(runs)
    if options.figure:
        draw(runs, options.figure)


if __name__ == "__main__":
    main()
