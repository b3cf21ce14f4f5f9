"""A problem of your own: Huber's loss on data with heavy tails. Only the loss of a row has to be written."""

import numpy as np

import surefoot as sf
from surefoot.problems import LinearPredictor


class Huber(LinearPredictor):
    """Mean of Huber's loss of ⟨a, x⟩ − y."""

    name = "huber"

    def row_loss(self, predictions, targets):
        """The losses and their derivatives, elementwise."""
        gap = predictions - targets
        inside = np.clip(gap, -1.0, 1.0)
        return inside * (gap - 0.5 * inside), inside


rng = np.random.default_rng(0)
features = rng.standard_normal((400, 20))
targets = features @ rng.standard_normal(20) + rng.standard_t(1.5, 400)

study = sf.Study(
    Huber(features, targets),
    methods=["sgd", "sps", "ngn"],
    lrs={"from": 1e-2, "to": 1e2, "count": 9},
    seeds=2,
    epochs=20,
    batch_size=20,
    distance=5.0,
)
for row in study.run().sensitivity():
    print(
        f"{row.algorithm}: loss {row.best_loss:.3f} at {row.best_rate:.3g}, holds from {row.low:.3g} to {row.high:.3g}"
    )
