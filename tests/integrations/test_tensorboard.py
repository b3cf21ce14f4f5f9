"""The writer, read back with TensorBoard's own reader."""

from __future__ import annotations

import pytest
import torch

from surefoot.monitor import StabilityMonitor

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from surefoot.integrations.tensorboard import TensorBoardWriter


def train(monitor, steps):
    optimizer = monitor.optimizer
    x = optimizer.param_groups[0]["params"][0]
    for _ in range(steps):
        optimizer.zero_grad()
        loss = 0.5 * x.square().sum()
        loss.backward()
        monitor.record(loss)
        optimizer.step()


@pytest.fixture
def monitor():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.tensor([3.0, 4.0]))], lr=0.1)
    with StabilityMonitor(optimizer, horizon=10) as monitor:
        yield monitor


def scalars(folder, tag):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {event.step: event.value for event in events.Scalars(f"stability/{tag}")}


def test_every_step_is_written_once(tmp_path, monitor):
    with TensorBoardWriter(monitor, tmp_path) as board:
        train(monitor, 3)
        board.write()
        train(monitor, 4)
        board.write()
        board.write()
    trace = monitor.trace()
    for tag, values in (
        ("loss", trace.loss),
        ("delta", trace.delta),
        ("size/ngn", trace.counterfactual_size.sel(algorithm="ngn")),
        ("delta/sps", trace.counterfactual_delta.sel(algorithm="sps")),
    ):
        found = scalars(tmp_path, tag)
        assert list(found) == list(range(7)), tag
        assert list(found.values()) == pytest.approx(values.values.tolist(), rel=1e-6), tag
    assert scalars(tmp_path, "noise")[6] == pytest.approx(trace.noise.values[-1])


def test_a_writer_from_outside_stays_open(tmp_path, monitor):
    with SummaryWriter(str(tmp_path)) as writer:
        with TensorBoardWriter(monitor, writer=writer):
            train(monitor, 2)
        writer.add_scalar("stability/mine", 1.0, 0)
    assert scalars(tmp_path, "mine") == {0: 1.0}


def test_a_monitor_and_one_target_are_needed(tmp_path, monitor):
    with pytest.raises(ValueError, match="log_dir"):
        TensorBoardWriter(monitor)
    with pytest.raises(TypeError, match="monitor must be a StabilityMonitor, got SGD"):
        TensorBoardWriter(monitor.optimizer, tmp_path)
