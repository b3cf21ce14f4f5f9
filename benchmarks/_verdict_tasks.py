"""Tasks that the verdict was developed on, beside those of ``_tasks`` that are not held out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import _tasks as base
from _tasks import Loss, Task, Trial, cross_entropy, libsvm, mlp, squared_error, supervised, teacher, windows
from surefoot import data

Make = Callable[[int, int], Trial]
Pair = tuple[Tensor, Tensor]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def on(
    sets: Callable[[], tuple[Pair, Pair]],
    build: Callable[[], nn.Module],
    loss: Loss,
    batch: int,
    judge: Loss | None = None,
) -> Make:
    """A network on a training and a test set."""

    def make(seed: int, steps: int) -> Trial:
        train, test = sets()
        return supervised(build(), train, test, loss, batch=batch, seed=seed, judge=judge)

    return make


def flat_digits(scale: float = 1.0) -> tuple[Pair, Pair]:
    """Digits as vectors, without noise."""
    parts = (data.digits("train"), data.digits("test"))
    pixels = [2.0 * scale * (torch.tensor(part.images.copy()).float().flatten(1) / 255 - 0.3) for part in parts]
    labels = [torch.tensor(part.labels) for part in parts]
    return (pixels[0], labels[0]), (pixels[1], labels[1])


def rows() -> tuple[Pair, Pair]:
    """Digits as sequences of eight rows."""
    (pixels, labels), (test, test_labels) = flat_digits()
    return (pixels.reshape(-1, 8, 8), labels), (test.reshape(-1, 8, 8), test_labels)


def dna(wrong: float = 0.0) -> tuple[Pair, Pair]:
    (inputs, labels), test = libsvm("dna")
    other = torch.randint(3, labels.shape, generator=generator(1))
    return (inputs, torch.where(torch.rand(labels.shape, generator=generator(2)) < wrong, other, labels)), test


def linear(condition: float, noise: float, size: int = 20) -> tuple[Pair, Pair]:
    """A linear teacher; the scales of its inputs spread over a factor ``condition``."""
    draw = generator(3)
    scales = condition ** -torch.linspace(0, 1, size)
    inputs = torch.randn(3000, size, generator=draw) * scales
    targets = inputs @ torch.randn(size, generator=draw) + noise * torch.randn(3000, generator=draw)
    return (inputs[:2400], targets[:2400]), (inputs[2400:], targets[2400:])


def taught(noise: float, scale: float = 1.0) -> tuple[Pair, Pair]:
    """The teacher of ``_tasks``, with targets in other units."""
    train, test = teacher(24, base.gaussian(noise), 1), teacher(24, base.gaussian(noise), 2, 1000)
    return (train[0], scale * train[1]), (test[0], scale * test[1])


def heavy_tails() -> tuple[Pair, Pair]:
    return teacher(24, base.heavy, 1), teacher(24, base.gaussian(0.0), 2, 1000)


def counts() -> tuple[Pair, Pair]:
    """Whole numbers whose mean is the exponential of a teacher's answer."""
    (inputs, log_mean), (test, test_mean) = taught(0.0)
    draw = generator(4)
    return (inputs, torch.poisson(log_mean.exp(), draw)), (test, torch.poisson(test_mean.exp(), draw))


def many_labels() -> tuple[Pair, Pair]:
    """Eight yes-or-no questions about every input."""
    draw = generator(5)
    inputs = torch.randn(3000, 24, generator=draw)
    answers = (
        torch.tanh(inputs @ torch.randn(24, 16, generator=draw)) @ torch.randn(16, 8, generator=draw) > 1
    ).float()
    return (inputs[:2400], answers[:2400]), (inputs[2400:], answers[2400:])


def waves(classes: int = 4, length: int = 48) -> tuple[Pair, Pair]:
    """Noisy waves; the class is the frequency."""
    draw = generator(6)
    labels = torch.randint(classes, (2400,), generator=draw)
    phase = 6.3 * torch.rand(2400, 1, generator=draw)
    signal = torch.sin((labels[:, None] + 2.0) * torch.linspace(0, 6.3, length) / 2 + phase)
    inputs = (signal + 1.2 * torch.randn(2400, length, generator=draw))[:, None]
    return (inputs[:2000], labels[:2000]), (inputs[2000:], labels[2000:])


