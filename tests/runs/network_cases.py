"""A small network with all that makes training hard to resume, for the tests of studies on networks."""

import torch
from torch import nn

from surefoot.problems import NetworkProblem
from surefoot.study import Study

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(dim=1)
TRAIN, VALID = (X[:48], Y[:48]), (X[48:], Y[48:])


class Noisy(nn.Module):
    """Batch norm has buffers, dropout draws random numbers."""

    def __init__(self, width=16, dropout=0.2):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, width), nn.BatchNorm1d(width), nn.Linear(width, 3)
        self.dropout = dropout

    def forward(self, inputs):
        hidden = torch.relu(self.norm(self.first(inputs)))
        return self.last(nn.functional.dropout(hidden, self.dropout, self.training))


def make_problem(model=Noisy, train=TRAIN, **options):
    return NetworkProblem(model, train, **({"validation": VALID} | options))


def make_study(problem=None, **changes):
    """Six steps an epoch, three epochs."""
    settings = {"methods": ["sgd", "adamw"], "lrs": [0.01, 0.1], "seeds": 1, "epochs": 3, "batch_size": 8}
    return Study(make_problem() if problem is None else problem, **(settings | changes))
