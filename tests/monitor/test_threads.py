"""Trainings in several threads: each has its own monitor, and its own losses."""

from __future__ import annotations

from tests.processes import Program

SCRIPT = """
import threading, torch
from surefoot.monitor import StabilityMonitor

torch.set_num_threads(1)
results = {}

def train(seed):
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.05), []
    with StabilityMonitor(optimizer, horizon=300) as monitor:
        for _ in range(300):
            x = torch.randn(16, 8, generator=generator)
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    results[seed] = losses, monitor.numbers()["loss"].tolist(), monitor.verdict()

threads = [threading.Thread(target=train, args=(seed,)) for seed in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for losses, received, verdict in results.values():
    assert received == losses, "a loss of the other thread"
    assert verdict.state == "holds", verdict
print(len(results))
"""


def test_a_monitor_in_each_of_two_training_threads():
    """In a process of its own: threads that read each other's gradients crash it."""
    with Program(SCRIPT) as process:
        printed, errors = process.communicate(timeout=300)
    assert (process.returncode, printed) == (0, "2\n"), errors
