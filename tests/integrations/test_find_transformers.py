"""The finder for Transformers: its trainings are the Trainer's own, and their answer is that of a grid."""

from __future__ import annotations

import functools

import pytest
import torch

transformers = pytest.importorskip("transformers")

import surefoot.optim as sfo  # noqa: E402
from surefoot.integrations.transformers import find_lr  # noqa: E402
from surefoot.search import RunError  # noqa: E402

SEEN: list[float] = []
"""The losses of all micro batches."""


@pytest.fixture(autouse=True)
def fresh():
    SEEN.clear()


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count=20):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        row = (torch.arange(8) * (1 + index % 3) + index) % 16
        return {"input_ids": row, "labels": row}


class Seen(transformers.Trainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        SEEN.append(loss.item())
        return loss


@pytest.fixture
def makes(tmp_path):
    """Makes functions that make a trainer."""

    def makes(*, dropout=0.0, data=None, optimizer=None, more=None, **options):
        def network():
            transformers.set_seed(0)
            config = transformers.GPT2Config(
                vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
            )
            config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout
            return transformers.GPT2LMHeadModel(config)

        def make(lr):
            arguments = transformers.TrainingArguments(
                output_dir=str(tmp_path / "out"),
                **{
                    "max_steps": 6, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": "none",
                    "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no", "learning_rate": lr,
                    "dataloader_pin_memory": False, **options,
                },
            )  # fmt: skip
            model = network()
            given = {"optimizers": (optimizer(model, lr), None)} if optimizer else {}
            rows = Tokens() if data is None else data
            return Seen(model, arguments, train_dataset=rows, **given, **(more or {}))

        return make

    return makes


FITS = {
    "clipped, accumulated, with a schedule": {
        "max_grad_norm": 0.1, "gradient_accumulation_steps": 3, "lr_scheduler_type": "cosine", "warmup_steps": 3,
    },
    "adafactor in bfloat16, labels smoothed, activations not kept": {
        "optim": "adafactor", "bf16": True, "label_smoothing_factor": 0.2, "gradient_checkpointing": True,
        "num_train_epochs": 2, "max_steps": -1,
    },
    "an optimizer that was given": {
        "optimizer": lambda model, lr: sfo.NGNAdam(model.parameters(), lr=lr), "max_grad_norm": 0.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("options", FITS.values(), ids=FITS)
def test_a_training_of_the_search_is_the_training_at_that_rate(makes, options, tmp_path):
    """Bit for bit, though the search stops and saves it on the way: the losses of the one candidate are those there."""
    make = makes(train_sampling_strategy="sequential", **options)
    found = find_lr(make, lrs=[0.02])
    assert not list((tmp_path / "out").iterdir())
    searched = SEEN.copy()
    SEEN.clear()
    trainer = make(0.02)
    trainer.train()
    assert searched == SEEN
    assert found.steps == found.horizon == trainer.state.global_step
    assert found.run is None


def test_random_numbers_depend_on_the_seed_alone(makes):
    """Dropout and order are the same wherever the search stops, and whatever was drawn before."""
    losses = {}
    for horizon, seed in ((4, 0), (3, 0), (3, 1)):
        make = makes(dropout=0.3, lr_scheduler_type="constant")
        find_lr(make, lrs=[0.02], horizon=horizon, seeds=[seed])
        losses[horizon, seed] = SEEN.copy()
        SEEN.clear()
    assert losses[4, 0][:3] == losses[3, 0] != losses[3, 1]


def test_a_rate_that_diverges_is_not_the_answer(makes):
    found = find_lr(makes(optim="sgd", max_grad_norm=0.0), lrs=[1e-2, 1e30])
    assert found.lr == 1e-2
    assert "diverged" in str(found.table)


def test_a_plateau_scheduler_counts_as_none(makes):
    options = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": 3}
    assert find_lr(makes(more={"eval_dataset": Tokens()}, **options), lrs=[1e-2]).horizon == 6


def on_no_data(makes):
    def make(lr):
        trainer = makes()(lr)
        trainer.train_dataset = None
        return trainer

    return make


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lrs": "many"}, "lrs"),
        ({"horizon": 2.5}, "horizon"),
        ({"horizon": 7}, "6 steps"),
        ({"objective": "bound"}, "'objective'"),
        ({"make": lambda makes: makes()(0.1)}, "make must be a function"),
        ({"make": lambda makes: lambda lr: None}, "transformers.Trainer"),
        ({"make": lambda makes: functools.cache(makes())}, "new objects whenever .* the same Seen twice"),
        ({"make": on_no_data}, "train_dataset=None"),
        ({"make": lambda makes: makes(data=Tokens(0))}, "num_samples=0|at least one"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(makes, options, match):
    make = options.pop("make", lambda makes: makes())
    with pytest.raises((ValueError, TypeError, RunError), match=match):
        find_lr(make(makes), **{"lrs": [0.01], **options})
