"""A geometry of your own: the maximum norm, whose steepest direction is the sign of the gradient."""

import torch

import surefoot.optim as sfo
from surefoot.testing import check_optimizer
from surefoot.theory import models


class Sign(sfo.Geometry):
    """‖x‖ = max |x_i| of each tensor, so that the dual norm of a gradient is Σ|g_i|."""

    def direction(self, gradient, buffers, count):
        """‖g‖_* times the steepest unit direction."""
        return gradient.abs().sum() * gradient.sign()


check_optimizer(lambda params: sfo.ModelBased(params, 0.02, model=models.Truncated(), geometry=Sign()))

inputs = torch.randn(256, 10, generator=torch.Generator().manual_seed(0))
targets = inputs.sum(1, keepdim=True)
for lr in (0.01, 0.1, 1.0):
    torch.manual_seed(0)
    layer = torch.nn.Linear(10, 1)
    optimizer = sfo.ModelBased(layer.parameters(), lr, model=models.Truncated(), geometry=Sign())
    for _ in range(100):
        optimizer.zero_grad()
        loss = (layer(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step(loss=loss)
    print(f"lr {lr:g}: loss {loss:.2g}")
