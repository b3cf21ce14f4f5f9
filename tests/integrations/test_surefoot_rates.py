"""Surefoot where people leave a rate and a scheduler in: ten ways, and none does worse than the default by over 2 %."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

import surefoot.optim as sfo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")

STEPS, BATCH = 240, 32


@functools.cache
def data() -> tuple[torch.utils.data.TensorDataset, torch.utils.data.TensorDataset]:
    """Images of digits for training, a fifth of them with a random label, and for the test."""
    from surefoot.data import digits

    generator, sets = torch.Generator().manual_seed(0), []
    for name in ("train", "test"):
        images = digits(name)
        pixels, labels = torch.tensor(images.images).reshape(-1, 64) / 255.0, torch.tensor(images.labels).long()
        wrong = torch.rand(len(labels), generator=generator) < 0.2
        labels[wrong] = torch.randint(10, (int(wrong.sum()),), generator=generator)
        sets.append(torch.utils.data.TensorDataset(pixels.float(), labels))
    rows = torch.randint(len(sets[0]), (STEPS * BATCH,), generator=generator)
    return torch.utils.data.TensorDataset(*sets[0][rows]), sets[1]


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def loss_of(net: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(net(batch[0]), batch[1])


def loader() -> Any:
    return torch.utils.data.DataLoader(data()[0], batch_size=BATCH)


def in_a_loop(lr: float, follow: Callable[[Any], Callable[[int, float], None]] | None = None) -> torch.nn.Module:
    """``follow(optimizer)`` gives what the script does after every step, with its number and its loss."""
    net = network()
    optimizer = sfo.Surefoot(net.parameters(), lr=lr)
    after = None if follow is None else follow(optimizer)
    for step, batch in enumerate(loader(), 1):
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        if after is not None:
            after(step, loss.item())
    return net


def scheduled(make: Callable[[Any], Any], lr: float = 1e-3) -> Callable[[Any], torch.nn.Module]:
    """Training by hand with a scheduler of torch."""

    def follow(optimizer: Any) -> Callable[[int, float], None]:
        scheduler = make(optimizer)
        on_loss = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        return lambda step, loss: scheduler.step(loss) if on_loss else scheduler.step()

    return lambda _: in_a_loop(lr, follow)


def by_hand(optimizer: Any) -> Callable[[int, float], None]:
    """The loop of nanoGPT: warmup, then a linear decay to a tenth, written into the groups."""

    def after(step: int, _: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * min((step + 1) / 20, 1.0 - 0.9 * step / STEPS)

    return after


def in_lightning(folder: Any) -> torch.nn.Module:
    """With a cosine in ``configure_optimizers``."""
    pl = pytest.importorskip("lightning.pytorch")

    class Module(pl.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def configure_optimizers(self) -> Any:
            optimizer = sfo.Surefoot(self.parameters(), lr=1e-3)
            scheduler = lr_scheduler.CosineAnnealingLR(optimizer, int(self.trainer.estimated_stepping_batches))
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

        def training_step(self, batch: Any, _: int) -> Any:
            return loss_of(self.net, batch)

    module = Module()
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(module, loader())
    return module.net


def in_transformers(folder: Any) -> torch.nn.Module:
    """With the rate and the linear schedule that the Trainer has by default."""
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
        save_strategy="no", logging_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        dataloader_pin_memory=False, train_sampling_strategy="sequential",
    )  # fmt: skip
    rows = [{"inputs": x, "labels": y} for x, y in data()[0]]
    optimizer = sfo.Surefoot(model.parameters(), lr=arguments.learning_rate)
    transformers.Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, None)).train()
    return model.net


def in_accelerate(folder: Any) -> torch.nn.Module:
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    net = network()
    optimizer = sfo.Surefoot(net.parameters(), lr=3e-4)
    scheduler = lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
    model, prepared, batches, scheduler = accelerator.prepare(net, optimizer, loader(), scheduler)
    for batch in batches:
        accelerator.backward(loss_of(model, batch))
        prepared.step()
        scheduler.step()
        prepared.zero_grad()
    return net


WAYS: dict[str, Callable[[Any], torch.nn.Module]] = {
    "Lightning": in_lightning,
    "Transformers": in_transformers,
    "Accelerate": in_accelerate,
    "nanoGPT": lambda _: in_a_loop(6e-4, by_hand),
    "OneCycleLR": scheduled(lambda o: lr_scheduler.OneCycleLR(o, max_lr=1e-2, total_steps=STEPS + 1)),
    "CyclicLR": scheduled(lambda o: lr_scheduler.CyclicLR(o, base_lr=1e-4, max_lr=1e-3, step_size_up=STEPS // 6)),
    "ReduceLROnPlateau": scheduled(lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=20)),
    "LambdaLR with warmup": scheduled(lambda o: lr_scheduler.LambdaLR(o, lambda step: min(1.0, (step + 1) / 50))),
    "lr=1e-3": lambda _: in_a_loop(1e-3),
    "lr=5e-5": lambda _: in_a_loop(5e-5),
}


@functools.cache
def by_default() -> float:
    return loss_on_test_images(in_a_loop(1.0))


@torch.no_grad()
def loss_on_test_images(net: torch.nn.Module) -> float:
    return loss_of(net, data()[1].tensors).item()


REPEATS = ("CyclicLR", "ReduceLROnPlateau", "LambdaLR with warmup", "lr=1e-3")
"""What says the same as another way."""


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way in REPEATS)) for way in WAYS])
def test_a_rate_that_is_left_in_does_no_harm(way: str, tmp_path: Any) -> None:
    assert loss_on_test_images(WAYS[way](tmp_path)) <= 1.02 * by_default()