def curve() -> tuple[Pair, Pair]:
    """One number in, a wave of it out."""
    inputs = 2 * torch.rand(2000, 1, generator=generator(7)) - 1
    targets = torch.sin(6 * inputs[:, 0]) + 0.5 * torch.cos(15 * inputs[:, 0])
    return (inputs[:1500], targets[:1500]), (inputs[1500:], targets[1500:])


def squares() -> tuple[Pair, Pair]:
    """Squared projections: the sign of the answer is lost, and zero is a stationary point."""
    draw = generator(8)
    inputs = torch.randn(3000, 20, generator=draw)
    hidden = torch.randn(20, generator=draw) / math.sqrt(20)
    targets = (inputs @ hidden).square() + 0.1 * torch.randn(3000, generator=draw)
    return (inputs[:2400], targets[:2400]), (inputs[2400:], targets[2400:])


def context(length: int) -> tuple[Pair, Pair]:
    """Some characters, and the one that follows."""
    (before, after), (test, test_after), _ = windows(length)
    return (before, after[:, -1]), (test, test_after[:, -1])


def huber(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.huber_loss(model(inputs).squeeze(-1), targets, delta=0.3)


def absolute(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.l1_loss(model(inputs).squeeze(-1), targets)


def pinball(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of the 0.9 quantile."""
    error = targets - model(inputs).squeeze(-1)
    return torch.maximum(0.9 * error, -0.1 * error).mean()


def poisson(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.poisson_nll_loss(model(inputs).squeeze(-1), targets)


def yes_or_no(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(inputs), targets)


def brier(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """The squared error of the probabilities."""
    wanted = F.one_hot(labels, 11)[..., : model(inputs).shape[-1]]
    return (torch.softmax(model(inputs), -1) - wanted).square().sum(-1).mean()


def margin(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.multi_margin_loss(model(inputs), labels)


def rebuilt(model: nn.Module, inputs: Tensor, _: Tensor) -> Tensor:
    return F.mse_loss(model(inputs), inputs)


def views(model: nn.Module, inputs: Tensor, _: Tensor) -> Tensor:
    """Two noisy views of an input should find each other among those of the batch."""
    inputs = inputs[:64]
    one, two = (
        F.normalize(model(inputs + 0.5 * torch.randn(inputs.shape, generator=generator(seed))), dim=-1)
        for seed in (1, 2)
    )
    return F.cross_entropy(one @ two.T / 0.2, torch.arange(len(inputs)))


def squared_projection(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return 0.25 * (model(inputs).squeeze(-1).square() - targets).square().mean()


def ranked(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Of two neighbours in the batch the one with the larger target should have the larger score."""
    score, half = model(inputs).squeeze(-1), len(inputs) // 2
    sign = torch.sign(targets[:half] - targets[half : 2 * half])
    return F.softplus(-sign * (score[:half] - score[half : 2 * half])).mean()


def triplets(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Inputs of one class should lie nearer to each other than to those of others."""
    points = model(inputs[:128])
    distances = (points[:, None] - points).square().sum(-1)
    same = (labels[:128, None] == labels[:128]).float()
    alike = (distances * same).sum(-1) / same.sum(-1)
    return F.softplus(1.0 + alike - (distances * (1 - same)).sum(-1) / (1 - same).sum(-1).clamp(min=1)).mean()


def distilled(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The divergence from soft labels."""
    return F.kl_div(F.log_softmax(model(inputs), -1), targets, reduction="batchmean")


def soft_labels() -> tuple[Pair, Pair]:
    (inputs, _), (test, _) = flat_digits()
    hidden, out = torch.randn(64, 32, generator=generator(9)) / 4, torch.randn(32, 12, generator=generator(10)) / 2
    soft = [torch.softmax(torch.relu(x @ hidden) @ out, -1) for x in (inputs, test)]
    return (inputs, soft[0]), (test, soft[1])


class Residual(nn.Module):
    """x + f(norm(x))."""

    def __init__(self, width: int, inner: nn.Module, norm: bool = True) -> None:
        super().__init__()
        self.norm: nn.Module = nn.LayerNorm(width) if norm else nn.Identity()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


class Turned(nn.Module):
    """A layer over the other axis of a sequence."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class Attention(nn.Module):
    """Every place looks at all places."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x, x, need_weights=False)[0]


class Pooled(nn.Module):
    """The mean over a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Last(nn.Module):
    """A recurrent network's last answer."""

    def __init__(self, cells: nn.Module) -> None:
        super().__init__()
        self.cells = cells

    def forward(self, x: Tensor) -> Tensor:
        return self.cells(x)[0][:, -1]


class Variational(nn.Module):
    """An autoencoder with a noisy middle; the noise is the same in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = mlp([64, 48, 12]), mlp([6, 48, 64])

    def forward(self, x: Tensor) -> Tensor:
        mean, log_std = self.encode(x).chunk(2, -1)
        noise = torch.randn(mean.shape, generator=generator(1))
        price = 0.5 * (mean.square() + torch.exp(2 * log_std) - 2 * log_std - 1).sum(-1).mean()
        return F.mse_loss(self.decode(mean + torch.exp(log_std) * noise), x) + 0.02 * price


def own_loss(model: nn.Module, inputs: Tensor, _: Tensor) -> Tensor:
    found: Tensor = model(inputs)
    return found


def scaled(model: nn.Sequential, factor: float) -> nn.Sequential:
    """The network with all its weights times a factor."""
    with torch.no_grad():
        for p in model.parameters():
            p *= factor
    return model


def characters(length: int, width: int) -> nn.Sequential:
    letters = windows(length)[2]
    return nn.Sequential(nn.Embedding(letters, width), nn.Flatten(), *mlp([length * width, 64, letters], nn.Tanh))


def signals(channels: int) -> nn.Sequential:
    first, second = nn.Conv1d(1, channels, 5, stride=2), nn.Conv1d(channels, channels, 5, stride=2)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(9 * channels, 4))


vowel = lambda: libsvm("vowel")  # noqa: E731
norms = lambda: nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))  # noqa: E731

DEVELOPMENT: dict[str, Make] = {
    "linear-noisy": on(lambda: linear(10, 0.5), lambda: nn.Linear(20, 1), squared_error, 8),
    "linear-exact": on(lambda: linear(30, 0.0), lambda: nn.Linear(20, 1), squared_error, 16),
    "vowel-linear": on(vowel, lambda: nn.Linear(10, 11), cross_entropy, 16),
    "vowel-mlp": on(vowel, lambda: mlp([10, 64, 64, 11], nn.SiLU), cross_entropy, 16),
    "vowel-batch-1": on(vowel, lambda: mlp([10, 32, 11]), cross_entropy, 1),
    "vowel-margin": on(vowel, lambda: mlp([10, 48, 11], nn.Tanh), margin, 32),
    "dna-wrong": on(lambda: dna(0.2), lambda: mlp([180, 48, 3]), cross_entropy, 64),
    "digits-residual": on(
        flat_digits,
        lambda: nn.Sequential(
            nn.Linear(64, 32), *(Residual(32, mlp([32, 64, 32])) for _ in range(3)), nn.Linear(32, 10)
        ),
        cross_entropy,
        32,
    ),
    "digits-norm": on(flat_digits, norms, cross_entropy, 32),
    "digits-large-batch": on(flat_digits, lambda: mlp([64, 48, 10]), cross_entropy, 512),
    "digits-large-weights": on(flat_digits, lambda: scaled(mlp([64, 64, 10]), 4.0), cross_entropy, 32),
    "digits-zero": on(flat_digits, lambda: scaled(nn.Sequential(nn.Linear(64, 10)), 0.0), cross_entropy, 16),
    "digits-large-inputs": on(lambda: flat_digits(30.0), lambda: mlp([64, 48, 10]), cross_entropy, 32),
    "digits-wide": on(flat_digits, lambda: mlp([64, 256, 10]), cross_entropy, 32),
    "digits-dropout": on(
        flat_digits,
        lambda: nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Dropout(0.4), nn.Linear(96, 10)),
        cross_entropy,
        32,
    ),
    "deep-linear": on(
        lambda: taught(0.3),
        lambda: nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(4)), nn.Linear(16, 1)),
        squared_error,
        32,
    ),
    "autoencoder": on(flat_digits, lambda: mlp([64, 48, 8, 48, 64], nn.GELU), rebuilt, 32),
    "huber": on(heavy_tails, lambda: mlp([16, 64, 64, 1]), huber, 16),
    "absolute": on(lambda: taught(0.3), lambda: mlp([16, 64, 1]), absolute, 8),
    "counts": on(counts, lambda: mlp([16, 32, 1]), poisson, 32),
    "many-labels": on(many_labels, lambda: mlp([24, 48, 8], nn.Tanh), yes_or_no, 32),
    "targets-0.01": on(lambda: taught(0.3, 0.01), lambda: mlp([16, 64, 1]), squared_error, 32),
    "targets-100": on(lambda: taught(0.3, 100.0), lambda: mlp([16, 64, 1]), squared_error, 32),
    "attention-rows": on(
        rows,
        lambda: nn.Sequential(nn.Linear(8, 24), Residual(24, Attention(24, 2)), Pooled(), nn.Linear(24, 10)),
        cross_entropy,
        32,
    ),
    "gru-rows": on(
        rows, lambda: nn.Sequential(Last(nn.GRU(8, 32, batch_first=True)), nn.Linear(32, 10)), cross_entropy, 32
    ),
    "characters-mlp": on(lambda: context(4), lambda: characters(4, 12), cross_entropy, 32),
    "waves-conv": on(waves, lambda: signals(12), cross_entropy, 32),
    "views": on(flat_digits, lambda: mlp([64, 64, 16]), views, 64),
}


def drawn(number: int) -> Make:
    """A small network with sizes, units, noise and loss drawn at random."""
    draw = random.Random(number)
    depth, width = draw.choice((1, 1, 2, 2, 3, 5)), draw.choice((12, 24, 48, 96))
    activation = draw.choice((nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.LeakyReLU))
    batch, start = draw.choice((2, 4, 8, 16, 32, 64, 128)), draw.choice((0.5, 1.0, 1.0, 1.0, 2.0))
    norm, residual = draw.random() < 0.25, draw.random() < 0.25
    source = draw.choice(("digits", "digits", "vowel", "dna", "teacher", "teacher", "labels", "linear"))
    scale, noise = 10 ** draw.uniform(-1, 1), draw.choice((0.0, 0.1, 0.3, 0.7, 1.5))
    sets: dict[str, tuple[Callable[[], tuple[Pair, Pair]], int, int]] = {
        "digits": (lambda: flat_digits(draw_scale), 64, 10),
        "vowel": (lambda: libsvm("vowel"), 10, 11),
        "dna": (lambda: dna(min(noise, 0.5)), 180, 3),
        "teacher": (lambda: taught(noise, scale), 16, 1),
        "labels": (many_labels, 24, 8),
        "linear": (lambda: linear(10**draw_condition, noise), 20, 1),
    }
    draw_scale, draw_condition = 10 ** draw.uniform(-0.7, 0.7), draw.uniform(0, 2)
    data_of, inputs, outputs = sets[source]
    losses = {1: (squared_error, squared_error, huber, absolute), 8: (yes_or_no,)}
    loss = draw.choice(losses.get(outputs, (cross_entropy, cross_entropy, cross_entropy, margin, brier)))

    def build() -> nn.Module:
        layers: list[nn.Module] = [nn.Linear(inputs, width), activation()]
        for _ in range(depth - 1):
            block = nn.Sequential(nn.Linear(width, width), activation())
            layers.append(Residual(width, block, norm) if residual or norm else block)
        return scaled(nn.Sequential(*layers, nn.Linear(width, outputs)), start)

    return on(data_of, build, loss, batch)


DEVELOPMENT |= {f"drawn-{number}": drawn(number) for number in range(24)}

SPENT: dict[str, Make] = {
    "mixer": on(
        rows,
        lambda: nn.Sequential(
            nn.Linear(8, 24),
            Residual(24, Turned(mlp([8, 16, 8], nn.GELU))),
            Residual(24, mlp([24, 48, 24], nn.GELU)),
            Pooled(),
            nn.Linear(24, 10),
        ),
        cross_entropy,
        48,
    ),
    "variational": on(flat_digits, Variational, own_loss, 32),
    "distilled": on(soft_labels, lambda: mlp([64, 40, 12], nn.ELU), distilled, 32),
    "quantile": on(lambda: taught(0.7), lambda: mlp([16, 48, 48, 1]), pinball, 32),
    "ranking": on(lambda: taught(0.5), lambda: mlp([16, 64, 1], nn.Tanh), ranked, 64),
    "phase": on(squares, lambda: nn.Linear(20, 1, bias=False), squared_projection, 16),
    "triplets": on(flat_digits, lambda: mlp([64, 48, 8]), triplets, 128),
    "curve": on(curve, lambda: mlp([1, 64, 64, 1], nn.Tanh), squared_error, 64),
    "dna-deep": on(dna, lambda: mlp([180, 32, 32, 32, 3], nn.LeakyReLU), cross_entropy, 8),
}
"""Held back from earlier weights; these were fitted on them as well."""

TASKS = base.TASKS | {name: Task(name, name, make) for name, make in (DEVELOPMENT | SPENT).items()}
