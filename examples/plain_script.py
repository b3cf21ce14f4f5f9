"""A training script with nothing of surefoot in it, and a rate that is too small: `surefoot watch plain_script.py`."""

import torch

torch.manual_seed(0)
inputs = torch.randn(4096, 10)
targets = inputs.sum(1, keepdim=True).sin()
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

for _ in range(5):
    for rows in torch.randperm(4096).split(32):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        loss.backward()
        optimizer.step()
print(f"the last loss is {loss.item():.3f}")
