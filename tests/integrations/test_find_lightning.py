"""The finder inside Lightning: what it takes and gives, and that nothing is left of its trainings."""

from __future__ import annotations

import random
import signal

import numpy as np
import pytest
import torch

pl = pytest.importorskip("lightning.pytorch")
from lightning.pytorch.callbacks import EarlyStopping  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402
from tests.integrations.lightning_cases import KNOWN_WARNINGS, SEEN, Module, Rows, loader  # noqa: E402

from surefoot.integrations.lightning import find_lr  # noqa: E402
from surefoot.search import Found, RunError  # noqa: E402

pytestmark = KNOWN_WARNINGS


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
