"""Studies on networks: the numbers of a plain loop, whoever computes them, and as data where a run ends early."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
import xarray as xr
from tests.runs.network_cases import TRAIN, VALID, Noisy, make_problem, make_study
from torch import nn
from torch.nn import functional

from surefoot.monitor import DeltaExplosion, NonFinite
from surefoot.rules import Stop
from surefoot.runs._row_orders import row_orders
from surefoot.study import LowerBoundWarning, Method, Result, Study
from surefoot.theory import schedules


@pytest.fixture(scope="module")
def result():
    return make_study().run(processes=1)


def plain_loop(optimizer_factory, lr, *, model=Noisy, seed=0, epochs=3, batch_size=8, sampling="shuffle", factors=None):
    """A training as one writes it by hand, with the start, the batches and the random numbers of a study's run."""
    (inputs, targets), threads = TRAIN, torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = model()
    optimizer = optimizer_factory(network.parameters(), lr=lr)
    start = [p.detach().clone() for p in network.parameters()]
    found = {name: [] for name in ("loss", "grad_sq", "distance", "train_loss", "valid_loss")}

    def evaluate(data):
        network.eval()
        with torch.no_grad():
            value = functional.cross_entropy(network(data[0]), data[1]).item()
        network.train()
        return value

    torch.manual_seed(seed)
    orders = row_orders(seed, len(inputs), batch_size, sampling)
    step = 0
    for _ in range(epochs):
        found["train_loss"].append(evaluate(TRAIN))
        found["valid_loss"].append(evaluate(VALID))
        for rows in next(orders):
            if factors is not None:
                optimizer.param_groups[0]["lr"] = lr * factors[step]
            found["last_loss"] = evaluate(TRAIN)
            moved = sum(
                float((p.detach() - q).double().square().sum())
                for p, q in zip(network.parameters(), start, strict=True)
            )
            found["distance"].append(moved**0.5)
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(inputs[rows]), targets[rows])
            loss.backward()
            found["loss"].append(loss.item())
            found["grad_sq"].append(sum(float(p.grad.double().square().sum()) for p in network.parameters()))
            optimizer.step()
            step += 1
    found["train_loss"].append(evaluate(TRAIN))
    found["valid_loss"].append(evaluate(VALID))
    torch.set_num_threads(threads)
    return {name: np.array(values) for name, values in found.items()}


def one(dataset, **where):
    return dataset.sel(seed=0).squeeze() if not where else dataset.sel(seed=0, **where)


# The numbers.


@pytest.mark.parametrize(
    ("method", "factory"),
    [
        ("adamw", torch.optim.AdamW),
        ("sgd-momentum", partial(torch.optim.SGD, momentum=0.9)),
        (Method("plain", optimizer=torch.optim.SGD), torch.optim.SGD),
    ],
    ids=["adamw", "sgd-momentum", "torch's sgd"],
)
def test_a_run_is_a_plain_loop_bit_for_bit(method, factory):
    data = one(make_study(methods=[method], lrs=[0.1]).run(processes=1).dataset)
    expected = plain_loop(factory, 0.1)
    np.testing.assert_array_equal(data.loss, expected["loss"])
    for name in ("grad_sq", "distance", "train_loss", "valid_loss", "last_loss"):
        np.testing.assert_allclose(data[name], expected[name], rtol=1e-6, atol=1e-12, err_msg=name)


def test_the_schedule_and_the_sampling_are_the_study_s():
    factors = schedules.warmup(18, steps=6)
    settings = {"methods": ["adamw"], "lrs": [0.1], "schedule": "warmup(steps=6)", "sampling": "iid"}
    data = one(make_study(**settings).run(processes=1).dataset)
    expected = plain_loop(torch.optim.AdamW, 0.1, sampling="iid", factors=factors)
    np.testing.assert_array_equal(data.loss, expected["loss"])
    np.testing.assert_allclose(data.rate, 0.1 * factors)


def test_an_average_of_networks_is_not_measured(result):
    assert np.isnan(result.dataset.average_loss).all()


