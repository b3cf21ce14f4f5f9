"""Accelerate calls step() without a loss: the optimizer has received it, and trains as in a loop that hands it over."""

from __future__ import annotations

import pytest
import torch

import surefoot.optim as sfo

accelerate = pytest.importorskip("accelerate")

INPUTS = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
DATA = torch.utils.data.TensorDataset(INPUTS, INPUTS.sum(1, keepdim=True).sin())


def make():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return net, sfo.NGN(net.parameters(), lr=5.0), torch.utils.data.DataLoader(DATA, batch_size=8)


def loss_of(net, batch):
    return (net(batch[0]) - batch[1]).square().mean()


@pytest.mark.parametrize("parts", [1, 3])
def test_accelerate(parts):
    expected, optimizer, loader = make()
    batches = list(loader)
    for start in range(0, len(batches), parts):
        optimizer.zero_grad()
        for batch in batches[start : start + parts]:
            loss = loss_of(expected, batch) / parts
            loss.backward()
            optimizer.add_loss(loss)
        optimizer.step()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=parts)
    net, *others = make()
    model, prepared, loader = accelerator.prepare(net, *others)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, batch))
            prepared.step()
            prepared.zero_grad()
    for got, wanted in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
