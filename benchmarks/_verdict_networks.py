"""Networks of usual sizes (50 k parameters and more) on which verdicts are fitted and judged.

``UNTOUCHED`` names the kinds that are for judging only. Images are CIFAR-10, text is the
file in ``SUREFOOT_TEXT`` or the bundled one.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _task_networks import GPT, Block, Factors, mlp
from _tasks import Loss, Trial, cross_entropy, judged, squared_error
from surefoot import data

Sets = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Inputs and targets for training, and for judging."""


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@functools.cache
def images() -> Sets:
    """CIFAR-10: 20,000 images to train on, 1,000 to judge."""
    parts = []
    for split, count in (("train", 20_000), ("test", 1000)):
        found = data.cifar10(split)  # type: ignore[arg-type]
        pixels = torch.tensor(found.images[:count]).float().div_(255)
        mean, std = (torch.tensor(x).view(3, 1, 1) for x in found.statistics())
        parts.append(((pixels - mean) / std, torch.tensor(found.labels[:count])))
    return parts[0], parts[1]


@functools.cache
def small_images() -> Sets:
    """The images at half their resolution, gray, as vectors with values from 0 to 1; targets are the images."""
    gray = [F.avg_pool2d(inputs.mean(1, keepdim=True), 2).flatten(1) for inputs, _ in images()]
    train, test = (torch.sigmoid(1.5 * part) for part in gray)
    return (train, train), (test, test)


@functools.cache
def text(length: int) -> tuple[Sets, int]:
    """Windows of characters, with those that follow."""
    found = data.characters(os.environ.get("SUREFOOT_TEXT"))
    train, test = (
        torch.tensor(part.copy()).long().unfold(0, length + 1, 1) for part in (found.train, found.validation)
    )
    test = test[:: len(test) // 64][:64]
    return ((train[:, :-1], train[:, 1:]), (test[:, :-1], test[:, 1:])), len(found.vocabulary)


def on_rows(model: nn.Module, sets: Sets, loss: Loss, batch: int) -> Trial:
    """Train on rows that are drawn with replacement."""
    (inputs, targets), test = sets

    def batch_loss(step: int) -> Tensor:
        rows = torch.randint(len(targets), (batch,), generator=draws(1_000_003 + step))
        return loss(model, inputs[rows], targets[rows])

    return Trial(model, batch_loss, lambda: judged(model, lambda: loss(model, *test)))


def gpt() -> Trial:
    sets, letters = text(48)
    return on_rows(GPT(letters, 64, 2, 4, 48, last_norm=True), sets, cross_entropy, 6)


class Lstm(nn.Module):
    def __init__(self, letters: int, width: int) -> None:
        super().__init__()
        self.tokens, self.cells = nn.Embedding(letters, 32), nn.LSTM(32, width, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, codes: Tensor) -> Tensor:
        return self.head(self.cells(self.tokens(codes))[0])


def lstm() -> Trial:
    sets, letters = text(24)
    return on_rows(Lstm(letters, 96), sets, cross_entropy, 16)


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(512, 96), nn.ReLU(), nn.Linear(96, 10)),
    )


def cnn() -> Trial:
    return on_rows(convolutions(), images(), cross_entropy, 32)


class Stage(nn.Module):
    """Two convolutions with batch norm around a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()),
            *(nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)),
        )
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet() -> Trial:
    stem = (nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    stages = (Stage(16, 16, 1), Stage(16, 32, 2), Stage(32, 48, 2))
    model = nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10))
    return on_rows(model, images(), cross_entropy, 16)


class Patches(nn.Module):
    """A vision transformer on patches of 8 × 8."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, stride=8)
        self.places = nn.Parameter(0.02 * torch.randn(16, width))
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


def vit() -> Trial:
    return on_rows(Patches(64, 2), images(), cross_entropy, 16)


class Variational(nn.Module):
    def __init__(self, hidden: int, code: int) -> None:
        super().__init__()
        self.encode, self.decode = mlp([256, hidden, 2 * code]), mlp([code, hidden, 256])

    def forward(self, x: Tensor) -> Tensor:
        """The negative evidence lower bound per image, as PyTorch's example has it."""
        mean, log_var = self.encode(x).chunk(2, -1)
        code = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
        rebuilt = F.binary_cross_entropy_with_logits(self.decode(code), x, reduction="sum")
        return (rebuilt - 0.5 * (1 + log_var - mean.square() - log_var.exp()).sum()) / len(x)


def vae() -> Trial:
    return on_rows(Variational(192, 12), small_images(), lambda model, x, _: model(x), 64)


def autoencoder() -> Trial:
    return on_rows(mlp([256, 128, 24, 128, 256]), small_images(), lambda m, x, y: F.mse_loss(m(x), y), 64)


def regression() -> Trial:
    """A network's answers with as much noise as signal."""
    draw = draws(3)
    inputs, inner, outer = (torch.randn(shape, generator=draw) for shape in ((22_000, 32), (32, 24), (24,)))
    clean = torch.tanh(inputs @ inner / 3) @ outer / math.sqrt(24)
    noisy = clean + clean.std() * torch.randn(len(clean), generator=draw)
    sets = (inputs[:20_000], noisy[:20_000]), (inputs[20_000:], noisy[20_000:])
    return on_rows(mlp([32, 224, 224, 1], nn.SiLU), sets, squared_error, 32)


