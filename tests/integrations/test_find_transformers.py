"""The finder inside Transformers: its trainings are the Trainer's own, and nothing is left of them."""

from __future__ import annotations

import random
import signal

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

import surefoot.optim as sfo  # noqa: E402
from surefoot.integrations.transformers import find_lr  # noqa: E402
from surefoot.search import Found, RunError  # noqa: E402

SEEN: list[float] = []
"""The losses of all micro batches."""


@pytest.fixture(autouse=True)
def fresh():
    SEEN.clear()


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count=28):
        self.count, self.read = count, 0
        self.own = random.Random(0)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read += 1
        row = (torch.arange(8) * (1 + index % 3) + index + self.own.randrange(2)) % 16
        return {"input_ids": row, "labels": row}


class Seen(transformers.Trainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        SEEN.append(loss.item())
        return loss


class Counting(transformers.TrainerCallback):
    def __init__(self):
        self.calls = 0

    def on_step_end(self, *_, **__):
        self.calls += 1


@pytest.fixture
def make(tmp_path):
    def make(*, dropout=0.0, data=None, optimizer=None, trainer=Seen, more=None, **options):
        def network():
            config = transformers.GPT2Config(
                vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
            )
            config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout
            return transformers.GPT2LMHeadModel(config)

        transformers.set_seed(0)
        model = network()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            **{
                "max_steps": 12,
                "per_device_train_batch_size": 4,
                "use_cpu": True,
                "report_to": "none",
                "save_strategy": "no",
                "disable_tqdm": True,
                "logging_strategy": "no",
                "dataloader_pin_memory": False,
                **options,
            },
        )
        given = {"optimizers": (optimizer(model), None)} if optimizer else {}
        more = more or {}
        if "model_init" in more:
            model, more = None, {"model_init": network}
        return trainer(model, arguments, train_dataset=Tokens() if data is None else data, **given, **more)

    return make


def weights(trainer):
    return torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()])


def everything(trainer):
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    handler, accelerator = trainer.callback_handler, trainer.accelerator
    return {
        "tensors": {name: (t.data_ptr(), t.numpy().tobytes()) for name, t in trainer.model.state_dict().items()},
        "gradients": [None if p.grad is None else p.grad.numpy().tobytes() for p in trainer.model.parameters()],
        "modes": [part.training for part in trainer.model.modules()],
        "model": (sorted(vars(trainer.model)), id(trainer.model), id(trainer.model_wrapped)),
        "trainer": (sorted(vars(trainer)), trainer.optimizer, trainer.lr_scheduler, trainer.is_in_train),
        "state": repr(trainer.state),
        "control": repr(trainer.control),
        "arguments": trainer.args.to_json_string(),
        "callbacks": ([(id(c), repr(vars(c))) for c in handler.callbacks], handler.optimizer, handler.train_dataloader),
        "accelerator": [len(x) for x in (accelerator._models, accelerator._optimizers, accelerator._dataloaders)],
        "gradient state": repr(accelerator.gradient_state),
        "data": (trainer.train_dataset.read, trainer.train_dataset.own.getstate()),
        "random": (random.getstate(), kind, keys.tolist(), rest, torch.get_rng_state().tolist()),
    }


def test_nothing_is_left_of_a_search(make):
    trainer = make(dropout=0.1, bf16=True, gradient_accumulation_steps=2, label_smoothing_factor=0.1)
    trainer.add_callback(Counting())
    before = everything(trainer)
    found = find_lr(trainer, lrs=[1e-3, 1e-2, 1e-1])
    assert isinstance(found, Found)
    assert found.horizon == 12
    assert everything(trainer) == before


def test_a_training_after_a_search_is_the_training_without_it(make):
    ends = []
    for searched in (False, True):
        trainer = make(dropout=0.1)
        callback = Counting()
        trainer.add_callback(callback)
        transformers.set_seed(5)
        if searched:
            find_lr(trainer, lrs=[1e-3, 1e-1])
        trainer.train()
        assert callback.calls == trainer.state.global_step == 12
        ends.append(weights(trainer))
    assert torch.equal(*ends)


class Boom(Exception):
    pass


@pytest.mark.parametrize("how", ["error", "interrupt", "signal"])
def test_nothing_is_left_of_a_search_that_fails(make, how):
    class Failing(Seen):
        def compute_loss(self, *args, **kwargs):
            if len(SEEN) == 15:
                if how == "error":
                    raise Boom
                if how == "signal":
                    signal.raise_signal(signal.SIGINT)
                raise KeyboardInterrupt
            return super().compute_loss(*args, **kwargs)

    trainer = make(trainer=Failing)
    before = everything(trainer)
    with pytest.raises(RunError if how == "error" else KeyboardInterrupt, match="Boom" if how == "error" else None):
        find_lr(trainer, lrs=[1e-3, 1e-2])
    assert everything(trainer) == before


