"""Change one line of a torch training: the step hears the loss, and then holds at rates where SGD fails."""

import warnings

import torch

import surefoot.optim as sfo

torch.manual_seed(0)
inputs = torch.randn(256, 10)
targets = inputs.sum(1, keepdim=True).sin()

for optimizer_class in (sfo.SGD, sfo.SPS, sfo.NGN):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = optimizer_class(model.parameters(), lr=3.0)
    warnings.simplefilter("ignore", UserWarning)  # SGD diverges here, and says so
    for _ in range(100):
        rows = torch.randint(256, (64,))
        optimizer.zero_grad()
        loss = (model(inputs[rows]) - targets[rows]).square().mean()
        loss.backward()
        optimizer.step()
    size, delta = optimizer.last_step
    print(f"{optimizer_class.__name__}: loss {loss:.3g}; last step {size:.3g} of 3, stability index {delta:.3g}")
