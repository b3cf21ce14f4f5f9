"""A module, its data and the losses that it has seen, for tests of the finder inside Lightning."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

pl = pytest.importorskip("lightning.pytorch")

KNOWN_WARNINGS = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning against a newer torch
    pytest.mark.filterwarnings("ignore:.*(many workers|log_every_n_steps|no `val_data|in eval mode):UserWarning"),
]

SEEN: list[float] = []
"""The losses of all training steps, which no snapshot knows of."""


class Rows(torch.utils.data.Dataset):
    """Items with noise from the global generators and from a generator of their own."""

    def __init__(self, noise=0.0, count=40):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(count, 4, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True).sin()
        self.noise, self.read = noise, 0
        self.own = np.random.default_rng(0)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        self.read += 1
        noise = random.gauss() + np.random.randn() + self.own.normal() + torch.randn(()).item()  # noqa: NPY002
        return self.inputs[index] + self.noise * noise, self.targets[index]


class Module(pl.LightningModule):
    def __init__(self, make=None, lr=0.05, dropout=0.0):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1)
        )
        self.lr, self.make = lr, make
        self.count, self.epochs = 0, []

    def training_step(self, batch, _):
        inputs, targets = batch
        self.count += 1
        loss = (self.net(inputs) - targets).square().mean() * (1 + 0.01 * min(self.count, 5))
        self.log("train_loss", loss, on_epoch=True)
        SEEN.append(loss.item())
        return loss

    def on_train_epoch_end(self):
        self.epochs.append(self.current_epoch)

    def validation_step(self, batch, _):
        inputs, targets = batch
        loss = (self.net(inputs) - targets).square().mean()
        self.log_dict({"val_loss": loss, "goodness": -loss})

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr) if self.make is None else self.make(self)


def loader(noise=0.0, **options):
    return torch.utils.data.DataLoader(Rows(noise), **{"batch_size": 8, **options})
