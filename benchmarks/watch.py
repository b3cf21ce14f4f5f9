"""What `surefoot watch` costs a ResNet20 script: watched and unwatched steps take turns in one watched process.

Processor time of one thread, so that other processes on the machine do not count. The unwatched steps go past every
hook of the watch: its doors to the optimizer, to `backward`, and its page.

python benchmarks/watch.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

import torch
from torch import nn

from monitor import resnet20

PAIRS, WARMUP, BATCH = 24, 3, 128
GOAL = 0.02


def step(model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor) -> float:
    begin = time.thread_time()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    return time.thread_time() - begin


def unwatched_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> float:
    """The same, past all hooks."""
    wrapped = torch.autograd.backward
    torch.autograd.backward = wrapped.__wrapped__.__wrapped__  # type: ignore[attr-defined]
    begin = time.thread_time()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    type(optimizer).step.__wrapped__(optimizer)  # type: ignore[attr-defined]
    spent = time.thread_time() - begin
    torch.autograd.backward = wrapped
    return spent


def inside(kind: type[torch.optim.Optimizer]) -> None:
    """What the watched script does."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    models = [resnet20(), resnet20()]
    optimizers = [kind(model.parameters(), lr=0.01) for model in models]  # type: ignore[call-arg]
    watched, plain = [], []
    for pair in range(WARMUP + PAIRS):
        one = step(models[0], optimizers[0], images, labels)
        other = unwatched_step(models[1], optimizers[1], images, labels)
        if pair >= WARMUP:
            watched.append(one)
            plain.append(other)
    extra = [one - other for one, other in zip(watched, plain, strict=True)]
    ratio = statistics.fmean(extra) / statistics.fmean(plain)
    error = statistics.stdev(extra) / len(extra) ** 0.5 / statistics.fmean(plain)
    middle = statistics.median(extra) / statistics.median(plain)
    met = "yes" if middle <= GOAL else "NO"
    print(
        f"{kind.__name__:5}  step {statistics.fmean(plain) * 1e3:.0f} ms  watched: {ratio:+.2%} ± {error:.2%} on "
        f"average, {middle:+.2%} in the middle; goal ≤ {GOAL:.0%}: {met}"
    )


def main(kinds: Iterable[str] = ("SGD", "AdamW")) -> None:
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "surefoot", "watch", "--quiet", "--out", f"{folder}/out", __file__, kind]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        inside(getattr(torch.optim, sys.argv[1]))
    else:
        main()
