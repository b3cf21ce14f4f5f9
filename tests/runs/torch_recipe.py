"""A training of one linear layer as a run, for the tests of torch runs and of searches over them."""

import numpy as np
import torch
from torch import nn

import surefoot.optim as sfo
from surefoot.search import TorchRun

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))

Y = X @ torch.tensor([1.0, -2.0, 0.5]) + 0.1

LRS = np.geomspace(1e-3, 1e2, 9)


def batches(seed):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
    return [(X[rows], Y[rows]) for rows in order.split(8)]


def squared(model, batch):
    return 0.5 * (model(batch[0]).squeeze(-1) - batch[1]).square().mean()


def recipe(optimizer=sfo.SGD, model=lambda: nn.Linear(3, 1), **options):
    return TorchRun(model, batches, squared, lambda parameters, lr: optimizer(parameters, lr=lr), **options)


def same(one, other):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(p, q) for p, q in pairs)
