"""Small training tasks of sixteen kinds, two of each: what optimizers, verdicts and searches are judged on.

Their best rates for AdamW spread over decades, on purpose. A coin that was thrown once (``HELD_OUT``) says which of the
two tasks of a kind may be looked at while something is built; the other is for final tables only.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _task_networks import GPT, Factors, Recurrent, Scaled, convolutions, mlp, small_network
from surefoot import data

ORDINARY = ("gpt", "cnn-norm", "cnn-plain", "rnn", "regression", "width", "depth", "fine-tuning")
"""Kinds in ordinary units, where a constant rate may do as well."""

NOISE = 1.0


@dataclass
class Trial:
    """One task with one seed: the network, and how to train and judge it."""

    model: nn.Module
    batch_loss: Callable[[int], Tensor]
    """The loss on the batch of a step; the same step gives the same batch."""
    held_out: Callable[[], float]
    """The mean loss on data that is not trained on; ∞ where it is not finite."""


@dataclass(frozen=True)
class Task:
    """A task of a kind; ``make(seed, steps)`` builds it."""

    name: str
    kind: str
    make: Callable[[int, int], Trial]

    @property
    def ordinary(self) -> bool:
        """Whether the task is in ordinary units."""
        return self.kind in ORDINARY

    @property
    def held_out(self) -> bool:
        """Whether it is for final tables only."""
        return self.name in HELD_OUT


Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def supervised(
    model: nn.Module,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    loss: Loss,
    *,
    batch: int,
    seed: int,
    judge: Loss | None = None,
    later: tuple[int, tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
) -> Trial:
    """Train on rows that are drawn with replacement; ``later`` is a step from which other data take their place.

    Images get fresh noise on their pixels in every batch.
    """

    def batch_loss(step: int) -> Tensor:
        inputs, targets = train if later is None or step < later[0] else later[1]
        generator = torch.Generator().manual_seed(1_000_003 * (seed + 1) + step)
        rows = torch.randint(len(targets), (batch,), generator=generator)
        drawn = inputs[rows]
        if drawn.ndim == 4:
            drawn = drawn + NOISE * torch.randn(drawn.shape, generator=generator)
        return loss(model, drawn, targets[rows])

    def held_out() -> float:
        inputs, targets = test if later is None else later[2]
        return judged(model, lambda: (judge or loss)(model, inputs, targets))

    return Trial(model, batch_loss, held_out)


def judged(model: nn.Module, loss: Callable[[], Tensor]) -> float:
    """A loss in evaluation mode, without gradients."""
    model.eval()
    with torch.no_grad():
        value = loss().item()
    model.train()
    return value if math.isfinite(value) else math.inf


def cross_entropy(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    logits = model(inputs)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def squared_error(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(model(inputs).squeeze(-1), targets)


@functools.cache
def digits(split: str) -> tuple[Tensor, Tensor]:
    """Handwritten digits; those of the test have noise on their pixels, so that they are not learned at once."""
    images = data.digits(split)  # type: ignore[arg-type]
    pixels = 2.0 * (torch.tensor(images.images.copy()).float() / 255 - 0.3)
    if split == "test":
        pixels = pixels + NOISE * torch.randn(pixels.shape, generator=torch.Generator().manual_seed(8))
    return pixels, torch.tensor(images.labels)


@functools.cache
def libsvm(name: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A bundled set, shuffled, in two parts."""
    found = data.load(name)
    order = torch.randperm(len(found.y), generator=torch.Generator().manual_seed(3))
    features, labels = (
        torch.tensor(found.X.toarray() if hasattr(found.X, "toarray") else found.X).float()[order],
        torch.tensor(found.y.astype("int64"))[order],
    )
    cut = len(labels) * 4 // 5
    return (features[:cut], labels[:cut]), (features[cut:], labels[cut:])


@functools.cache
def text() -> tuple[Tensor, Tensor, int]:
    characters = data.characters()
    return (
        torch.tensor(characters.train.copy()).long(),
        torch.tensor(characters.validation.copy()).long(),
        len(characters.vocabulary),
    )


