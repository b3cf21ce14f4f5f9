"""The Trainer callback on a real, small training; the model is built from a config, nothing comes from a hub."""

from __future__ import annotations

import pytest
import torch

import surefoot.optim as sfo
from surefoot.monitor import DeltaExplosion

transformers = pytest.importorskip("transformers")
from surefoot.integrations.transformers import StabilityCallback  # noqa: E402


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        row = (torch.arange(8) * (1 + index % 3) + index) % 16
        return {"input_ids": row, "labels": row}


@pytest.fixture
def make(tmp_path):
    def make(optimizer, **options):
        transformers.set_seed(0)
        config = transformers.GPT2Config(
            vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
        )
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        model = transformers.GPT2LMHeadModel(config)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            **{
                "max_steps": 6,
                "per_device_train_batch_size": 4,
                "use_cpu": True,
                "report_to": "none",
                "save_strategy": "no",
                "disable_tqdm": True,
                "logging_strategy": "steps",
                "logging_steps": 1,
                "max_grad_norm": 0.0,
                "lr_scheduler_type": "constant",
                "dataloader_pin_memory": False,
                **options,
            },
        )
        made = optimizer(model.parameters())
        return transformers.Trainer(model, arguments, train_dataset=Tokens(), optimizers=(made, None))

    return make


MAKES = {"foreign": lambda p: torch.optim.AdamW(p, lr=1e-2), "ours": lambda p: sfo.NGN(p, lr=1.0)}


def logged(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize(("name", "accumulate"), [("foreign", 1), ("ours", 1), ("ours", 3)])
def test_every_loss_reaches_optimizer_and_monitor(make, name, accumulate):
    trainer = make(MAKES[name], gradient_accumulation_steps=accumulate)
    callback = StabilityCallback(trainer)
    trainer.add_callback(callback)
    trainer.train()
    trace = callback.monitor.trace()
    assert trace.loss.values == pytest.approx(logged(trainer), rel=1e-3)
    assert len(trace.step) == 6
    assert trace.attrs["horizon"] == 6
    if name == "ours":
        chosen = trace.sel(algorithm="ngn")
        assert chosen.counterfactual_size.values == pytest.approx(trace["size"].values, rel=1e-6)


@pytest.mark.parametrize("name", MAKES)
def test_a_step_that_is_left_out_leaves_no_loss_behind(make, name, monkeypatch):
    optimizer = pytest.importorskip("accelerate.optimizer").AcceleratedOptimizer
    step, calls = optimizer.step, []

    def as_after_an_overflow(self, closure=None):
        calls.append(closure)
        return None if len(calls) == 2 else step(self, closure)

    monkeypatch.setattr(optimizer, "step", as_after_an_overflow)
    trainer = make(MAKES[name])
    callback = StabilityCallback(trainer)
    trainer.add_callback(callback)
    trainer.train()
    losses = logged(trainer)
    assert callback.monitor.trace().loss.values == pytest.approx([losses[0], *losses[2:]], rel=1e-3)


def test_a_callback_on_a_foreign_optimizer_changes_nothing(make):
    points = []
    for watched in (False, True):
        trainer = make(MAKES["foreign"])
        callback = StabilityCallback(trainer)
        if watched:
            trainer.add_callback(callback)
        trainer.train()
        points.append(torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()]))
    assert torch.equal(*points)
    assert not callback.monitor.optimizer._optimizer_step_pre_hooks


def test_a_stop_rule_ends_the_training(make):
    trainer = make(lambda p: torch.optim.SGD(p, lr=1e4), max_steps=60)
    callback = StabilityCallback(trainer, stop=[DeltaExplosion(factor=10.0)], flush_every=2)
    trainer.add_callback(callback)
    trainer.train()
    assert trainer.state.global_step == callback.monitor.steps < 60
    assert callback.monitor.stopped is not None


def test_clipping_by_the_trainer_is_the_optimizers_own(make):
    own = make(lambda p: sfo.NGN(p, lr=1.0, max_grad_norm=0.3))
    theirs, free = make(MAKES["ours"], max_grad_norm=0.3), make(MAKES["ours"])
    theirs.add_callback(StabilityCallback(theirs))
    for trainer in (own, theirs, free):
        trainer.train()
    assert logged(theirs) == pytest.approx(logged(own), rel=1e-3)
    assert logged(free)[-1] != pytest.approx(logged(own)[-1], rel=1e-2)


def test_only_a_trainer_is_taken():
    with pytest.raises(TypeError, match="trainer"):
        StabilityCallback(object())


def test_what_the_monitor_sees_is_reported_to_tensorboard(make, tmp_path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer = make(MAKES["foreign"], report_to="tensorboard", logging_steps=2)
    callback = StabilityCallback(trainer)
    trainer.add_callback(callback)
    trainer.train()
    (file,) = (tmp_path / "board").rglob("events.out.*")
    events = accumulator.EventAccumulator(str(file.parent))
    events.Reload()
    (name,) = (tag for tag in events.Tags()["scalars"] if tag.endswith("stability/loss"))
    board = events.Scalars(name)
    assert [event.step for event in board] == [2, 4, 6]
    assert [event.value for event in board] == pytest.approx(callback.monitor.trace().loss.values[1::2].tolist())
    assert all("stability/loss" not in entry for entry in trainer.state.log_history)
