"""Small training tasks, drawn at random to judge verdicts: kinds × data × sizes × units × noise × losses.

``drawn(kind, number)`` is always the same task, so that a number which nobody has used before is a task that nobody has
seen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import nn

import _tasks as base
from _tasks import Loss, Task, Trial, cross_entropy, libsvm, mlp, squared_error, supervised, teacher, windows
from _verdict_tasks import (
    Attention,
    Last,
    Pair,
    Pooled,
    Residual,
    absolute,
    brier,
    context,
    flat_digits,
    huber,
    margin,
    pinball,
    rebuilt,
    rows,
    scaled,
    views,
)

Draw = random.Random
Sets = tuple[Pair, Pair]
Made = tuple[Callable[[], nn.Module], Sets, Loss, int]
"""How the network is built, the training and test sets, the loss, and the size of a batch."""


def mislabelled(sets: Sets, share: float, draw: Draw) -> Sets:
    """The sets with a share of the training labels replaced by others."""
    (inputs, labels), test = sets
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    others = labels[torch.randperm(len(labels), generator=generator)]
    return (inputs, torch.where(torch.rand(labels.shape, generator=generator) < share, others, labels)), test


def linear(draw: Draw) -> Sets:
    """A linear teacher; the scales of its inputs spread over two decades at most."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    size, noise = draw.choice((5, 20, 60)), draw.choice((0.0, 0.1, 0.5, 1.0))
    scales = 10 ** (-draw.uniform(0, 2) * torch.linspace(0, 1, size))
    inputs = torch.randn(2000, size, generator=generator) * scales
    targets = inputs @ torch.randn(size, generator=generator) + noise * torch.randn(2000, generator=generator)
    return (inputs[:1600], targets[:1600]), (inputs[1600:], targets[1600:])


def taught(draw: Draw) -> Sets:
    """A network's answers with noise, in units of 0.1 to 10."""
    scale, noise = 10 ** draw.uniform(-1, 1), draw.choice((0.0, 0.1, 0.3, 0.7, 1.2))
    kind = base.heavy if draw.random() < 0.2 else base.gaussian(noise)
    train, test = teacher(24, kind, draw.randrange(1 << 30)), teacher(24, base.gaussian(noise), 2, 1000)
    return (train[0], scale * train[1]), (test[0], scale * test[1])


def waves(draw: Draw) -> Sets:
    """Noisy waves of 48 points; the class is the frequency."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    labels = torch.randint(4, (2000,), generator=generator)
    phase = 6.3 * torch.rand(2000, 1, generator=generator)
    signal = torch.sin((labels[:, None] + 2.0) * torch.linspace(0, 6.3, 48) / 2 + phase)
    inputs = (signal + draw.choice((0.5, 1.2)) * torch.randn(2000, 48, generator=generator))[:, None]
    return (inputs[:1600], labels[:1600]), (inputs[1600:], labels[1600:])


def ratings(draw: Draw) -> Sets:
    """Cells of a matrix of low rank, with noise."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    full = torch.randn(100, 6, generator=generator) @ torch.randn(6, 60, generator=generator) / math.sqrt(6)
    cells = torch.stack([torch.randint(n, (9000,), generator=generator) for n in full.shape], 1)
    values = full[cells[:, 0], cells[:, 1]] + draw.choice((0.0, 0.3)) * torch.randn(9000, generator=generator)
    return (cells[:8000], values[:8000]), (cells[8000:], values[8000:])


def activation(draw: Draw) -> type[nn.Module]:
    return draw.choice((nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.LeakyReLU))


def labelled(draw: Draw) -> tuple[Sets, int, int]:
    """Inputs with labels, some of them wrong; the sizes of both."""
    sets, inputs, outputs = draw.choice(
        ((flat_digits(10 ** draw.uniform(-0.7, 0.7)), 64, 10), (libsvm("vowel"), 10, 11), (libsvm("dna"), 180, 3))
    )
    return mislabelled(sets, draw.choice((0.0, 0.0, 0.2, 0.5)), draw), inputs, outputs


