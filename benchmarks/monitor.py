"""The monitor's own time, measured inside one run: over a ResNet20 step, and over a pass over 124 M gradients.

Both sides are processor time of one thread, so that other processes on the machine do not count.

python benchmarks/monitor.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import surefoot.optim as sfo
from surefoot.monitor import Dead, DeltaExplosion, NonFinite, PartialBound, StabilityMonitor

RULES = [NonFinite(), DeltaExplosion(), Dead(), PartialBound(100.0)]


class Block(nn.Module):
    """Two convolutions with batch norm, and a shortcut that pads new channels with zeros."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.stride = outside // inside
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, self.stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.added = outside - inside

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        shortcut = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        return torch.relu(self.body(x) + shortcut)


def resnet20() -> nn.Module:
    widths = [16, *[16] * 3, *[32] * 3, *[64] * 3]
    blocks = [Block(a, b) for a, b in pairwise(widths)]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Watch:
    """Times the hooks of a monitor by hooks of its own, before and behind them."""

    def __init__(self, monitor: StabilityMonitor) -> None:
        self.seconds: list[float] = []
        self._started = 0.0
        self._spent = 0.0
        optimizer = monitor.optimizer
        optimizer.register_step_pre_hook(self._start)
        optimizer.register_step_post_hook(self._start)
        monitor.attach()
        optimizer.register_step_pre_hook(self._middle)
        optimizer.register_step_post_hook(self._end)

    def _start(self, *_: Any) -> None:
        self._started = time.thread_time()

    def _middle(self, *_: Any) -> None:
        self._spent = time.thread_time() - self._started

    def _end(self, *_: Any) -> None:
        self.seconds.append(self._spent + time.thread_time() - self._started)


def timed(step: Callable[[], Any], watch: Watch, warmup: int, steps: int) -> tuple[float, float]:
    """Median seconds of a step without the monitor's part, and of that part."""
    whole = []
    for _ in range(warmup + steps):
        begin = time.thread_time()
        step()
        whole.append(time.thread_time() - begin)
    own = watch.seconds[warmup:]
    rest = [total - part for total, part in zip(whole[warmup:], own, strict=True)]
    # A mean of the monitor's part: what a flush costs once in a while counts.
    return statistics.median(rest), statistics.fmean(own)


def on_resnet(make: Callable[..., Any], batch: int = 128) -> tuple[float, float]:
    torch.manual_seed(0)
    model = resnet20()
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    optimizer = make(model.parameters(), lr=0.01)
    monitor = StabilityMonitor(optimizer, horizon=10_000, distance=10.0, stop=RULES)
    watch = Watch(monitor)
    ours = isinstance(optimizer, sfo.LossOptimizer)

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        if ours:
            optimizer.step(loss=loss)
        else:
            monitor.record(loss)
            optimizer.step()

    return timed(step, watch, warmup=2, steps=16)


def on_gradients(make: Callable[..., Any], width: int = 768, layers: int = 12) -> tuple[int, float, float]:
    """Parameters of GPT-2's size with random gradients: seconds of a pass over them (BLAS), and of the monitor."""
    shapes = [(50257, width), (1024, width)]
    for _ in range(layers):
        shapes += [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
        shapes += [(3 * width,), (4 * width,), *[(width,)] * 6]
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = make(parameters, lr=1e-9)
    monitor = StabilityMonitor(optimizer)
    watch = Watch(monitor)
    ours = isinstance(optimizer, sfo.LossOptimizer)
    passes = []

    def step() -> None:
        begin = time.thread_time()
        for parameter in parameters:
            flat = parameter.grad.view(-1)  # type: ignore[union-attr]
            torch.dot(flat, flat).item()
        passes.append(time.thread_time() - begin)
        if ours:
            optimizer.step(loss=1.0)
        else:
            monitor.record(1.0)
            optimizer.step()

    _, own = timed(step, watch, warmup=2, steps=10)
    return sum(parameter.numel() for parameter in parameters), statistics.median(passes[2:]), own


def main() -> None:
    torch.set_num_threads(1)
    on_resnet(sfo.NGN, batch=1)  # whatever is imported or built once
    table = Table("what", "monitor", "against", "ratio", "goal", "met", title="surefoot.monitor")

    def add(what: str, own: float, other: float, goal: float) -> None:
        met = "yes" if own / other <= goal else "NO"
        table.add_row(what, f"{own * 1e3:.3g} ms", f"{other * 1e3:.4g} ms", f"{own / other:.2%}", f"≤ {goal:.0%}", met)

    for name, make in (("torch.optim.AdamW", torch.optim.AdamW), ("surefoot.optim.NGN", sfo.NGN)):
        rest, own = on_resnet(make)
        add(f"ResNet20 step, batch 128, {name}, 4 rules", own, rest, 0.01)
    for name, make in (("torch.optim.SGD", torch.optim.SGD), ("surefoot.optim.NGN", sfo.NGN)):
        count, one_pass, own = on_gradients(make)
        add(f"one pass over {count / 1e6:.0f} M gradients, {name}", own, one_pass, 1.1)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
