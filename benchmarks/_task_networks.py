"""The small networks that the tasks of the benchmarks train."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(sizes: list[int], activation: type[nn.Module] = nn.ReLU, *, flatten: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()] if flatten else []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def small_network() -> nn.Sequential:
    return mlp([64, 64, 10], flatten=True)


class Block(nn.Module):
    """A transformer block, normalised before its parts."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.attend(self.first(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.feed(self.second(x))


class GPT(nn.Module):
    def __init__(self, letters: int, width: int, depth: int, heads: int, length: int, *, last_norm: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width) if last_norm else nn.Identity()
        self.head = nn.Linear(width, letters, bias=False)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02 if last_norm else 1.0)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.tokens(codes) + self.places(torch.arange(codes.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Recurrent(nn.Module):
    """A recurrent network on characters; with ReLU its losses spike."""

    def __init__(self, letters: int, width: int, kind: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(letters, width)
        self.cells = nn.GRU(width, width, batch_first=True) if kind == "gru" else None
        self.inward, self.across = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.head = nn.Linear(width, letters)
        nn.init.eye_(self.across.weight)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.tokens(codes)
        if self.cells is not None:
            return self.head(self.cells(x)[0])
        x, state, states = self.inward(x), torch.zeros(len(x), x.shape[-1]), []
        for place in range(x.shape[1]):
            state = torch.relu(x[:, place] + self.across(state))
            states.append(state)
        return self.head(torch.stack(states, 1))


def convolutions(
    channels: list[int], norm: Callable[[int], nn.Module] | None, activation: type[nn.Module]
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index, (before, after) in enumerate(zip([1, *channels[:-1]], channels, strict=True)):
        layers.append(nn.Conv2d(before, after, 3, stride=2 if index in (1, 3) else 1, padding=1))
        layers += [norm(after)] if norm else []
        layers.append(activation())
    side = 8 // 2 ** sum(index in (1, 3) for index in range(len(channels)))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * side * side, 10))


class Factors(nn.Module):
    """A matrix as a product of two thin ones."""

    def __init__(self, rows: int, columns: int, rank: int) -> None:
        super().__init__()
        self.left, self.right = nn.Embedding(rows, rank), nn.Embedding(columns, rank)
        for table in (self.left, self.right):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, cells: Tensor) -> Tensor:
        return (self.left(cells[:, 0]) * self.right(cells[:, 1])).sum(-1)


class Scaled(nn.Module):
    """A linear layer whose weights are ``factor`` times its parameters, and start as usual."""

    def __init__(self, inputs: int, outputs: int, factor: float) -> None:
        super().__init__()
        plain = nn.Linear(inputs, outputs)
        self.factor = factor
        self.weight, self.bias = nn.Parameter(plain.weight.data / factor), nn.Parameter(plain.bias.data / factor)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.factor * self.weight, self.factor * self.bias)
