"""The Lightning callback on a real, small training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import surefoot.optim as sfo
from surefoot.monitor import DeltaExplosion, StabilityMonitor
from surefoot.theory import models

pl = pytest.importorskip("lightning.pytorch")
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

from surefoot.integrations.lightning import StabilityCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning against a newer torch


class Module(pl.LightningModule):
    def __init__(self, make):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.make = make
        self.losses = []

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = (self.layer(inputs) - targets).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return self.make(self.parameters())


class Manual(Module):
    def __init__(self, make):
        super().__init__(make)
        self.automatic_optimization = False

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(batch, index)
        self.manual_backward(loss)
        optimizer.step()


@pytest.fixture
def fit(tmp_path):
    def fit(module, callback, **options):
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(48, 4, generator=generator)
        data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
        options = {"max_epochs": 2, "logger": False, **options}
        trainer = pl.Trainer(
            accelerator="cpu",
            callbacks=[] if callback is None else [callback],
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
        )
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8))
        return trainer

    return fit


MAKES = {
    "foreign": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "ours": lambda p: sfo.NGN(p, lr=0.5),
}


@pytest.mark.parametrize(
    ("kind", "name", "accumulate"),
    [(Module, "foreign", 1), (Module, "ours", 3), (Module, "foreign", 3), (Manual, "foreign", 1), (Manual, "ours", 1)],
)
def test_every_loss_reaches_monitor_and_optimizer(fit, kind, name, accumulate):
    """Those of micro batches count with their mean."""
    module, callback = kind(MAKES[name]), StabilityCallback()
    fit(module, callback, accumulate_grad_batches=accumulate)
    expected = torch.tensor(module.losses).reshape(-1, accumulate).mean(1).tolist()
    trace = callback.monitor.trace()
    assert trace.loss.values == pytest.approx(expected, rel=1e-6)
    assert trace.attrs["horizon"] == 12 // accumulate
    if name == "ours":  # the optimizer has seen the same loss
        chosen = trace.sel(algorithm="ngn")
        assert chosen.counterfactual_size.values == pytest.approx(trace["size"].values, rel=1e-6)


class Overflowing(Module):
    """Its third gradient overflows, and the scaler of float16 leaves the step out."""

    def on_after_backward(self):
        if len(self.losses) == 3:
            self.layer.weight.grad[0, 0] = torch.inf


class OverflowingByHand(Overflowing, Manual):
    pass


@pytest.mark.parametrize(("kind", "name"), [(Overflowing, "ours"), (OverflowingByHand, "foreign")])
def test_a_step_that_the_scaler_leaves_out_leaves_no_loss_behind(fit, kind, name):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    precision = pl.plugins.MixedPrecision("16-mixed", device="cpu", scaler=scaler)
    module, callback = kind(MAKES[name]), StabilityCallback()
    fit(module, callback, plugins=[precision])
    expected = [loss for index, loss in enumerate(module.losses) if index != 2]
    assert callback.monitor.trace().loss.values == pytest.approx(expected, rel=1e-3)


def test_a_callback_on_a_foreign_optimizer_changes_nothing(fit):
    alone, watched = Module(MAKES["foreign"]), Module(MAKES["foreign"])
    fit(alone, None)
    fit(watched, StabilityCallback())
    assert torch.equal(alone.layer.weight, watched.layer.weight)


def test_a_stop_rule_ends_the_training(fit):
    callback = StabilityCallback(stop=[DeltaExplosion()], flush_every=4)
    fit(Module(lambda p: torch.optim.SGD(p, lr=3.0)), callback, max_epochs=50)
    assert callback.monitor.steps == 4
    assert callback.monitor.stopped.step == 3
    assert not callback.monitor.optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize(("watched", "accumulate"), [(False, 1), (True, 3)])
def test_clipping_by_lightning_is_the_optimizers_own(fit, watched, accumulate):
    own, theirs = Module(lambda p: sfo.NGN(p, lr=0.5, max_grad_norm=0.3)), Module(MAKES["ours"])
    fit(own, None, accumulate_grad_batches=accumulate)
    options = {"gradient_clip_val": 0.3, "accumulate_grad_batches": accumulate}
    fit(theirs, StabilityCallback() if watched else None, **options)
    assert torch.allclose(own.layer.weight, theirs.layer.weight, rtol=1e-4)
    fit(free := Module(MAKES["ours"]), None, accumulate_grad_batches=accumulate)
    assert not torch.allclose(own.layer.weight, free.layer.weight, rtol=1e-2)


def test_csv_and_tensorboard_loggers_get_what_the_monitor_sees(fit, tmp_path):
    pytest.importorskip("tensorboard")
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loggers = [CSVLogger(tmp_path, "csv"), TensorBoardLogger(tmp_path, "board")]
    module, callback = Module(MAKES["foreign"]), StabilityCallback()
    fit(module, callback, logger=loggers, log_every_n_steps=3, max_epochs=4)
    written = pd.read_csv(tmp_path / "csv" / "version_0" / "metrics.csv")
    assert written["step"].tolist() == [3, 6, 9, 12, 15, 18, 21, 24]
    trace = callback.monitor.trace()
    assert written["stability/loss"].to_numpy() == pytest.approx(trace.loss.values[2::3])
    assert written["stability/size/sps"].to_numpy() == pytest.approx(
        trace.sel(algorithm="sps").counterfactual_size.values[2::3]
    )
    assert written["stability/state"].iloc[-1] in (-1, 0, 1, 2)
    events = EventAccumulator(str(tmp_path / "board" / "version_0"))
    events.Reload()
    board = events.Scalars("stability/loss")
    assert [event.step for event in board] == written["step"].tolist()
    assert [event.value for event in board] == pytest.approx(written["stability/loss"].tolist(), rel=1e-6)


class Counting(models.Linear):
    """A counterfactual model that counts the steps that are computed with it."""

    def step(self, loss, grad_sq, lr):
        counted["steps"] += np.size(loss)
        return super().step(loss, grad_sq, lr)


counted = {"steps": 0, "judged": 0}


def test_logging_does_not_cost_more_in_a_longer_run(fit, tmp_path, monkeypatch):
    def verdict(monitor, judge=StabilityMonitor.verdict):
        counted["judged"] += monitor.steps
        return judge(monitor)

    monkeypatch.setattr(StabilityMonitor, "verdict", verdict)
    logger, callback = CSVLogger(tmp_path), StabilityCallback(models={"counting": Counting()})
    fit(Module(MAKES["foreign"]), callback, logger=logger, log_every_n_steps=1, max_epochs=40)
    assert callback.monitor.steps == 240
    assert counted["steps"] == 240
    assert counted["judged"] < 13 * 240  # not 240²/2: the run is judged again once it is a tenth longer


def test_loggers_are_left_alone_on_request(fit, tmp_path):
    fit(Module(MAKES["foreign"]), StabilityCallback(log=False), logger=CSVLogger(tmp_path), log_every_n_steps=1)
    assert not list(tmp_path.rglob("metrics.csv"))


@pytest.mark.filterwarnings("ignore:.*returned `None`:UserWarning")
@pytest.mark.parametrize("make", [lambda p: None, lambda p: [torch.optim.SGD([x], lr=0.1) for x in p]])
def test_a_module_without_one_optimizer_is_refused(fit, make):
    with pytest.raises(ValueError, match=r"one optimizer for StabilityCallback, got [02]"):
        fit(Manual(make), StabilityCallback())
