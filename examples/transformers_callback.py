"""Transformers: Surefoot takes the place of the Trainer's AdamW, and a callback ends hopeless runs."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import surefoot.optim as sfo
from surefoot.integrations.transformers import StabilityCallback
from surefoot.monitor import NonFinite

rows = [(torch.arange(16) * (1 + index % 3) + index) % 32 for index in range(64)]
data = [{"input_ids": row, "labels": row} for row in rows]
config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)  # built here; nothing comes from a hub

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=20, per_device_train_batch_size=8, use_cpu=True, report_to="none", save_strategy="no",
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    optimizer = sfo.Surefoot(model.parameters())  # follows the Trainer's schedule
    trainer = Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, None))
    callback = StabilityCallback(trainer, stop=[NonFinite()])
    trainer.add_callback(callback)
    trainer.train()
print(callback.monitor.verdict())