class Normalised(nn.Module):
    """In evaluation mode, before the first step, batch norm leaves inputs as large as they are."""

    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.last(self.norm(100 * inputs))


def test_the_start_is_measured_as_it_is_trained():
    result = make_study(make_problem(Normalised), methods=["sgd"], seeds=2).run(processes=1)
    data, (losses, distances) = result.dataset, result.pool()
    assert float(data.train_loss[0, 0, 0, 0]) > 10
    assert result.initial_loss == pytest.approx(float(data.loss[0, 0, :, 0].mean()))
    assert result.initial_loss < 2
    assert losses[distances == 0].tolist() == [result.initial_loss]


def test_the_start_is_known_from_any_run_of_a_seed(result):
    """A run that is missing, or was lost at its first step, says nothing about it."""
    data = result.dataset.copy(deep=True)
    data.loss.values[0, 0], data.loss.values[1, 1] = np.nan, np.inf
    other = Result(result.settings, result._store, result._context)
    other.dataset = data
    assert other.initial_loss == result.initial_loss


def test_without_validation_rows_there_is_no_validation_loss():
    data = make_study(make_problem(validation=None), lrs=[0.1]).run(processes=1).dataset
    assert np.isnan(data.valid_loss).all()
    assert np.isfinite(data.train_loss).all()


def test_bfloat16_is_another_study_with_similar_numbers(result):
    data = make_study(make_problem(autocast="bfloat16"), methods=["sgd"]).run(processes=1).dataset
    exact = result.dataset.sel(algorithm=["sgd"])
    assert not np.array_equal(data.loss, exact.loss)
    np.testing.assert_allclose(data.loss.values[..., :3], exact.loss.values[..., :3], rtol=0.05)


def test_threads_are_set_for_every_run():
    seen = []

    class Watched(Noisy):
        def forward(self, inputs):
            seen.append(torch.get_num_threads())
            return super().forward(inputs)

    before = torch.get_num_threads()
    problem = make_problem(Watched, threads=2)
    problem.fingerprint()
    seen.clear()
    make_study(problem, methods=["sgd"], lrs=[0.1], epochs=1).run(processes=1)
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


# Who computes them.


def test_a_run_alone_and_worker_processes_change_no_bit(result, assert_same_bits, tmp_path):
    """The module of the network is imported by the workers, as one of the user's would be."""
    alone = make_study(methods=["adamw"], lrs=[0.1]).run(processes=1).dataset
    assert_same_bits(alone.drop_attrs(), result.dataset.sel(algorithm=["adamw"], lr=[0.1]).drop_attrs())
    parallel = make_study().run(tmp_path / "s.db", processes=2)
    assert_same_bits(parallel.dataset, result.dataset)
    assert_same_bits(Result.load(tmp_path / "s.db").dataset, result.dataset)


# Runs that end early.

HOT = {"methods": ["sgd"], "lrs": [0.1, 1e12], "batch_size": 8, "epochs": 4, "seeds": 1}


