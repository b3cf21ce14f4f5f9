"""Frameworks that call step() without a loss: it is heard, and training is that of a loop that hands it over."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import surefoot.optim as sfo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(48, 4, generator=GENERATOR)
DATA = torch.utils.data.TensorDataset(INPUTS, INPUTS.sum(1, keepdim=True).sin())
BATCH = 8


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def loss_of(net: torch.nn.Module, batch: Any) -> torch.Tensor:
    return (net(batch[0]) - batch[1]).square().mean()


def expected(parts: int) -> list[torch.Tensor]:
    """A loop that hands the sum of the micro batches' losses over."""
    net = network()
    optimizer = sfo.NGN(net.parameters(), lr=5.0, listen=False)
    batches = list(torch.utils.data.DataLoader(DATA, batch_size=BATCH))
    for start in range(0, len(batches), parts):
        optimizer.zero_grad()
        for batch in batches[start : start + parts]:
            loss = loss_of(net, batch) / parts
            loss.backward()
            optimizer.add_loss(loss)
        optimizer.step()
    return [p.detach() for p in net.parameters()]


def check(net: torch.nn.Module, parts: int) -> None:
    for got, wanted in zip(net.parameters(), expected(parts), strict=True):
        torch.testing.assert_close(got.detach(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parts", [1, 3])
def test_accelerate(parts: int) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=parts)
    net = network()
    optimizer = sfo.NGN(net.parameters(), lr=5.0)
    loader = torch.utils.data.DataLoader(DATA, batch_size=BATCH)
    model, prepared, loader = accelerator.prepare(net, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, batch))
            prepared.step()
            prepared.zero_grad()
    check(net, parts)


def fit(module: Any, folder: Any, **options: Any) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )
    trainer.fit(module, torch.utils.data.DataLoader(DATA, batch_size=BATCH))


def lightning_module(manual: str | None) -> Any:
    pl = pytest.importorskip("lightning.pytorch")

    class Module(pl.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()
            self.automatic_optimization = manual is None

        def configure_optimizers(self) -> Any:
            return sfo.NGN(self.parameters(), lr=5.0)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = loss_of(self.net, batch)
            if manual is None:
                return loss
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            if manual == "added":
                optimizer.add_loss(loss)
            optimizer.step()
            return None

    return Module()


@pytest.mark.parametrize("parts", [1, 3])
def test_lightning_automatic(parts: int, tmp_path: Any) -> None:
    module = lightning_module(None)
    fit(module, tmp_path, accumulate_grad_batches=parts)
    check(module.net, parts)


@pytest.mark.parametrize("how", ["heard", "added"])
def test_lightning_manual(how: str, tmp_path: Any) -> None:
    module = lightning_module(how)
    fit(module, tmp_path)
    check(module.net, 1)


@pytest.mark.parametrize("parts", [1, 3])
def test_transformers(parts: int, tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": loss_of(self.net, (inputs, labels))}

    model = Model()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=parts,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        train_sampling_strategy="sequential",
    )
    rows = [{"inputs": x, "labels": y} for x, y in DATA]
    optimizer = sfo.NGN(model.parameters(), lr=5.0)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, None))
    trainer.train()
    assert optimizer.param_groups[0]["memory"][0] == 6 / parts  # its steps
    check(model.net, parts)