class Graph(nn.Module):
    """Two graph convolutions with dropout."""

    def __init__(self, adjacency: Tensor, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.adjacency = adjacency
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.dropout(
            torch.relu(self.adjacency @ self.first(F.dropout(x, 0.5, self.training))), 0.5, self.training
        )
        return self.adjacency @ self.second(hidden)


def gcn() -> Trial:
    """Communities of a random graph with sparse features, like a network of citations; every step sees all nodes."""
    draw, nodes, classes, words = draws(4), 1000, 7, 1000
    labels = torch.randint(classes, (nodes,), generator=draw)
    same = labels[:, None] == labels
    edges = (torch.rand(nodes, nodes, generator=draw) < torch.where(same, 0.012, 0.001)).float().triu(1)
    edges = edges + edges.T + torch.eye(nodes)
    norm = edges.sum(1).rsqrt()
    topics = 0.01 + 0.03 * (torch.rand(classes, words, generator=draw) < 0.1).float()
    features = (torch.rand(nodes, words, generator=draw) < topics[labels]).float()
    features = features / features.sum(1, keepdim=True).clamp(min=1)
    model = Graph((norm[:, None] * edges * norm).to_sparse(), words, 64, classes)
    train, test = torch.arange(200), torch.arange(500, 1000)

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(features)[rows], labels[rows])

    return Trial(model, lambda _: loss(train), lambda: judged(model, lambda: loss(test)))


def recommender() -> Trial:
    """Ratings as products of factors of users and films, with noise."""
    draw, users, films = draws(5), 1500, 800
    full = 1.5 * torch.randn(users, 4, generator=draw) @ torch.randn(4, films, generator=draw) / 2
    cells = torch.stack([torch.randint(n, (122_000,), generator=draw) for n in (users, films)], 1)
    ratings = full[cells[:, 0], cells[:, 1]] + 0.5 * torch.randn(len(cells), generator=draw)
    sets = (cells[:120_000], ratings[:120_000]), (cells[120_000:], ratings[120_000:])
    return on_rows(Factors(users, films, 24), sets, squared_error, 1024)


class Coupling(nn.Module):
    """Couplings that shift and scale one half of the numbers by what the other half says; halves take turns."""

    def __init__(self, size: int, width: int, depth: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(mlp([size // 2, width, width, size], nn.Tanh) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """The mean of −log p."""
        left, right = x.chunk(2, -1)
        volume = torch.zeros(len(x))
        for part in self.parts:
            shift, scale = part(left).chunk(2, -1)
            scale = torch.tanh(scale)
            left, right, volume = right * scale.exp() + shift, left, volume + scale.sum(-1)
        z = torch.cat([left, right], -1)
        return (0.5 * (z.square() + math.log(2 * math.pi)).sum(-1) - volume).mean()


def flow() -> Trial:
    """A normalising flow on eight numbers that lie near a curved surface; its loss goes below 0."""
    draw = draws(6)
    hidden = torch.randn(21_000, 3, generator=draw)
    wave = torch.sin(hidden @ torch.randn(3, 8, generator=draw))
    points = wave + 0.1 * torch.randn(len(wave), 8, generator=draw)
    sets = (points[:20_000], points[:20_000]), (points[20_000:], points[20_000:])
    return on_rows(Coupling(8, 80, 8), sets, lambda model, x, _: model(x), 64)


@functools.cache
def pretrained() -> dict[str, Tensor]:
    """The convolutions after a short training on the first five classes."""
    torch.manual_seed(1)
    model, (inputs, labels) = convolutions(), images()[0]
    rows = torch.nonzero(labels < 5)[:, 0]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(400):
        chosen = rows[torch.randint(len(rows), (32,), generator=draws(step))]
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def fine_tuning() -> Trial:
    """The pre-trained convolutions with a new head for the other five classes."""
    found = pretrained()
    torch.manual_seed(0)
    model = convolutions()
    model.load_state_dict({**found, **{name: model.state_dict()[name] for name in ("9.weight", "9.bias")}})
    parts = ((x[y >= 5], y[y >= 5]) for x, y in images())
    return on_rows(model, tuple(parts), cross_entropy, 32)  # type: ignore[arg-type]


NETWORKS: dict[str, tuple[Callable[[], Trial], int, float, float]] = {
    "gpt": (gpt, 300, 0.3, 3e-3),
    "lstm": (lstm, 300, 3.0, 5e-3),
    "cnn": (cnn, 300, 5e-2, 1e-3),
    "resnet": (resnet, 300, 2e-1, 3e-3),
    "vit": (vit, 300, 0.1, 2e-3),
    "vae": (vae, 300, 3e-3, 3e-3),
    "autoencoder": (autoencoder, 300, 10.0, 2e-3),
    "regression": (regression, 300, 5e-2, 2e-3),
    "gcn": (gcn, 160, 10.0, 1e-2),
    "recommender": (recommender, 300, 100.0, 2e-2),
    "flow": (flow, 300, 1e-2, 3e-3),
    "fine-tuning": (fine_tuning, 300, 5e-2, 1e-3),
}
"""Of every kind: how it is made, its steps, and rates of SGD and Adam that are about right."""
UNTOUCHED = ("resnet", "vae", "regression", "flow", "vit")
"""Kinds that were drawn for judging only, before anything was trained."""
