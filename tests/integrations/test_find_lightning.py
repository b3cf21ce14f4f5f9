"""The finder for Lightning: its trainings are Lightning's own, and their answer is that of a grid."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import surefoot.optim as sfo
import surefoot.search

pl = pytest.importorskip("lightning.pytorch")
from surefoot.integrations.lightning import find_lr  # noqa: E402
from surefoot.search import RunError  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning against a newer torch
    pytest.mark.filterwarnings("ignore:.*(many workers|no `val_data|_step` but|not configured):UserWarning"),
]

SEEN: list[float] = []
"""The losses of all training steps."""


@pytest.fixture(autouse=True)
def fresh():
    SEEN.clear()


class Module(pl.LightningModule):
    def __init__(self, configure=None, lr=0.05, dropout=0.0):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1)
        )
        self.lr, self.configure = lr, configure

    def training_step(self, batch, _):
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        if self.trainer.num_training_batches < float("inf"):  # Lightning goes on with wrong epochs without a length
            loss = loss * (1 + 0.1 * self.current_epoch)
        SEEN.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr) if self.configure is None else self.configure(self)


class Rows(torch.utils.data.Dataset):
    """Items with noise from NumPy's global generator."""

    def __init__(self, noise, count):
        self.inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
        self.noise = noise

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        row = self.inputs[index]
        return row + self.noise * np.random.randn(), row.sum(0, keepdim=True).sin()  # noqa: NPY002


def loader(noise=0.0, count=40, **options):
    return torch.utils.data.DataLoader(Rows(noise, count), **{"batch_size": 8, **options})


@pytest.fixture
def makes(tmp_path):
    """Makes functions that make a trainer, a module and its data."""

    def makes(configure=None, dropout=0.0, data=loader, **options):
        def make(lr):
            trainer = pl.Trainer(
                **{
                    "accelerator": "cpu", "max_epochs": 3, "default_root_dir": tmp_path, "logger": False,
                    "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
                    **options,
                }
            )  # fmt: skip
            return trainer, Module(configure, lr, dropout), data()

        return make

    return makes


def one_cycle(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=module.lr, momentum=0.9)
    steps = module.trainer.estimated_stepping_batches
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=module.lr, total_steps=steps)
    return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def by_epoch(module):
    optimizer = torch.optim.AdamW(module.parameters(), lr=module.lr)
    return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


class Stream(torch.utils.data.IterableDataset):
    """Rows without a length."""

    def __iter__(self):
        rows = Rows(0.0, 40)
        return (rows[index] for index in range(len(rows)))


FITS = {
    "one cycle": {"configure": one_cycle},
    "a scheduler of epochs; a leg ends with an epoch": {"configure": by_epoch, "data": lambda: loader(count=32)},
    "clipped and accumulated": {"configure": by_epoch, "gradient_clip_val": 0.1, "accumulate_grad_batches": 3},
    "steps and no epochs; a leg ends with one": {
        "max_epochs": -1, "max_steps": 12, "data": lambda: loader(count=32), "precision": "bf16-mixed",
    },
    "a part of each epoch": {"limit_train_batches": 4, "max_epochs": 4},
    "a stream": {"max_steps": 12, "data": lambda: torch.utils.data.DataLoader(Stream(), batch_size=8)},
}  # fmt: skip


@pytest.mark.parametrize("options", FITS.values(), ids=FITS)
def test_a_training_of_the_search_is_the_fit_at_that_rate(makes, options):
    """Bit for bit, though the search stops and saves it on the way: the one candidate has the losses of a fit."""
    make = makes(**options)
    found = find_lr(make, lrs=[0.02])
    searched = SEEN.copy()
    SEEN.clear()
    trainer, module, data = make(0.02)
    trainer.fit(module, data)
    assert searched == SEEN
    assert found.steps == found.horizon == trainer.global_step