def windows(length: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], int]:
    """All windows of the text with the characters that follow; some of its second part for the end."""
    train, validation, letters = text()

    def cut(codes: Tensor) -> tuple[Tensor, Tensor]:
        pieces = codes.unfold(0, length + 1, 1)
        return pieces[:, :-1], pieces[:, 1:]

    spaced = validation[: 200 * length + 1].unfold(0, length + 1, length)[:128]
    return cut(train), (spaced[:, :-1], spaced[:, 1:]), letters


def gpt(width: int, depth: int, length: int, batch: int, *, last_norm: bool) -> Callable[[int, int], Trial]:
    def make(seed: int, steps: int) -> Trial:
        train, test, letters = windows(length)
        return supervised(
            GPT(letters, width, depth, 4, length, last_norm=last_norm),
            train,
            test,
            cross_entropy,
            batch=batch,
            seed=seed,
        )

    return make


def recurrent(width: int, kind: str, length: int) -> Callable[[int, int], Trial]:
    def make(seed: int, steps: int) -> Trial:
        train, test, letters = windows(length)
        return supervised(Recurrent(letters, width, kind), train, test, cross_entropy, batch=16, seed=seed)

    return make


def images(
    build: Callable[[], nn.Module],
    batch: int = 32,
    loss: Loss = cross_entropy,
    judge: Loss | None = None,
    wrong: float = 0.0,
) -> Callable[[int, int], Trial]:
    """Digits; a share of the training labels may be ``wrong``."""

    def make(seed: int, steps: int) -> Trial:
        (pixels, labels), test = digits("train"), digits("test")
        generator = torch.Generator().manual_seed(11)
        random_labels = torch.randint(10, labels.shape, generator=generator)
        labels = torch.where(torch.rand(labels.shape, generator=generator) < wrong, random_labels, labels)
        return supervised(build(), (pixels, labels), test, loss, batch=batch, seed=seed, judge=judge)

    return make


def teacher(
    width: int, noise: Callable[[tuple[int], torch.Generator], Tensor], seed: int, rows: int = 4000
) -> tuple[Tensor, Tensor]:
    """Inputs, and what a fixed random network says to them plus noise."""
    generator = torch.Generator().manual_seed(100)
    first = torch.randn(16, width, generator=generator) / 4
    second = torch.randn(width, generator=generator) / math.sqrt(width)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 16, generator=generator)
    clean = 2.0 * torch.tanh(1.5 * inputs @ first) @ second
    return inputs, clean + noise((rows,), generator)


def gaussian(std: float) -> Callable[[tuple[int], torch.Generator], Tensor]:
    return lambda shape, generator: std * torch.randn(shape, generator=generator)


def heavy(shape: tuple[int], generator: torch.Generator) -> Tensor:
    """Student's t with two degrees of freedom: infinite variance."""
    normal = torch.randn((3, *shape), generator=generator)
    return 0.3 * normal[0] / (0.5 * normal[1:].square().sum(0)).sqrt()


def regression(
    sizes: list[int],
    noise: Callable[..., Tensor],
    batch: int,
    loss: Loss = squared_error,
    activation: type[nn.Module] = nn.ReLU,
) -> Callable[[int, int], Trial]:
    def make(seed: int, steps: int) -> Trial:
        judge_noise = noise if noise is not heavy else gaussian(0.0)
        train, test = teacher(24, noise, 1), teacher(24, judge_noise, 2, 1000)
        return supervised(mlp(sizes, activation), train, test, loss, batch=batch, seed=seed)

    return make