def classes(draw: Draw) -> Made:
    sets, inputs, outputs = labelled(draw)
    sizes = [inputs, *[draw.choice((12, 32, 96))] * draw.choice((1, 1, 2, 3, 6)), outputs]
    kind, start = activation(draw), draw.choice((0.5, 1.0, 1.0, 1.0, 3.0))
    loss = draw.choice((cross_entropy, cross_entropy, base.smoothed, margin, brier))
    return lambda: scaled(mlp(sizes, kind), start), sets, loss, draw.choice((1, 4, 16, 64, 256))


def regression(draw: Draw) -> Made:
    sizes, kind = [16, *[draw.choice((16, 48, 96))] * draw.choice((1, 2, 3)), 1], activation(draw)
    loss = draw.choice((squared_error, squared_error, huber, absolute, pinball))
    return lambda: mlp(sizes, kind), taught(draw), loss, draw.choice((2, 8, 32, 128))


def convex(draw: Draw) -> Made:
    batch, start = draw.choice((4, 16, 64)), draw.choice((0.0, 1.0))
    if draw.random() < 0.5:
        sets, inputs, outputs = labelled(draw)
        return lambda: scaled(nn.Linear(inputs, outputs), start), sets, draw.choice((cross_entropy, margin)), batch
    sets = linear(draw)
    loss = draw.choice((squared_error, squared_error, huber))
    return lambda: scaled(nn.Linear(sets[0][0].shape[1], 1), start), sets, loss, batch


def images(draw: Draw) -> Made:
    channels = draw.choice(([8, 16], [6, 12, 12], [8, 12, 12, 16]))
    norm = draw.choice((None, None, nn.BatchNorm2d, lambda c: nn.GroupNorm(2, c)))
    kind, wrong = activation(draw), draw.choice((0.0, 0.3))
    sets = mislabelled((base.digits("train"), base.digits("test")), wrong, draw)
    return lambda: base.convolutions(channels, norm, kind), sets, cross_entropy, draw.choice((8, 32))


def signals(draw: Draw) -> Made:
    channels, kind = draw.choice((4, 12, 24)), activation(draw)

    def build() -> nn.Module:
        first, second = nn.Conv1d(1, channels, 5, stride=2), nn.Conv1d(channels, channels, 5, stride=2)
        return nn.Sequential(first, kind(), second, kind(), nn.Flatten(), nn.Linear(9 * channels, 4))

    return build, waves(draw), draw.choice((cross_entropy, brier)), draw.choice((8, 32))


def recurrent(draw: Draw, cell: type[nn.Module] = nn.GRU) -> Made:
    width = draw.choice((16, 32))
    return (
        lambda: nn.Sequential(Last(cell(8, width, batch_first=True)), nn.Linear(width, 10)),
        mislabelled(rows(), draw.choice((0.0, 0.3)), draw),
        cross_entropy,
        draw.choice((8, 32)),
    )


def attention(draw: Draw) -> Made:
    width, depth = draw.choice((16, 32)), draw.choice((1, 2))

    def block() -> tuple[nn.Module, nn.Module]:
        feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        return Residual(width, Attention(width, 2)), Residual(width, feed)

    def build() -> nn.Module:
        blocks = [part for _ in range(depth) for part in block()]
        return nn.Sequential(nn.Linear(8, width), *blocks, Pooled(), nn.Linear(width, 10))

    return build, mislabelled(rows(), draw.choice((0.0, 0.3)), draw), cross_entropy, draw.choice((8, 32))


def tables(draw: Draw) -> Made:
    rank, batch = draw.choice((4, 8, 16)), draw.choice((32, 128))
    if draw.random() < 0.5:
        return lambda: base.Factors(100, 60, rank), ratings(draw), squared_error, batch
    length = draw.choice((2, 4))
    sets, letters = context(length), windows(length)[2]
    sizes, kind = [length * rank, draw.choice((32, 64)), letters], activation(draw)
    return lambda: nn.Sequential(nn.Embedding(letters, rank), nn.Flatten(), *mlp(sizes, kind)), sets, cross_entropy, 32


