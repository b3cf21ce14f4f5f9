"""The finder inside Lightning: its trainings are the trainer's own, and nothing is left of them."""

from __future__ import annotations

import random
import signal

import numpy as np
import pytest
import torch

pl = pytest.importorskip("lightning.pytorch")
from lightning.pytorch.callbacks import EarlyStopping, GradientAccumulationScheduler  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

import surefoot.optim as sfo  # noqa: E402
from surefoot.integrations.lightning import find_lr  # noqa: E402
from surefoot.search import Found, RunError  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning against a newer torch
    pytest.mark.filterwarnings("ignore:.*(many workers|log_every_n_steps|no `val_data|in eval mode):UserWarning"),
]


class Rows(torch.utils.data.Dataset):
    """Items with noise from the global generators and from a generator of their own."""

    def __init__(self, noise=0.0, count=40):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(count, 4, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True).sin()
        self.noise, self.read = noise, 0
        self.own = np.random.default_rng(0)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        self.read += 1
        noise = random.gauss() + np.random.randn() + self.own.normal() + torch.randn(()).item()  # noqa: NPY002
        return self.inputs[index] + self.noise * noise, self.targets[index]


class Module(pl.LightningModule):
    def __init__(self, make=None, lr=0.05, dropout=0.0):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1)
        )
        self.lr, self.make = lr, make
        self.count, self.epochs = 0, []

    def training_step(self, batch, _):
        inputs, targets = batch
        self.count += 1
        loss = (self.net(inputs) - targets).square().mean() * (1 + 0.01 * min(self.count, 5))
        self.log("train_loss", loss, on_epoch=True)
        SEEN.append(loss.item())
        return loss

    def on_train_epoch_end(self):
        self.epochs.append(self.current_epoch)

    def validation_step(self, batch, _):
        inputs, targets = batch
        loss = (self.net(inputs) - targets).square().mean()
        self.log_dict({"val_loss": loss, "goodness": -loss})

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr) if self.make is None else self.make(self)


SEEN: list[float] = []
"""The losses of all training steps, which no snapshot knows of."""


@pytest.fixture(autouse=True)
def fresh():
    SEEN.clear()


@pytest.fixture
def make_trainer(tmp_path):
    def make(**options):
        quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        return pl.Trainer(
            **{"accelerator": "cpu", "max_epochs": 3, "default_root_dir": tmp_path, "logger": False, **quiet, **options}
        )

    return make


def loader(noise=0.0, **options):
    return torch.utils.data.DataLoader(Rows(noise), **{"batch_size": 8, **options})


def weights(module):
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in module.state_dict().values()])


