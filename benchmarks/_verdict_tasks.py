"""Data, losses and layers of the small tasks that are drawn."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _tasks import windows
from surefoot import data

Pair = tuple[Tensor, Tensor]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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


class Residual(nn.Module):
    """x + f(norm(x))."""

    def __init__(self, width: int, inner: nn.Module, norm: bool = True) -> None:
        super().__init__()
        self.norm: nn.Module = nn.LayerNorm(width) if norm else nn.Identity()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


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


def scaled(model: nn.Sequential, factor: float) -> nn.Sequential:
    """The network with all its weights times a factor."""
    with torch.no_grad():
        for p in model.parameters():
            p *= factor
    return model
