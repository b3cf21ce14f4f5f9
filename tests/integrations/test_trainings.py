"""The trainings of a search in Lightning: each is the trainer's own fit at its rate, and none disturbs another."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("lightning.pytorch")
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from tests.integrations.lightning_cases import KNOWN_WARNINGS, SEEN, Module, Rows, loader

import surefoot.optim as sfo
from surefoot.integrations.lightning import find_lr

pytestmark = KNOWN_WARNINGS


def one_cycle(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=module.lr, momentum=0.9)
    steps = module.trainer.estimated_stepping_batches
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=module.lr, total_steps=steps)
    return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def by_epoch(module):
    groups = [
        {"params": module.net[0].parameters(), "lr": 0.1 * module.lr},
        {"params": [*module.net[1].parameters(), *module.net[3].parameters()]},
    ]
    optimizer = torch.optim.AdamW(groups, lr=module.lr)
    return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


def in_sequence(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=module.lr)
    parts = [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 11),
    ]
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, milestones=[4])
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def partly_frozen(module):
    module.net[1].eval()
    return torch.optim.AdamW(module.parameters(), lr=module.lr)


FITS = {
    "plain": (None, {}),
    "a part that is not in training mode": (partly_frozen, {}),
    "clipped and accumulated": (None, {"gradient_clip_val": 0.1, "accumulate_grad_batches": 3}),
    "bfloat16": (None, {"precision": "bf16-mixed"}),
    "float64": (None, {"precision": "64-true"}),
    "one cycle": (one_cycle, {}),
    "groups, a scheduler of epochs": (by_epoch, {}),
    "schedulers in sequence": (in_sequence, {}),
    "ours": (lambda module: sfo.NGN(module.parameters(), lr=module.lr), {}),
    "ours, with a cap": (lambda module: sfo.Surefoot(module.parameters(), lr=module.lr), {}),
    "limited": (None, {"limit_train_batches": 3}),
    "accumulation by epoch": (None, {"callbacks": lambda: [GradientAccumulationScheduler({0: 1, 1: 2})]}),
    "steps": (None, {"max_epochs": -1, "max_steps": 12}),
}


@pytest.mark.parametrize(("make", "options"), FITS.values(), ids=FITS)
def test_a_training_of_the_search_is_the_fit_at_that_rate(make_trainer, make, options):
    """Bit for bit: the losses of the one candidate are those of a fit with this rate."""
    options = {name: value() if name == "callbacks" else value for name, value in options.items()}
    trainer, module = make_trainer(**options), Module(make, lr=0.003)
    horizon = 8 if "callbacks" in options else None
    data = loader()
    found = find_lr(trainer, module, train_dataloaders=data, lrs=[0.02], horizon=horizon)
    searched = SEEN.copy()
    SEEN.clear()
    module.lr = 0.02
    trainer.fit(module, data)
    assert len(searched) > 5
    assert searched == SEEN[: len(searched)]
    assert len(searched) == len(SEEN) or horizon
    assert found.steps == (horizon or trainer.global_step)


def test_a_buffer_may_be_expanded_and_what_was_validated_an_inference_tensor(make_trainer):
    module, trainer = Module(), make_trainer()
    module.register_buffer("mask", torch.ones(4).expand(8, 4))
    trainer.validate(module, loader(), verbose=False)
    assert trainer.callback_metrics["val_loss"].is_inference()
    find_lr(trainer, module, train_dataloaders=loader(), val_dataloaders=loader(), lrs=[0.01, 0.1])
    assert module.mask.stride() == (0, 1)
    assert torch.equal(module.mask, torch.ones(8, 4))


def test_trainings_take_turns_without_disturbing_each_other(make_trainer):
    """Put aside in memory or on disk, with dropout and noise of four kinds: the same numbers."""
    tables = []
    for states in (1, 8):
        found = find_lr(
            make_trainer(), Module(one_cycle, dropout=0.3), train_dataloaders=loader(0.5, shuffle=True),
            lrs=[1e-3, 1e-2, 1e-1], max_states=states,
        )  # fmt: skip
        tables.append(found.table)
    assert tables[0] == tables[1]


class CutShort(Module):
    def on_train_batch_start(self, batch, index):
        return -1 if index == 3 else None


def test_epochs_that_the_module_cuts_short(make_trainer):
    """Three batches an epoch, in the search as in the fit, also of trainings that waited on disk."""
    trainer, module, data = make_trainer(max_steps=8, max_epochs=-1), CutShort(lr=0.003), loader()
    find_lr(trainer, module, train_dataloaders=data, lrs=[0.02], set_lr=True)
    assert module.lr == 0.02
    searched = SEEN.copy()
    SEEN.clear()
    trainer.fit(module, data)
    assert searched == SEEN
    tables = [
        find_lr(trainer, CutShort(), train_dataloaders=data, lrs=[1e-3, 1e-2, 1e-1], max_states=states).table
        for states in (1, 8)
    ]
    assert tables[0] == tables[1]


def test_a_seed_is_an_order_of_the_data(make_trainer):
    losses = []
    for seed in (0, 0, 1):
        data = loader(shuffle=True, generator=torch.Generator().manual_seed(7))
        losses.append(find_lr(make_trainer(), Module(), train_dataloaders=data, lrs=[0.01], seeds=[seed]).loss)
    assert losses[0] == losses[1] != losses[2]


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def test_a_stream_that_begins_anew_is_searched_with(make_trainer):
    rows = Rows()
    data = torch.utils.data.DataLoader(Stream([rows[i] for i in range(40)]), batch_size=8)
    told = []
    options = {"train_dataloaders": data, "lrs": [1e-3, 1e-2], "progress": told.append}
    found = find_lr(make_trainer(max_steps=12), Module(), **options)
    assert found.horizon == 12
    assert told[-1] == found.steps


@pytest.mark.parametrize("rows", [40, 4])
def test_a_stream_that_can_be_read_once_is_refused(make_trainer, rows):
    items = Rows(count=rows)
    data = torch.utils.data.DataLoader(Stream(items[i] for i in range(rows)), batch_size=4)
    with pytest.raises(ValueError, match=r"training data must .* got (two first batches that differ|none)"):
        find_lr(make_trainer(max_steps=6), Module(), train_dataloaders=data, lrs=[1e-3])