def everything(trainer, module, data):
    """What can be told of all parts; independent of how the finder restores."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "tensors": {name: (t.data_ptr(), t.numpy().tobytes()) for name, t in module.state_dict().items()},
        "gradients": [None if p.grad is None else p.grad.numpy().tobytes() for p in module.parameters()],
        "modes": [part.training for part in module.modules()],
        "module": (module.count, list(module.epochs), module.lr, sorted(vars(module)), module._trainer),
        "callbacks": (
            id(trainer.callbacks),
            [repr(vars(c)) for c in trainer.callbacks],
            list(map(id, trainer.loggers)),
        ),
        "loops": (trainer.fit_loop.state_dict(), trainer.global_step, trainer.current_epoch, str(trainer.state)),
        "trainer": (trainer.limit_val_batches, id(trainer.profiler), sorted(vars(trainer)), trainer.should_stop),
        "strategy": (list(map(id, trainer.optimizers)), trainer.lr_scheduler_configs, trainer.training),
        "data": (sorted(vars(data)), data.num_workers, data.dataset.read, data.dataset.own.bit_generator.state),
        "order": None if data.generator is None else data.generator.get_state().tolist(),
        "random": (random.getstate(), kind, keys.tolist(), rest, torch.get_rng_state().tolist()),
        "grad mode": torch.is_grad_enabled(),
    }


class Counting(pl.Callback):
    def __init__(self):
        self.calls = 0

    def on_train_batch_end(self, *_):
        self.calls += 1


@pytest.fixture
def parts(make_trainer, tmp_path):
    """A trainer with all that could be touched, its module and its data."""

    def make():
        callbacks = [Counting(), EarlyStopping("train_loss", patience=50)]
        trainer = make_trainer(callbacks=callbacks, logger=CSVLogger(tmp_path), log_every_n_steps=1)
        data = loader(0.1, shuffle=True, generator=torch.Generator().manual_seed(3))
        return trainer, Module(dropout=0.2), data

    return make


def test_nothing_is_left_of_a_search(parts):
    trainer, module, data = parts()
    before = everything(trainer, module, data)
    found = find_lr(trainer, module, train_dataloaders=data, lrs=[1e-3, 1e-2, 1e-1])
    assert isinstance(found, Found)
    assert found.horizon == 15
    assert everything(trainer, module, data) == before


def test_a_fit_after_a_search_is_the_fit_without_it(parts):
    ends = []
    for searched in (False, True):
        trainer, module, data = parts()
        pl.seed_everything(5, verbose=False)
        if searched:
            find_lr(trainer, module, train_dataloaders=data, lrs=[1e-3, 1e-1])
        trainer.fit(module, data)
        ends.append(weights(module))
        assert trainer.callbacks[0].calls == 15
    assert torch.equal(*ends)


class Boom(Exception):
    pass


@pytest.mark.parametrize("how", ["error", "interrupt", "signal", "in setup"])
def test_nothing_is_left_of_a_search_that_fails(parts, how):
    trainer, module, data = parts()

    def fail(loss):
        if len(SEEN) == 20:
            if how == "error":
                raise Boom
            if how == "signal":
                signal.raise_signal(signal.SIGINT)
            raise KeyboardInterrupt

    def interrupt():
        raise KeyboardInterrupt

    if how == "in setup":
        module.configure_model = interrupt
    else:
        module.on_before_backward = fail
    before = everything(trainer, module, data)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(RunError if how == "error" else KeyboardInterrupt, match="Boom" if how == "error" else None):
        find_lr(trainer, module, train_dataloaders=data, lrs=[1e-3, 1e-2])
    assert everything(trainer, module, data) == before
    assert signal.getsignal(signal.SIGINT) is handler


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


def test_rates_may_be_left_out(make_trainer):
    found = find_lr(make_trainer(), Module(), train_dataloaders=loader())
    assert 1e-3 < found.lr < 1.0
    assert "lr = " in str(found)


def test_the_rate_has_the_units_of_the_attribute_or_of_the_first_group(make_trainer):
    def found(module, lrs=(0.02,)):
        return find_lr(make_trainer(), module, train_dataloaders=loader(), lrs=lrs).loss

    def at(first):
        def make(module):
            groups = [{"params": module.net[0].parameters(), "lr": first}, {"params": module.net[3].parameters()}]
            return torch.optim.AdamW(groups, lr=10 * first)

        return make

    # Nobody uses 7, and the first group counts; 0.01 is the rate of the second group.
    assert found(Module(at(0.001), lr=7.0)) == found(Module(at(0.02), lr=7.0))
    assert found(Module(at(0.001), lr=0.01)) == found(Module(at(0.001), lr=7.0), [0.002])


def test_a_metric_of_validation_decides(make_trainer):
    options = {"train_dataloaders": loader(), "val_dataloaders": loader(), "lrs": [1e-3, 1e-2, 1e-1]}
    small = find_lr(make_trainer(), Module(), evaluate="val_loss", **options)
    large = find_lr(make_trainer(), Module(), evaluate="goodness", maximize=True, **options)
    assert small.lr == large.lr
    assert small.loss == pytest.approx(-large.score)
    with pytest.raises(RunError, match=r"goodness, .*val_loss.* got 'nothing'"):
        find_lr(make_trainer(), Module(), evaluate="nothing", **options)


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


def test_workers_of_a_loader_go_on(make_trainer):
    data = loader(num_workers=1, persistent_workers=True)
    iterator = iter(data)
    first = next(iterator)[0]
    find_lr(make_trainer(), Module(), train_dataloaders=data, lrs=[1e-3])
    assert data._iterator is iterator
    assert len(list(iterator)) == 4
    assert torch.equal(next(iter(data))[0], first)


class Data(pl.LightningDataModule):
    def setup(self, stage):
        self.rows = Rows()

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.rows, batch_size=8)


def test_a_data_module_is_put_back_too(make_trainer):
    data = Data()
    before = dict(vars(data))
    find_lr(make_trainer(), Module(), datamodule=data, lrs=[1e-3])
    assert vars(data) == before


def test_a_plateau_scheduler_is_left_out_and_named(make_trainer):
    def plateau(module):
        optimizer = torch.optim.SGD(module.parameters(), lr=module.lr)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}

    found = find_lr(make_trainer(), Module(plateau), train_dataloaders=loader(), lrs=[1e-2])
    assert any("ReduceLROnPlateau" in note for note in found.warnings)


def test_a_rate_that_diverges_is_a_row(make_trainer):
    module = Module(lambda module: torch.optim.SGD(module.parameters(), lr=module.lr))
    found = find_lr(make_trainer(max_epochs=8), module, train_dataloaders=loader(), lrs=[1e-2, 1e30])
    assert found.lr == 1e-2
    assert "diverged" in str(found.table)


def manual(module):
    module.automatic_optimization = False
    return module


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lrs": [0.0]}, r"lrs\[0\]"),
        ({"lrs": [-1.0, 1.0]}, r"lrs\[0\]"),
        ({"lrs": []}, "lrs"),
        ({"lrs": [1.0, 1.0]}, "distinct"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 16}, "15 steps"),
        ({"train_dataloaders": None}, "train_dataloaders"),
        ({"train_dataloaders": torch.utils.data.DataLoader([])}, "at least one batch"),
        ({"evaluate": 3}, "evaluate"),
        ({"maximize": True}, "evaluate="),
        ({"processes": 2}, "processes must be 1"),
        ({"store": "here"}, "'store'"),
        ({"trainer": {"devices": 2, "strategy": "ddp"}}, "one device"),
        ({"trainer": {"max_epochs": -1}}, "horizon"),
        ({"module": lambda: manual(Module())}, "automatic_optimization"),
        ({"module": lambda: Module(lambda m: None)}, "learning rate"),
        ({"module": lambda: Module(lambda m: torch.optim.SGD(m.parameters(), 0.0))}, "above 0"),
        ({"module": lambda: torch.nn.Linear(1, 1)}, "LightningModule"),
        ({"module": lambda: Module(lambda m: torch.optim.SGD(m.parameters(), 0.3)), "set_lr": True}, "set_lr"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*max_epochs:UserWarning")
def test_what_cannot_be_right_is_refused_by_name(make_trainer, options, match):
    trainer = make_trainer(**options.pop("trainer", {}))
    module = options.pop("module", Module)()
    with pytest.raises((ValueError, TypeError), match=match):
        find_lr(trainer, module, **{"train_dataloaders": loader(), "lrs": [0.01], **options})
    assert not SEEN


def test_only_a_trainer_is_taken():
    with pytest.raises(TypeError, match="trainer"):
        find_lr(object(), Module())


def test_a_step_without_a_loss_is_named(make_trainer):
    module = Module()
    module.training_step = lambda batch: None
    with pytest.raises(RunError, match="training_step must return a loss"):
        find_lr(make_trainer(), module, train_dataloaders=loader(), lrs=[0.01])
