"""Attach a monitor to an optimizer of torch: is this rate too small or too large, and which would do?"""

import torch

import surefoot as sf
from surefoot.data import load

data = load("vowel")  # comes with the package
inputs, labels = torch.tensor(data.X, dtype=torch.float32), torch.tensor(data.y)


def watched(lr, steps=60):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 11))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with sf.StabilityMonitor(optimizer, horizon=600) as monitor:
        for _ in range(steps):
            rows = torch.randint(len(labels), (32,))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
            loss.backward()
            monitor.record(loss)
            optimizer.step()
    return monitor


for lr in (0.003, 0.3, 30.0):
    print(f"lr {lr:g}:", watched(lr).verdict(), "\n")
watched(30.0).plot().savefig("monitor.png")  # loss, slopes, step sizes, indices
