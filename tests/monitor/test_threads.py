"""Trainings in several threads: each has its own monitor, and its own losses."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading, torch
from surefoot.monitor import StabilityMonitor

torch.set_num_threads(1)
STEPS = 300

def train(seed, results, watched):
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    monitor = StabilityMonitor(optimizer, horizon=STEPS)
    if watched:
        monitor.attach()
    losses = []
    for _ in range(STEPS):
        x = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    results[seed] = losses, monitor.numbers()["loss"].tolist(), str(monitor.verdict())

alone, together = {}, {}
for seed in (1, 2):
    train(seed, alone, False)
threads = [threading.Thread(target=train, args=(seed, together, True)) for seed in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for seed in (1, 2):
    losses, received, verdict = together[seed]
    assert losses == alone[seed][0], "the other thread changed the training"
    assert received == losses, "a loss of the other thread"
    assert verdict.startswith("Holds"), verdict
print("equal")
"""


@pytest.mark.parametrize("repetition", range(2))
def test_a_monitor_in_each_of_two_training_threads(repetition):
    """In a process of its own: threads that read each other's gradients crash it."""
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert (found.returncode, found.stdout) == (0, "equal\n"), found.stderr