def fine_tuning(build: Callable[[], nn.Sequential], invert: bool) -> Callable[[int, int], Trial]:
    """A network that knows some digits, with a new last layer for others (or for inverted ones)."""

    def make(seed: int, steps: int) -> Trial:
        (pixels, labels), (test_pixels, test_labels) = digits("train"), digits("test")
        model = build()
        known = torch.ones_like(labels, dtype=torch.bool) if invert else labels < 5
        before = supervised(model, (pixels[known], labels[known]), digits("test"), cross_entropy, batch=32, seed=seed)
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        for step in range(150):
            optimizer.zero_grad()
            before.batch_loss(step).backward()
            optimizer.step()
        last = model[-1]
        assert isinstance(last, nn.Linear)
        model[-1] = nn.Linear(last.in_features, 10)
        new, test_new = ~known | invert, (test_labels >= 5) | invert
        sign = -1.0 if invert else 1.0
        train = (sign * pixels[new].flip(-1 if invert else 0), labels[new].flip(0) if not invert else labels[new])
        test = (sign * (test_pixels[test_new].flip(-1) if invert else test_pixels[test_new]), test_labels[test_new])
        return supervised(model, train, test, cross_entropy, batch=32, seed=seed + 50)

    return make


def factorisation(seed: int, steps: int) -> Trial:
    generator = torch.Generator().manual_seed(5)
    full = torch.randn(120, 6, generator=generator) @ torch.randn(6, 80, generator=generator) / math.sqrt(6)
    cells = torch.stack([torch.randint(n, (12000,), generator=generator) for n in full.shape], 1)
    values = full[cells[:, 0], cells[:, 1]] + 0.2 * torch.randn(12000, generator=generator)
    parts = (cells[:10000], values[:10000]), (cells[10000:], values[10000:])
    return supervised(Factors(120, 80, 8), *parts, squared_error, batch=128, seed=seed)


def embedding(seed: int, steps: int) -> Trial:
    """The next character from a large table of the three before it."""
    (before, after), test, letters = windows(3)
    hashed = lambda codes: (codes * torch.tensor([1, 67, 4489])).sum(-1) % 4096  # noqa: E731
    model = nn.Sequential(nn.Embedding(4096, 48), nn.Linear(48, letters))
    validation = text()[1]
    pieces = validation[:6003].unfold(0, 4, 3)
    test = hashed(pieces[:, :3]), pieces[:, 3]
    return supervised(model, (hashed(before), after[:, -1]), test, cross_entropy, batch=64, seed=seed)


def linear_logistic(seed: int, steps: int) -> Trial:
    train, _ = libsvm("dna")
    return supervised(nn.Linear(180, 3, bias=False), train, train, cross_entropy, batch=16, seed=seed)


def blobs(seed: int, steps: int) -> Trial:
    generator = torch.Generator().manual_seed(6)
    centres = 3.0 * torch.randn(4, 10, generator=generator)
    labels = torch.randint(4, (2500,), generator=generator)
    inputs = centres[labels] + torch.randn(2500, 10, generator=generator)
    train, test = (inputs[:2000], labels[:2000]), (inputs[2000:], labels[2000:])
    return supervised(mlp([10, 32, 4]), train, test, cross_entropy, batch=32, seed=seed)


def gaussian_likelihood(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean and log of the deviation are learned; below zero once the deviation is small."""
    mean, log_std = model(inputs).unbind(-1)
    return (0.5 * ((targets - mean) * torch.exp(-log_std)).square() + log_std).mean()


def reward(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Minus the expected reward of a policy that names the digit: between −1 and 0."""
    return -torch.softmax(model(inputs), -1).gather(-1, labels[:, None]).mean()


def smoothed(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), labels, label_smoothing=0.2)


