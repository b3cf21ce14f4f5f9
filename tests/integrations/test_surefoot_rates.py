"""Surefoot where a framework leaves a rate and a scheduler in: the value of the rate does not matter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.integrations.test_heard_losses import BATCH, DATA, fit, loss_of, network

import surefoot.optim as sfo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")


def in_lightning(lr: float, folder: Any) -> torch.nn.Module:
    pl = pytest.importorskip("lightning.pytorch")

    class Module(pl.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def configure_optimizers(self) -> Any:
            optimizer = sfo.Surefoot(self.parameters(), lr=lr)
            steps = self.trainer.estimated_stepping_batches
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

        def training_step(self, batch: Any, _: int) -> Any:
            return loss_of(self.net, batch)

    module = Module()
    fit(module, folder)
    return module.net


def in_transformers(lr: float, folder: Any) -> torch.nn.Module:
    """With the Trainer's own linear schedule, which it makes for every optimizer."""
    transformers = pytest.importorskip("transformers")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": loss_of(self.net, (inputs, labels))}

    model = Model()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), num_train_epochs=1, per_device_train_batch_size=BATCH, use_cpu=True, report_to="none",
        save_strategy="no", logging_strategy="no", disable_tqdm=True, remove_unused_columns=False, max_grad_norm=0.0,
        dataloader_pin_memory=False, train_sampling_strategy="sequential",
    )  # fmt: skip
    rows = [{"inputs": x, "labels": y} for x, y in DATA]
    optimizer = sfo.Surefoot(model.parameters(), lr=lr)
    transformers.Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, None)).train()
    return model.net


def in_accelerate(lr: float, folder: Any) -> torch.nn.Module:
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    net = network()
    optimizer = sfo.Surefoot(net.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=6)
    loader = torch.utils.data.DataLoader(DATA, batch_size=BATCH)
    model, prepared, loader, scheduler = accelerator.prepare(net, optimizer, loader, scheduler)
    for batch in loader:
        accelerator.backward(loss_of(model, batch))
        prepared.step()
        scheduler.step()
        prepared.zero_grad()
    return net


@pytest.mark.parametrize("train", [in_lightning, in_transformers, in_accelerate])
def test_the_rate_that_is_left_in_does_not_matter(train: Any, tmp_path: Any) -> None:
    expected = [p.detach() for p in train(1.0, tmp_path).parameters()]
    assert any(bool((p != start).any()) for p, start in zip(expected, network().parameters(), strict=True))
    for lr in (5e-5, 1e-3, 10.0):
        for got, wanted in zip(train(lr, tmp_path).parameters(), expected, strict=True):
            torch.testing.assert_close(got.detach(), wanted, rtol=1e-5, atol=1e-6)
