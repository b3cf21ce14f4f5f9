"""A model of the loss of your own: a step and its index in ten lines, checked, in torch and in a study."""

from dataclasses import dataclass

import torch

import surefoot as sf
import surefoot.optim as sfo
from surefoot.testing import check_model
from surefoot.theory import models


@dataclass(frozen=True)
class Parabola(models.Model):
    """F·(1 − d + c·d²/2), where the linear model falls by d·F: SGD for c = 0, NGN for c = ½."""

    curvature: float = 1.0
    lower_bound: float = 0.0

    def solve(self, xp, point):
        """Step size and index."""
        scale = 1.0 + self.curvature * point.z
        return point.lr / scale, point.half / scale

    def relative_value(self, xp, drop):
        """The model over F, where the linear one has fallen by drop·F."""
        return 1.0 - drop + 0.5 * self.curvature * drop * drop


check_model(Parabola())
print(sfo.ModelBased(torch.nn.Linear(4, 1).parameters(), lr=10.0, model=Parabola()))
study = sf.Study(
    "linear-regression", methods=["sgd", Parabola()], lrs=[0.1, 1.0, 10.0, 100.0], seeds=2, epochs=10, batch_size=5
)
for row in study.run().sensitivity(bias="envelope"):
    print(f"{row.algorithm}: loss {row.best_loss:.2g} at {row.best_rate:g}, holds up to {row.high:g}")
