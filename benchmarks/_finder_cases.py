"""Small trainings in both frameworks, drawn once: what finders of the learning rate are compared on.

A generator with a fixed seed draws every setting that matters (network, width, optimizer, schedule, batch, clipping,
accumulation, steps). Those of ``HELD_OUT_SEED`` were drawn for the final table and looked at for nothing else; those
of ``DEVELOPMENT_SEED`` are the ones that the command was written with.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from surefoot import data

HELD_OUT_SEED, DEVELOPMENT_SEED = 23, 1
LENGTH = 32
"""Characters of a row of text."""


@dataclass(frozen=True)
class Case:
    """One training: what is trained with what."""

    name: str
    framework: str
    network: str
    """``cnn-batch``, ``cnn-group``, ``encoder``, ``resnet``, ``convnext``, ``gpt2``, ``bert``."""
    width: int
    optimizer: str
    schedule: str
    batch: int
    accumulate: int
    clip: float
    steps: int

    @property
    def lrs(self) -> list[float]:
        """The grid: nine rates, a factor of √10 apart; for plain SGD two decades higher than for the others."""
        low = -3 if self.optimizer == "sgd" else -5
        return [float(lr) for lr in np.logspace(low, low + 4, 9)]

    @property
    def is_text(self) -> bool:
        """Whether it reads characters, and not images."""
        return self.network in ("encoder", "gpt2", "bert")

    def __str__(self) -> str:
        parts = f"{self.network} {self.width}, {self.optimizer}, {self.schedule}, batch {self.batch}"
        parts += f"×{self.accumulate}" if self.accumulate > 1 else ""
        return parts + (f", clip {self.clip:g}" if self.clip else "") + f", {self.steps} steps"


def draw(seed: int) -> list[Case]:
    """Eight cases: two convolutional networks and two transformers in each framework."""
    coin = random.Random(seed)
    networks = {
        "lightning": (["cnn-batch", "cnn-group"], ["encoder", "encoder"]),
        "transformers": (["resnet", "convnext"], ["gpt2", "bert"]),
    }
    cases = []
    for framework, kinds in networks.items():
        for network in (name for kind in kinds for name in kind):
            cases.append(
                Case(
                    name=f"{framework[0]}{len(cases) % 4 + 1}",
                    framework=framework,
                    network=network,
                    width=coin.choice([16, 24, 32]),
                    optimizer=coin.choice(
                        ["adamw", "adamw", "sgd", "adafactor" if framework == "transformers" else "momentum"]
                    ),
                    schedule=coin.choice(["constant", "cosine", "linear"]),
                    batch=coin.choice([8, 16, 32]),
                    accumulate=coin.choice([1, 1, 2]),
                    clip=coin.choice([0.0, 1.0]),
                    steps=coin.choice([100, 120, 150]),
                )
            )
    return cases


class Rows(Dataset[dict[str, Tensor]]):
    """Digits, or rows of characters with labels for the network."""

    def __init__(self, case: Case) -> None:
        if case.is_text:
            codes = torch.tensor(data.characters().train[: 1000 * LENGTH].astype(np.int64)).reshape(-1, LENGTH)
            self.rows = {"input_ids": codes, "labels": codes}
        else:
            images = data.digits()
            pixels = torch.tensor(images.images.astype(np.float32)) / 255.0
            self.rows = {
                "pixel_values": F.interpolate((pixels - 0.3) / 0.4, scale_factor=2),
                "labels": torch.tensor(images.labels),
            }

    def __len__(self) -> int:
        return len(self.rows["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: values[index] for name, values in self.rows.items()}


def collate(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Stack rows."""
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def masked(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Hide one character in seven, which is to be guessed."""
    batch = collate(rows)
    hidden = torch.rand(batch["labels"].shape) < 1 / 7
    hidden[:, 0] = True
    letters = len(data.characters().vocabulary)
    return {
        "input_ids": batch["input_ids"].masked_fill(hidden, letters),
        "labels": batch["labels"].masked_fill(~hidden, -100),
    }


def network(case: Case) -> nn.Module:
    """The network at its start, the same each time."""
    torch.manual_seed(7)
    letters, width = len(data.characters().vocabulary), case.width
    if case.network.startswith("cnn"):
        return Cnn(width, case.network == "cnn-batch")
    if case.network == "encoder":
        return Encoder(letters, width)
    if case.network == "resnet":
        config = transformers.ResNetConfig(
            num_channels=1, embedding_size=width, hidden_sizes=[width, 2 * width], depths=[1, 1], layer_type="basic",
            num_labels=10,
        )  # fmt: skip
        return transformers.ResNetForImageClassification(config)
    if case.network == "convnext":
        config = transformers.ConvNextConfig(
            num_channels=1, patch_size=2, num_stages=2, hidden_sizes=[width, 2 * width], depths=[1, 1], num_labels=10
        )
        return transformers.ConvNextForImageClassification(config)
    if case.network == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=letters, n_positions=LENGTH, n_embd=width, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
        return transformers.GPT2LMHeadModel(config)
    config = transformers.BertConfig(
        vocab_size=letters + 1, hidden_size=width, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=4 * width, max_position_embeddings=LENGTH,
    )  # fmt: skip
    return transformers.BertForMaskedLM(config)


class Cnn(nn.Module):
    """Three convolutions and a mean."""

    def __init__(self, width: int, by_batch: bool) -> None:
        super().__init__()
        sizes = [1, width, width, 2 * width]
        layers: list[nn.Module] = []
        for into, out in itertools.pairwise(sizes):
            norm = nn.BatchNorm2d(out) if by_batch else nn.GroupNorm(4, out)
            layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), norm, nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * width, 10))

    def forward(self, pixel_values: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The loss."""
        return {"loss": F.cross_entropy(self.body(pixel_values), labels)}


class Encoder(nn.Module):
    """A transformer of torch that guesses the next character."""

    def __init__(self, letters: int, width: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(letters, width), nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 2, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The loss."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH - 1)
        hidden = self.layers(self.embed(input_ids[:, :-1]) + self.place[:-1], mask, is_causal=True)
        return {"loss": F.cross_entropy(self.head(hidden).flatten(0, 1), labels[:, 1:].flatten())}


class Module(pl.LightningModule):
    """A case in Lightning."""

    def __init__(self, case: Case, lr: float = 1e-3, *, bare: bool = False) -> None:
        super().__init__()
        self.case, self.lr, self.bare = case, lr, bare
        self.network = network(case)

    def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
        """The loss of a batch."""
        loss: Tensor = self.network(**batch)["loss"]
        return loss

    def configure_optimizers(self) -> Any:
        """The case's optimizer and schedule."""
        makes: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "adamw": torch.optim.AdamW,
            "sgd": torch.optim.SGD,
            "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
            "adafactor": lambda p, lr: transformers.Adafactor(p, lr=lr, scale_parameter=False, relative_step=False),
        }
        optimizer = makes[self.case.optimizer](self.parameters(), lr=self.lr)
        if self.bare or self.case.schedule == "constant":
            return optimizer
        steps = self.case.steps
        scheduler = transformers.get_scheduler(self.case.schedule, optimizer, steps // 10, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def loader(case: Case) -> DataLoader[dict[str, Tensor]]:
    """Batches in another order every epoch."""
    chosen = masked if case.network == "bert" else collate
    return DataLoader(Rows(case), case.batch, shuffle=True, drop_last=True, collate_fn=chosen)


def lightning_trainer(case: Case, *callbacks: pl.Callback, steps: int | None = None) -> pl.Trainer:
    """A quiet trainer."""
    return pl.Trainer(
        accelerator="cpu", max_steps=steps or case.steps, max_epochs=-1, accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip or None, callbacks=list(callbacks), logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, barebones=False,
    )  # fmt: skip


class Losses(transformers.Trainer):
    """A Trainer that keeps the losses of its micro batches."""

    seen: list[float]

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """One micro batch."""
        loss: Tensor = super().training_step(*args, **kwargs)
        self.seen.append(loss.item())
        return loss


def transformers_trainer(case: Case, folder: str, lr: float = 1e-3, seed: int = 0) -> Losses:
    """A quiet Trainer."""
    optim = {"adamw": "adamw_torch", "sgd": "sgd", "adafactor": "adafactor"}[case.optimizer]
    arguments = transformers.TrainingArguments(
        output_dir=folder, max_steps=case.steps, learning_rate=lr, per_device_train_batch_size=case.batch,
        gradient_accumulation_steps=case.accumulate, max_grad_norm=case.clip, lr_scheduler_type=case.schedule,
        warmup_steps=0 if case.schedule == "constant" else case.steps // 10, optim=optim, seed=seed,
        dataloader_drop_last=True, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True,
        logging_strategy="no", dataloader_pin_memory=False, remove_unused_columns=False,
    )  # fmt: skip
    chosen = masked if case.network == "bert" else collate
    trainer = Losses(network(case), arguments, train_dataset=Rows(case), data_collator=chosen)
    trainer.seen = []
    return trainer
