"""Small networks for ``benchmarks/forecast.py``: rates × schedules at short lengths, and at four times the longest.

    python benchmarks/_forecast_networks.py RUNS.csv [--seed N]

A character transformer with AdamW on the bundled text, and a CNN with SGD and momentum on the bundled digits, shifted
and noised at random so that no image comes twice. The loss is that over fixed held-out batches, along the way and at
the end. One thread; minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from surefoot.data import Images, characters, digits
from surefoot.forecasting._schedules import factors
from surefoot.problems.networks import CharacterTransformer, SmallCNN

SHORT, LONG = (80, 160), 640
SCHEDULES = ("constant", "cosine", "linear", "wsd(cooldown=0.2)")
WARMUP = 10
RATES = {"characters": np.geomspace(1e-3, 3e-2, 4), "digits": np.geomspace(1e-2, 0.3, 4)}

Batches = Iterator[tuple[Tensor, Tensor]]


def text_batches(part: Any, seed: int, size: int = 12) -> Batches:
    codes, random = torch.from_numpy(part.astype(np.int64)), torch.Generator().manual_seed(seed)
    while True:
        at = torch.randint(len(codes) - 25, (size, 1), generator=random) + torch.arange(25)
        yield codes[at[:, :-1]], codes[at[:, 1:]]


def digit_batches(part: Images, seed: int, size: int = 32) -> Batches:
    images = torch.tensor(np.asarray(part.images), dtype=torch.float32).reshape(-1, 1, 8, 8)
    images, labels = images / images.max(), torch.tensor(np.asarray(part.labels), dtype=torch.int64)
    random = torch.Generator().manual_seed(seed)
    while True:
        at = torch.randint(len(images), (size,), generator=random)
        shift = torch.randint(-1, 2, (2,), generator=random).tolist()
        moved = torch.roll(images[at], shift, (2, 3))
        yield moved + 0.25 * torch.randn(moved.shape, generator=random), labels[at]


def tasks() -> dict[str, tuple[Callable[[], nn.Module], Callable[[int], Batches], Callable[[int], Batches], Any]]:
    text = characters()
    return {
        "characters": (
            lambda: CharacterTransformer(len(text.vocabulary), d=32, context=24, layers=1, heads=2),
            lambda seed: text_batches(text.train, seed),
            lambda seed: text_batches(text.validation, seed, 128),
            lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.1),
        ),
        "digits": (
            lambda: SmallCNN(width=6),
            lambda seed: digit_batches(digits("train"), seed),
            lambda seed: digit_batches(digits("test"), seed, 128),
            lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
        ),
    }


def train(task: Any, lr: float, schedule: str, steps: int, seed: int) -> dict[int, float]:
    """Held-out losses at eight steps and at the end; ∞ from where the loss was not finite."""
    make, train_batches, held_batches, optimizer_of = task
    torch.manual_seed(seed)
    model = make()
    optimizer = optimizer_of(model.parameters(), lr)
    rates = lr * factors(schedule, steps, warmup=WARMUP)
    held = [batch for batch, _ in zip(held_batches(12345), range(3), strict=False)]
    marks = set(np.linspace(steps / 8, steps, 8).astype(int).tolist())
    losses: dict[int, float] = {}
    for step, (inputs, targets) in enumerate(train_batches(seed + 1), 1):
        for group in optimizer.param_groups:
            group["lr"] = float(rates[step - 1])
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step in marks:
            model.eval()
            with torch.no_grad():
                found = float(torch.stack([loss_of(model, *batch) for batch in held]).mean())
            model.train()
            losses[step] = found if np.isfinite(found) else float("inf")
        if step == steps:
            return losses
    raise AssertionError("batches never end")


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    scores = model(inputs)
    return nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1))


def record(path: Path, seed: int) -> pd.DataFrame:
    """Train all runs that the file does not hold, and write each when it is done."""
    rows = pd.read_csv(path).to_dict("records") if path.is_file() else []
    done = {(row["dataset"], round(row["lr"], 10), row["schedule"], row["steps"], row["seed"]) for row in rows}
    began = time.monotonic()
    for name, task in reversed(tasks().items()):  # the quicker one first
        for steps in (*SHORT, LONG):
            for schedule in SCHEDULES:
                for lr in RATES[name]:
                    if (name, round(lr, 10), schedule, steps, seed) in done:
                        continue
                    losses = train(task, float(lr), schedule, steps, seed)
                    curve = ";".join(f"{step}:{loss:.6g}" for step, loss in losses.items())
                    decay = 0.1 if name == "characters" else 0.0
                    rows.append(
                        {"dataset": name, "lr": float(lr), "schedule": schedule, "steps": steps, "warmup": WARMUP,
                         "weight_decay": decay, "final_loss": losses[steps], "curve": curve, "seed": seed}
                    )  # fmt: skip
                    pd.DataFrame(rows).to_csv(path, index=False)
            print(f"{name}, {steps} steps: {len(rows)} runs after {time.monotonic() - began:.0f} s", flush=True)
    return pd.DataFrame(rows)


def read(path: Path) -> list[dict[str, Any]]:
    """The runs as ``sf.forecast`` takes them: with their curves."""
    rows = pd.read_csv(path).to_dict("records")
    return [
        {**{str(key): value for key, value in row.items() if key != "curve"},
         "losses": {int(a): float(b) for a, b in (pair.split(":") for pair in str(row["curve"]).split(";"))}}
        for row in rows
    ]  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    record(given.runs, given.seed)