class Steep(nn.Module):
    """Without batch norm a large rate leads to infinity."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        return self.last(torch.relu(self.first(inputs)) ** 2)


def squared(outputs, targets):
    return (outputs - functional.one_hot(targets, 3)).square().mean()


def steep(**options):
    return make_problem(Steep, loss=squared, **options)


def test_divergence_is_data():
    data = Study(steep(), **HOT).run(processes=1).dataset.sel(seed=0, algorithm="sgd")
    assert data.status.values.tolist() == ["finished", "diverged"]
    lost = data.sel(lr=1e12)
    step = int(lost.diverged_at)
    assert 0 < step < 20
    for name in ("loss", "grad_sq", "size", "delta", "distance"):
        values = lost[name].values
        assert np.isfinite(values[:step]).all(), name
        assert np.isinf(values[step:]).all(), name
    assert np.isfinite(lost.train_loss[0])
    assert np.isinf(lost.train_loss.values[1 + step // 6 :]).all()
    assert lost.last_loss == np.inf
    assert lost.average_loss == np.inf


@pytest.mark.parametrize("every", [5, 7, 24])
def test_divergence_is_seen_between_kept_steps(every):
    full = Study(steep(), **HOT).run(processes=1).dataset
    thin = Study(steep(), **HOT, every=every).run(processes=1).dataset
    np.testing.assert_array_equal(thin.diverged_at, full.diverged_at)
    np.testing.assert_array_equal(thin.status, full.status)
    np.testing.assert_array_equal(thin.loss, full.loss.sel(step=thin.step))


def test_a_last_step_to_nowhere_is_divergence():
    problem = make_problem(partial(nn.Linear, 6, 3), loss=lambda *pair: 1e3 * functional.cross_entropy(*pair))
    method = Method("plain", optimizer=torch.optim.SGD)
    data = Study(problem, methods=[method], lrs=[1e38], seeds=1, epochs=1, batch_size=48).run().dataset.squeeze()
    assert (str(data.status.values), int(data.diverged_at)) == ("diverged", 0)


def test_a_spike_in_one_batch_is_divergence_too():
    """Our optimizers leave out a step that is not finite; a study ends there all the same."""
    inputs = TRAIN[0].clone()
    inputs[7] = np.inf
    problem = make_problem(Steep, (inputs, TRAIN[1]), loss=squared, validation=None)
    data = Study(problem, methods=["ngn"], lrs=[0.01], seeds=1, epochs=1, batch_size=8).run().dataset.squeeze()
    rows = next(row_orders(0, 48, 8, "shuffle"))
    assert int(data.diverged_at) == int(np.flatnonzero((rows == 7).any(axis=1))[0])


def test_stop_rules_end_runs():
    class Late(NonFinite):
        def first(self, history):
            return Stop("late", 5, 0.0, "late") if len(history.loss) > 5 and history.rates[0] > 0.1 else None

    data = (
        make_study(methods=["sgd"], lrs=[1e-6, 0.5], stop=[DeltaExplosion(), Late()]).run(processes=1).dataset.squeeze()
    )
    assert data.status.values.tolist() == ["finished", "stopped"]
    stopped = data.sel(lr=0.5).loss.values
    known = np.isfinite(stopped)
    assert 0 < known.sum() < 18
    whole = make_study(methods=["sgd"], lrs=[1e-6, 0.5]).run(processes=1).dataset.squeeze().sel(lr=0.5)
    np.testing.assert_array_equal(stopped[known], whole.loss.values[known])
    assert np.isinf(data.sel(lr=0.5).last_loss)


def test_a_rule_that_holds_at_the_last_step_ends_the_run_there():
    class Last(NonFinite):
        def first(self, history):
            return Stop("late", 17, 0.0, "late") if len(history.loss) == 18 else None

    data = make_study(methods=["sgd"], lrs=[0.1], stop=Last()).run(processes=1).dataset.squeeze()
    assert str(data.status.values) == "stopped"
    assert np.isfinite(data.loss).all()


def test_losses_below_the_lower_bound_are_counted_and_warned_about():
    study = make_study(methods=["sps(lower_bound=0.9)"], lrs=[0.1], every=3)
    with pytest.warns(LowerBoundWarning, match="the loss was below the lower bound at"):
        data = study.run(processes=1).dataset.squeeze()
    full = make_study(methods=["sps(lower_bound=0.9)"], lrs=[0.1])
    with pytest.warns(LowerBoundWarning):
        whole = full.run(processes=1).dataset.squeeze()
    assert int(whole.violations) == int((whole.loss < 0.9).sum()) > 0
    assert int(data.violations) == int(whole.violations)


def test_two_studies_in_two_threads_have_the_numbers_of_one():
    """Dropout and the first weights come from torch's global random numbers, which the threads share."""
    studies = [make_study(lrs=[0.05], methods=[method], epochs=6) for method in ("ngn", "adamw")]
    alone = [study.run(processes=1).dataset for study in studies]
    again = [make_study(lrs=[0.05], methods=[method], epochs=6) for method in ("ngn", "adamw")]
    with ThreadPoolExecutor(2) as threads:
        beside = list(threads.map(lambda study: study.run(processes=1).dataset, again))
    for one, other in zip(alone, beside, strict=True):
        xr.testing.assert_identical(one, other)