def test_random_numbers_depend_on_the_seed_alone(makes):
    """Dropout, order and noise are the same wherever the search stops, and whatever was drawn before."""

    def shuffled():
        return loader(0.5, shuffle=True, generator=torch.Generator().manual_seed(int(torch.randint(99, ()))))

    losses = {}
    for horizon, seed in ((15, 0), (9, 0), (9, 1)):
        find_lr(makes(dropout=0.3, data=shuffled), lrs=[0.02], horizon=horizon, seeds=[seed])
        losses[horizon, seed] = SEEN.copy()
        SEEN.clear()
    assert losses[15, 0][:9] == losses[9, 0]
    assert losses[9, 0] != losses[9, 1]


class Threads(Module):
    def training_step(self, batch, index):
        assert torch.get_num_threads() == 2
        return super().training_step(batch, index)


def test_a_search_leaves_threads_and_global_random_numbers_alone(makes):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    try:
        find_lr(lambda lr: (makes()(lr)[0], Threads(lr=lr), loader()), lrs=[0.01], horizon=2)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(state, torch.get_rng_state())
    assert np.random.get_state()[1].tolist() == legacy  # noqa: NPY002


def test_rates_may_be_left_out_and_one_may_diverge(makes):
    assert 1e-3 < find_lr(makes(max_epochs=1), refine=0).lr < 1.0
    found = find_lr(makes(lambda m: torch.optim.SGD(m.parameters(), lr=m.lr), max_epochs=8), lrs=[1e-2, 1e30])
    assert found.lr == 1e-2
    assert "diverged" in str(found.table)
    assert found.run is None


def test_the_search_sees_the_schedule(makes, monkeypatch):
    seen = []

    def tune(*args, schedule, **options):
        seen.append(schedule)
        return surefoot.search.tune(*args, schedule=schedule, **options)

    monkeypatch.setattr("surefoot.integrations._find.tune", tune)
    for configure in (one_cycle, by_epoch):
        find_lr(makes(configure, accumulate_grad_batches=3), lrs=[0.1])
    assert seen[0] == pytest.approx([0.04, 1.0, 0.816, 0.465, 0.134, 0.0], abs=0.01)
    assert seen[1] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_a_trainer_is_made_once_per_part_and_not_once_per_step(makes):
    """Each one would read a checkpoint and write another."""
    make, made = makes(), []
    find_lr(lambda lr: made.append(lr) or make(lr), lrs=[0.01, 0.02])
    assert len(made) < 16  # of up to 30 steps


class Ending(pl.Callback):
    def on_train_start(self, trainer, *_):
        trainer.should_stop = True


class Silent(Module):
    def training_step(self, batch, index):
        super().training_step(batch, index)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lrs": [-1.0, 1.0]}, r"lrs\[0\]"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 16}, "15 steps"),
        ({"store": "here"}, "'store'"),
        ({"make": "trainer"}, "make must be a function"),
        ({"make": lambda makes: lambda lr: makes()(lr)[:2]}, r"\(trainer, module, loader\)"),
        ({"make": lambda makes: lambda lr: (None, *makes()(lr)[1:])}, r"\(trainer, module, loader\)"),
        ({"make": lambda makes: lambda lr: (*makes()(lr)[:2], [])}, "batches"),
        ({"make": lambda makes: functools.cache(makes())}, "new objects whenever .* the same Trainer twice"),
        ({"make": lambda makes: makes(devices=2, strategy="ddp")}, "one device"),
        ({"make": lambda makes: makes(lambda m: None)}, "must have an optimizer, got none"),
        ({"make": lambda makes: makes(lambda m: sfo.Surefoot(m.parameters()))}, "got Surefoot, which needs none"),
        ({"make": lambda makes: makes(max_epochs=-1)}, "horizon must be given"),
        ({"make": lambda makes: makes(callbacks=[Ending()])}, "ended at step 0"),
        ({"make": lambda makes: lambda lr: (makes()(lr)[0], Silent(), loader())}, "training_step must return its loss"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(max_epochs|Total length|was zero|returned `None`).*:UserWarning")
def test_what_cannot_be_right_is_refused_by_name(makes, options, match):
    make = options.pop("make", lambda makes: makes())
    with pytest.raises((ValueError, TypeError, RunError), match=match):
        find_lr(make if isinstance(make, str) else make(makes), **{"lrs": [0.01], **options})
