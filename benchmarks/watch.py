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
from typing import Any

import torch
from torch import Tensor, nn

from monitor import resnet20

PAIRS, WARMUP, BATCH = 12, 2, 128
GOAL = 0.02


def step(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Seconds of a watched step, and of ``optimizer.step()`` in it, where the watch does its work."""
    begin = time.thread_time()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    middle = time.thread_time()
    optimizer.step()
    end = time.thread_time()
    return end - begin, end - middle


def unwatched_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> tuple[float, float]:
    """The same, past all hooks."""
    wrapped = torch.autograd.backward
    torch.autograd.backward = original(wrapped)
    begin = time.thread_time()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    middle = time.thread_time()
    type(optimizer).step.__wrapped__(optimizer)  # type: ignore[attr-defined]
    end = time.thread_time()
    torch.autograd.backward = wrapped
    return end - begin, end - middle


def original(wrapped: Any) -> Any:
    while hasattr(wrapped, "__wrapped__"):
        wrapped = wrapped.__wrapped__
    return wrapped


def listening(passes: int = 300) -> float:
    """Seconds that the watch adds to a backward pass, which it listens to."""
    point = torch.zeros(1, requires_grad=True)
    seconds = []
    for backward in (torch.autograd.backward, original(torch.autograd.backward)):
        times = []
        for _ in range(passes):
            loss = point.sum()
            begin = time.thread_time()
            backward(loss)
            times.append(time.thread_time() - begin)
        seconds.append(statistics.median(times))
    return seconds[0] - seconds[1]


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
    # A mean of the watched side: a page once in a while counts.
    extra = statistics.fmean(part for _, part in watched) - statistics.median(part for _, part in plain) + listening()
    whole = statistics.median(all_of_it for all_of_it, _ in plain)
    met = "yes" if extra / whole <= GOAL else "NO"
    ratio = f"{extra * 1e3:.2f} ms of {whole * 1e3:.0f} ms a step, {extra / whole:.2%}"
    print(f"{kind.__name__:5}  watching takes {ratio}; goal ≤ {GOAL:.0%}: {met}")


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
