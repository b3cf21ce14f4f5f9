"""Networks of 0.3 to 10 M parameters, with their data, for the benchmark at scale.

Text is the source of Python's own standard library, which is on every machine; images are CIFAR-10
(``surefoot data get cifar10``).
"""

from __future__ import annotations

import collections
import functools
import random
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from _task_networks import GPT, Block
from _tasks import cross_entropy, judged
from surefoot import data

CHARACTERS = 2_000_000
"""How much of the library's source is read."""


class Network(NamedTuple):
    """A network with one seed: the loss of the batch of a step, and the loss on data that are not trained on."""

    model: nn.Module
    batch_loss: Callable[[int], Tensor]
    held_out: Callable[[], float]


class Recipe(NamedTuple):
    """How to make a network, and how long to train it."""

    make: Callable[[int], Network]
    steps: int


@functools.cache
def source() -> str:
    """Files of the standard library in a random order."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    random.Random(0).shuffle(files)
    return "".join(file.read_text(errors="ignore") for file in files)[:CHARACTERS]


def codes(pieces: list[str], size: int) -> Tensor:
    """Numbers of the most frequent pieces; all others share the last number."""
    frequent = [piece for piece, _ in collections.Counter(pieces).most_common(size - 1)]
    places = {piece: place for place, piece in enumerate(frequent)}
    return torch.tensor([places.get(piece, size - 1) for piece in pieces])


def language(
    model: Callable[[], nn.Module], pieces: list[str], size: int, length: int, batch: int, steps: int
) -> Recipe:
    """Predict the next piece of a text, from all before it in a window; a twentieth of the text is held out."""
    text = codes(pieces, size)
    cut = len(text) - len(text) // 20

    def make(seed: int) -> Network:
        network = model()

        def loss(starts: Tensor) -> Tensor:
            windows = text[starts[:, None] + torch.arange(length + 1)]
            return cross_entropy(network, windows[:, :-1], windows[:, 1:])

        def batch_loss(step: int) -> Tensor:
            return loss(torch.randint(cut - length, (batch,), generator=generator(seed, step)))

        judges = torch.randint(cut, len(text) - length, (256,), generator=torch.Generator().manual_seed(1))
        return Network(network, batch_loss, lambda: judged(network, lambda: loss(judges)))

    return Recipe(make, steps)


def generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(1_000_003 * (seed + 1) + step)


class Words(nn.Module):
    """An LSTM on words."""

    def __init__(self, words: int, width: int, state: int) -> None:
        super().__init__()
        self.tokens, self.cells = nn.Embedding(words, width), nn.LSTM(width, state, batch_first=True)
        self.head = nn.Linear(state, words)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.cells(self.tokens(words))[0])


@functools.cache
def cifar(split: str) -> tuple[Tensor, Tensor]:
    images = data.cifar10(split)  # type: ignore[arg-type]
    pixels = torch.tensor(images.images.copy()).float() / 255
    return (pixels - 0.473) / 0.252, torch.tensor(images.labels)


def pictures(
    model: Callable[[], nn.Module], loss: Callable[[nn.Module, Tensor, Tensor], Tensor], batch: int, steps: int
) -> Recipe:
    """Train on CIFAR-10, with every other image flipped; 1,000 images of the test are held out."""

    def make(seed: int) -> Network:
        (pixels, labels), (test_pixels, test_labels) = cifar("train"), cifar("test")
        network = model()

        def batch_loss(step: int) -> Tensor:
            rows = torch.randint(len(labels), (batch,), generator=generator(seed, step))
            drawn = pixels[rows]
            drawn[::2] = drawn[::2].flip(-1)
            return loss(network, drawn, labels[rows])

        def held_out() -> float:
            torch.manual_seed(2)
            return judged(network, lambda: loss(network, test_pixels[:1000], test_labels[:1000]))

        return Network(network, batch_loss, held_out)

    return Recipe(make, steps)


class VisionTransformer(nn.Module):
    """Patches of 8 × 8 pixels, the causal blocks of the GPT, and the mean of all patches."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.places = nn.Parameter(0.02 * torch.randn(16, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).mT + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class Autoencoder(nn.Module):
    """A variational autoencoder of flattened images."""

    def __init__(self, pixels: int, width: int, codes: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, 2 * codes))
        self.decoder = nn.Sequential(nn.Linear(codes, width), nn.ReLU(), nn.Linear(width, pixels))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(images).chunk(2, -1)
        drawn = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(drawn), mean, log_variance


def evidence_bound(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Minus the evidence bound per pixel, for Gaussian pixels of deviation 0.3."""
    decoded, mean, log_variance = model(images)
    misfit = 0.5 * (decoded - images.flatten(1)).square().sum(-1) / 0.3**2
    distance = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(-1)
    return (misfit + distance).mean() / images[0].numel()


def recipes() -> dict[str, Callable[[], Recipe]]:
    """By name, in order of importance."""
    return {
        "gpt": lambda: language(
            lambda: GPT(96, 120, 3, 4, 48, last_norm=True), list(source()), size=96, length=48, batch=8, steps=2000
        ),
        "vit": lambda: pictures(lambda: VisionTransformer(120, 3, 4), cross_entropy, batch=24, steps=1500),
        "lstm": lambda: language(
            lambda: Words(2000, 96, 192),
            re.findall(r"\w+|[^\w\s]|\n", source()),
            size=2000,
            length=20,
            batch=16,
            steps=1500,
        ),
        "vae": lambda: pictures(lambda: Autoencoder(3072, 160, 24), evidence_bound, batch=32, steps=1000),
    }