def unlabelled(draw: Draw) -> Made:
    kind, scale = activation(draw), 10 ** draw.uniform(-0.5, 0.5)
    if draw.random() < 0.6:
        sizes = draw.choice(([64, 8, 64], [64, 32, 6, 32, 64]))
        return lambda: mlp(sizes, kind), flat_digits(scale), rebuilt, draw.choice((8, 32))
    return lambda: mlp([64, 48, 16], kind), flat_digits(scale), views, 64


def residual(draw: Draw) -> Made:
    sets, inputs, outputs = labelled(draw)
    width, depth, kind = draw.choice((16, 48)), draw.choice((2, 4)), activation(draw)
    norm = draw.choice((nn.LayerNorm, nn.BatchNorm1d, lambda _: nn.Identity()))

    def build() -> nn.Module:
        inner = (nn.Sequential(norm(width), *mlp([width, width, width], kind)) for _ in range(depth))
        blocks = (Residual(width, part, norm=False) for part in inner)
        return nn.Sequential(nn.Linear(inputs, width), *blocks, nn.Linear(width, outputs))

    return build, sets, cross_entropy, draw.choice((16, 64))


def below_zero(draw: Draw) -> Made:
    """Losses that are negative, or far above what can be gained."""
    kind = activation(draw)
    if draw.random() < 0.5:
        loss = draw.choice((base.shifted, base.reward))
        return lambda: mlp([64, 48, 10], kind), flat_digits(), loss, draw.choice((8, 32))
    loss, outputs = draw.choice(((base.sunk, 1), (base.gaussian_likelihood, 2)))
    return lambda: mlp([16, 48, outputs], kind), taught(draw), loss, draw.choice((8, 32))


def units(draw: Draw) -> Made:
    """Weights that are 0.1 to 10 times their parameters."""
    factor, width, kind = 10 ** draw.uniform(-1, 1), draw.choice((24, 64)), activation(draw)
    build = lambda: nn.Sequential(base.Scaled(64, width, factor), kind(), base.Scaled(width, 10, factor))  # noqa: E731
    return build, mislabelled(flat_digits(), draw.choice((0.0, 0.3)), draw), cross_entropy, draw.choice((8, 32))


def long_memory(draw: Draw) -> Made:
    return recurrent(draw, nn.LSTM)


def residual_images(draw: Draw) -> Made:
    channels = draw.choice((6, 8))

    def block() -> nn.Module:
        inner = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        return Residual(channels, inner, norm=False)

    def build() -> nn.Module:
        stem = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        return nn.Sequential(stem, block(), block(), nn.Flatten(), nn.Linear(16 * channels, 10))

    return build, (base.digits("train"), base.digits("test")), cross_entropy, draw.choice((16, 32))


def language(draw: Draw) -> Made:
    train, test, letters = windows(12)
    width, last_norm = draw.choice((16, 24)), draw.random() < 0.5
    return lambda: base.GPT(letters, width, 1, 4, 12, last_norm=last_norm), (train, test), cross_entropy, 8


KINDS: dict[str, Callable[[Draw], Made]] = {
    "classes": classes,
    "regression": regression,
    "convex": convex,
    "images": images,
    "signals": signals,
    "recurrent": recurrent,
    "attention": attention,
    "tables": tables,
    "unlabelled": unlabelled,
    "residual": residual,
    "below-zero": below_zero,
    "units": units,
    "long-memory": long_memory,
    "residual-images": residual_images,
    "language": language,
}


def drawn(kind: str, number: int) -> Task:
    """The task of a kind with a number."""

    def make(seed: int, steps: int) -> Trial:
        build, sets, loss, batch = KINDS[kind](random.Random(f"{kind} {number}"))
        return supervised(build(), *sets, loss, batch=batch, seed=seed)

    return Task(f"{kind}-{number}", kind, make)