ORDERED = {"train_sampling_strategy": "sequential", "num_train_epochs": 2, "max_steps": -1}
FITS = {
    "plain": {},
    "clipped, accumulated, with a schedule": {
        "max_grad_norm": 0.1,
        "gradient_accumulation_steps": 3,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 3,
    },
    "bfloat16, labels smoothed, activations not kept": {
        "bf16": True,
        "label_smoothing_factor": 0.2,
        "gradient_checkpointing": True,
    },
    "adafactor, noise on embeddings": {"optim": "adafactor", "neftune_noise_alpha": 1e-12},
}


class Quiet(Tokens):
    def __getitem__(self, index):
        row = (torch.arange(8) * (1 + index % 3) + index) % 16
        return {"input_ids": row, "labels": row}


@pytest.mark.parametrize("options", FITS.values(), ids=FITS)
def test_a_training_of_the_search_is_the_training_at_that_rate(make, options):
    """Bit for bit: the losses of the one candidate are those of ``train()`` with this rate."""
    trainer = make(data=Quiet(), **ORDERED, **options)
    find_lr(trainer, lrs=[0.02], set_lr=True)
    searched = SEEN.copy()
    SEEN.clear()
    assert trainer.args.learning_rate == 0.02
    trainer.train()
    assert len(searched) == 14
    assert searched == SEEN


@pytest.mark.parametrize("ours", [False, True])
def test_an_optimizer_that_was_given_keeps_its_proportions(make, ours):
    def optimizer(lr):
        def made(model):
            groups = [
                {"params": model.transformer.wte.parameters(), "lr": lr},
                {"params": model.transformer.h.parameters()},
            ]
            return sfo.NGNAdam(groups, lr=3 * lr) if ours else torch.optim.AdamW(groups, lr=3 * lr)

        return made

    options = {"data": Quiet(), "lr_scheduler_type": "constant", **ORDERED, "max_grad_norm": 0.0}
    trainer = make(optimizer=optimizer(1e-4), **options)
    find_lr(trainer, lrs=[0.01])
    searched = SEEN.copy()
    SEEN.clear()
    with pytest.raises(ValueError, match="set_lr"):
        find_lr(trainer, lrs=[0.01], set_lr=True)
    make(optimizer=optimizer(0.01), **options).train()
    assert searched == pytest.approx(SEEN, rel=1e-6)


def test_a_model_that_train_makes_anew_is_searched_from_its_start(make):
    trainer = make(data=Quiet(), more={"model_init": True}, **ORDERED)
    model = trainer.model
    find_lr(trainer, lrs=[0.02], set_lr=True)
    assert trainer.model is model
    searched = SEEN.copy()
    SEEN.clear()
    trainer.train()
    assert searched == SEEN


def test_trainings_take_turns_without_disturbing_each_other(make):
    tables = [find_lr(make(dropout=0.2), lrs=[1e-3, 1e-2, 1e-1], max_states=states).table for states in (1, 8)]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("data_seed", [None, 3])
def test_a_seed_is_an_order_of_the_data(make, data_seed):
    options = {"data": Quiet(), "data_seed": data_seed, "max_steps": 4}
    losses = [find_lr(make(**options), lrs=[0.01], seeds=[seed]).loss for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_a_metric_of_evaluation_decides(make):
    trainer = make(more={"eval_dataset": Quiet()})
    found = find_lr(trainer, lrs=[1e-3, 1e-2, 1e-1], evaluate="eval_loss")
    assert found.lr > 1e-3
    with pytest.raises(RunError, match=r"eval_loss.* got 'nothing'"):
        find_lr(trainer, lrs=[1e-3], evaluate="nothing")


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def test_a_stream_is_searched_with_if_it_begins_anew(make):
    rows = [Quiet()[i] for i in range(28)]
    assert find_lr(make(data=Stream(rows)), lrs=[1e-3, 1e-2]).horizon == 12
    with pytest.raises(ValueError, match=r"training data must .* got (two first batches that differ|none)"):
        find_lr(make(data=Stream(iter(rows))), lrs=[1e-3])


def test_a_plateau_scheduler_is_left_out_and_named(make):
    trainer = make(lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="steps", more={"eval_dataset": Quiet()})
    found = find_lr(trainer, lrs=[1e-2])
    assert any("ReduceLROnPlateau" in note for note in found.warnings)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lrs": [0.0]}, r"lrs\[0\]"),
        ({"lrs": "many"}, "lrs"),
        ({"horizon": 2.5}, "horizon"),
        ({"horizon": 13}, "12 steps"),
        ({"evaluate": "eval_loss"}, "eval_dataset"),
        ({"processes": 4}, "processes must be 1"),
        ({"objective": "loss"}, "'objective'"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(make, options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        find_lr(make(), **{"lrs": [0.01], **options})
    assert not SEEN


def test_a_trainer_without_data_is_refused(make):
    trainer = make()
    trainer.train_dataset = None
    with pytest.raises(ValueError, match="train_dataset=None"):
        find_lr(trainer)
    with pytest.raises(ValueError, match="empty"):
        find_lr(make(data=Tokens(0)))
    with pytest.raises(TypeError, match="trainer"):
        find_lr(object())