def shifted(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(model, inputs, labels) + 10.0


def sunk(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return squared_error(model, inputs, targets) - 3.0


def in_units(factor: float) -> Callable[[int, int], Trial]:
    layers = lambda: nn.Sequential(nn.Flatten(), Scaled(64, 64, factor), nn.ReLU(), Scaled(64, 10, factor))  # noqa: E731
    return images(layers)


def new_labels(seed: int, steps: int) -> Trial:
    """Half-way every digit gets another name."""
    train, test = digits("train"), digits("test")
    shift = lambda pair: (pair[0], (pair[1] + 3) % 10)  # noqa: E731
    model = mlp([64, 64, 10], flatten=True)
    return supervised(
        model, train, test, cross_entropy, batch=32, seed=seed, later=(steps // 2, shift(train), shift(test))
    )


def louder(seed: int, steps: int) -> Trial:
    """Half-way the targets are turned and grow to three times their size."""
    (inputs, targets), (test_inputs, test_targets) = teacher(24, gaussian(0.3), 1), teacher(24, gaussian(0.3), 2, 1000)
    later = (steps // 2, (inputs.flip(-1), 3.0 * targets), (test_inputs.flip(-1), 3.0 * test_targets))
    model = mlp([16, 64, 64, 1])
    return supervised(
        model, (inputs, targets), (test_inputs, test_targets), squared_error, batch=32, seed=seed, later=later
    )


_KINDS: dict[str, dict[str, Callable[[int, int], Trial]]] = {
    "gpt": {"gpt-2x48": gpt(48, 2, 24, 12, last_norm=True), "gpt-4x32": gpt(32, 4, 32, 6, last_norm=False)},
    "cnn-norm": {
        "cnn-group": images(lambda: convolutions([16, 24, 32], lambda c: nn.GroupNorm(4, c), nn.ReLU)),
        "cnn-batch": images(lambda: convolutions([12, 12, 24, 24], nn.BatchNorm2d, nn.ReLU)),
    },
    "cnn-plain": {
        "cnn-3": images(lambda: convolutions([16, 24, 32], None, nn.ReLU)),
        "cnn-5": images(lambda: convolutions([8, 16, 16, 24, 24], None, nn.GELU)),
    },
    "rnn": {"rnn-relu": recurrent(64, "relu", 24), "rnn-gru": recurrent(48, "gru", 24)},
    "regression": {
        "mse-noise-1": regression([16, 128, 128, 1], gaussian(0.7), 32),
        "mse-noise-2": regression([16, 32, 1], gaussian(1.2), 64, activation=nn.Tanh),
    },
    "width": {
        "width-8": images(lambda: mlp([64, 8, 8, 10], flatten=True)),
        "width-512": images(lambda: mlp([64, 512, 512, 10], flatten=True)),
    },
    "depth": {
        "depth-8": images(lambda: mlp([64, *[32] * 7, 10], flatten=True)),
        "depth-6-tanh": images(lambda: mlp([64, *[64] * 5, 10], nn.Tanh, flatten=True)),
    },
    "fine-tuning": {
        "fine-cnn": fine_tuning(
            lambda: convolutions([16, 24, 32], lambda c: nn.GroupNorm(4, c), nn.ReLU), invert=False
        ),
        "fine-mlp": fine_tuning(lambda: mlp([64, 96, 96, 10], flatten=True), invert=True),
    },
    "embedding": {"factorisation": factorisation, "embedding": embedding},
    "batch-2": {"batch-2-heavy": regression([16, 64, 1], heavy, 2), "batch-2-digits": images(small_network, batch=2)},
    "labels": {"labels-wrong": images(small_network, wrong=0.4), "labels-smooth": images(small_network, loss=smoothed)},
    "separable": {"separable-dna": linear_logistic, "separable-blobs": blobs},
    "negative": {
        "likelihood": regression([16, 64, 2], gaussian(0.05), 32, loss=gaussian_likelihood),
        "reward": images(small_network, loss=reward),
    },
    "shifted": {
        "shifted-up": images(small_network, loss=shifted),
        "shifted-down": regression([16, 64, 64, 1], gaussian(0.3), 32, loss=sunk),
    },
    "units": {"units-30": in_units(30.0), "units-1/30": in_units(1 / 30)},
    "change": {"change-labels": new_labels, "change-targets": louder},
}

_coin = random.Random(20)
HELD_OUT = tuple(_coin.choice(sorted(pair)) for pair in _KINDS.values())
"""For final tables only."""

TASKS = {name: Task(name, kind, make) for kind, pair in _KINDS.items() for name, make in pair.items()}


def trial(task: Task, seed: int, steps: int) -> Trial:
    """The task with a seed, which sets weights and batches."""
    torch.manual_seed(seed)
    return task.make(seed, steps)
