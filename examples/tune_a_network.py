"""The best learning rate of a torch training for the price of a few runs, and the model that was trained with it."""

import numpy as np
import torch
from torch import nn

import surefoot as sf
import surefoot.optim as sfo
from surefoot.data import load
from surefoot.search import TorchRun

data = load("vowel")
X, y = torch.tensor(data.X, dtype=torch.float32), torch.tensor(data.y)


def make_batches(seed):
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    return [(X[rows], y[rows]) for rows in order.split(32)]


runs = TorchRun(
    lambda: nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 11)),
    make_batches,
    lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
    lambda parameters, lr: sfo.NGN(parameters, lr=lr),
)
found = sf.tune(runs, lrs=np.geomspace(1e-2, 1e2, 9), horizon=200)
print(found.table)
print(f"lr {found.lr:.3g} for the price of {found.steps / found.horizon:.1f} runs instead of 9")
accuracy = (found.run.model(X).argmax(1) == y).float().mean()
print(f"its model is right on {accuracy:.0%} of the training rows")
