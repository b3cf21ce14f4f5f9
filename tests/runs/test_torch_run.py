"""Torch trainings as runs: what a step tells, what is kept of them, and that they do not disturb each other."""

from itertools import chain, islice

import numpy as np
import pytest
import torch
from tests.runs.network_cases import TRAIN, Noisy
from tests.runs.torch_recipe import LRS, X, Y, batches, recipe, same, squared
from torch import nn

import surefoot.optim as sfo
from surefoot.problems import LinearRegression
from surefoot.runs import Key, Record, States
from surefoot.runs._row_orders import row_orders
from surefoot.search import ProblemRun, RunError, TorchRun, tune
from surefoot.theory import models, schedules

INPUTS, TARGETS = TRAIN


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # several for so small a network wait for each other
    yield
    torch.set_num_threads(before)


def classified(model, batch):
    return nn.functional.cross_entropy(model(INPUTS), TARGETS)


def start(optimizer=sfo.SGD, lr=0.1, *, model=Noisy, loss=classified, **options):
    """A run of a network with batch norm and dropout."""
    factory = lambda parameters, lr: optimizer(parameters, lr=lr)  # noqa: E731
    return TorchRun(model, lambda seed: [None], loss, factory, **options)(lr)


def point(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def gradient(run):
    return torch.cat([p.grad.flatten() for p in run.model.parameters()])


def readings(run, steps=1):
    """Loss, ‖g‖², size and index of some steps."""
    with run._training():
        return torch.stack([run._step() for _ in range(steps)])[:, :4].numpy()


@pytest.mark.parametrize(
    ("optimizer", "model"),
    [(sfo.SGD, models.Linear()), (sfo.SPS, models.Truncated()), (sfo.NGN, models.SquareRoot())],
)
def test_numbers_of_our_optimizers_are_the_theory_s(optimizer, model):
    for loss, grad_sq, size, delta in readings(start(optimizer, 3.0), 5):
        expected = model.step(float(loss), float(grad_sq), 3.0)
        assert (size, delta) == pytest.approx((expected.size, expected.delta), rel=1e-6)


def test_the_index_of_plain_sgd_is_half_alpha_g_squared():
    run = start(torch.optim.SGD, 0.3)
    ((_, grad_sq, size, delta),) = readings(run)
    assert grad_sq == pytest.approx(float(gradient(run).square().sum()))
    assert (size, delta) == pytest.approx((0.3, 0.15 * grad_sq))


def test_the_index_of_other_optimizers_is_half_the_inner_product_of_gradient_and_move():
    run = start(torch.optim.AdamW, 0.01)
    before = point(run)
    ((_, _, size, delta),) = readings(run)
    move = before - point(run)
    assert delta == pytest.approx(0.5 * float(gradient(run) @ move), rel=1e-5)
    assert size == pytest.approx(float(move.norm() / gradient(run).norm()), rel=1e-5)
    assert run.distance() == pytest.approx(float(move.norm()), rel=1e-6)


def test_a_zero_gradient_has_size_zero():
    ((*numbers,),) = readings(start(torch.optim.Adam, loss=lambda model, batch: 0.0 * model(INPUTS).sum()))
    assert numbers == [0.0] * 4


@pytest.mark.parametrize("optimizer", [sfo.NGN, torch.optim.SGD, torch.optim.AdamW])
def test_parameters_without_a_gradient_do_not_move(optimizer):
    class Half(Noisy):
        def forward(self, inputs):
            return self.last(torch.zeros(len(inputs), 16))

    run = start(optimizer, model=Half)
    before = run.model.first.weight.detach().clone()
    run.advance(2)
    assert torch.equal(run.model.first.weight, before)


@pytest.mark.parametrize("optimizer", [sfo.SGD, torch.optim.SGD, torch.optim.AdamW])
def test_the_schedule_multiplies_the_rates_of_every_step(optimizer):
    factors = schedules.linear(5)
    run = start(optimizer, schedule=factors)
    rates = []
    for _ in range(5):
        run.advance(1)
        rates.append(run.optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, 0.1 * factors)


def test_random_numbers_are_the_run_s_own_and_those_of_others_are_left_alone():
    runs = recipe(model=lambda: nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)))
    alone, one, other = runs(0.01, 1), runs(0.01, 1), runs(0.01, 2)
    alone.advance(4)
    for _ in range(4):
        torch.manual_seed(99)
        one.advance(1)
        other.advance(1)
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(99))
    assert same(alone, one)
    assert not same(alone, other)


@pytest.mark.parametrize("optimizer", [sfo.NGN, sfo.MoMoAdam, torch.optim.AdamW])
def test_going_on_from_a_state_on_disk(tmp_path, optimizer):
    runs = recipe(
        optimizer, lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    )
    straight, first, second = runs(0.01, 1), runs(0.01, 1), runs(0.01, 1)
    straight.advance(12)
    first.advance(7)
    torch.manual_seed(99)  # others use random numbers, too
    record, states = Record(Key("", 0.01, 1), 12, np.zeros(7)), States(str(tmp_path / "states"), "context")
    states.save(record, first.state_dict())
    second.load_state_dict(states.load(record))
    second.advance(5)
    assert same(straight, second)


def test_a_model_is_evaluated_where_its_optimizer_says():
    def optimizer(parameters, lr):
        return sfo.SGD(parameters, lr=lr, momentum=sfo.ScheduleFree())

    def distance(model):
        return sum(p.detach().square().sum() for p in model.parameters()).item()

    run = TorchRun(lambda: nn.Linear(3, 1), batches, squared, optimizer, evaluate=distance)(0.5)
    run.advance(5)
    there = distance(run.model)
    run.optimizer.eval()
    at_the_average = distance(run.model)
    run.optimizer.train()
    assert run.evaluate() == at_the_average != there
    assert distance(run.model) == pytest.approx(there)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (sfo.NGN, True),
        (torch.optim.SGD, True),
        (sfo.MoMo, False),
        (sfo.NGNAdam, False),
        (lambda p, lr: sfo.SPS(p, lr=lr, lower_bound="estimate"), False),
        (lambda p, lr: sfo.SGD(p, lr=lr, weight_decay=0.1), False),
        (lambda p, lr: sfo.SGD(p, lr=lr, max_grad_norm=1.0), False),
        (lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9), False),
        (lambda p, lr: torch.optim.SGD(p, lr=lr, maximize=True), False),
        (torch.optim.AdamW, False),
    ],
)
def test_indices_stand_in_a_bound_only_where_the_theory_allows_it(optimizer, expected):
    assert recipe(optimizer)(0.1).certifies is expected


@pytest.mark.parametrize("optimizer", [sfo.SGD, torch.optim.SGD, torch.optim.Adam])
def test_a_rate_beyond_the_parameters_numbers_diverges(optimizer):
    assert np.isinf(readings(start(optimizer, 1e39), 2)[-1, 3])
    assert np.isfinite(readings(start(sfo.NGN, 1e39))[0, 3])


# As runs of a search.


def test_the_numbers_are_those_of_the_convex_run():
    problem = LinearRegression(noise=0.5)
    theirs = ProblemRun(problem, "ngn", batch_size=5)(0.1, 0)
    A, b, start = torch.tensor(problem.A), torch.tensor(problem.y), torch.tensor(problem.initial_point())

    def model():
        layer = nn.Linear(10, 1, bias=False, dtype=torch.float64)
        layer.weight.data = start[None].clone()
        return layer

    rows = list(islice(chain.from_iterable(row_orders(0, problem.n_rows, 5, "shuffle")), 20))
    ours = TorchRun(model, lambda seed: [(A[r], b[r]) for r in rows], squared, lambda p, lr: sfo.NGN(p, lr=lr), lr=0.1)
    for one, other in zip(ours.advance(20), theirs.advance(20), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    assert ours.distance() == pytest.approx(theirs.distance())


def test_a_loader_that_knows_its_place_is_asked_for_it():
    class Loader:
        def __init__(self):
            self.place = 0

        def __iter__(self):
            while self.place < 5:
                self.place += 1
                yield X[:8] * self.place, Y[:8]
            self.place = 0

        def state_dict(self):
            return {"place": self.place}

        def load_state_dict(self, state):
            self.place = state["place"]

    runs = TorchRun(lambda: nn.Linear(3, 1), lambda seed: Loader(), squared, lambda p, lr: sfo.SGD(p, lr=lr))
    straight, first, second = runs(1e-3), runs(1e-3), runs(1e-3)
    straight.advance(8)
    first.advance(3)
    second.load_state_dict(first.state_dict())
    second.advance(5)
    assert same(straight, second)


def test_the_schedule_is_applied_and_told():
    factors = schedules.linear(20)
    run = recipe(schedule=factors)(0.1)
    run.advance(20)
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * factors[-1])
    assert tune(recipe(schedule=factors), [0.01, 0.1], 20).lr in (0.01, 0.1)
    with pytest.raises(ValueError, match=r"schedule must be .*30 factors"):
        tune(recipe(schedule=factors), [0.01, 0.1], 30)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_fn": lambda model, batch: 3.0}, "loss_fn.* must return a tensor of one element, got 3.0"),
        ({"data_factory": lambda seed: []}, "data_factory.* must give an iterable of batches"),
        ({"model_factory": nn.ReLU}, "model_factory must give a model with parameters"),
    ],
)
def test_bad_parts(change, message):
    parts = {
        "model_factory": lambda: nn.Linear(3, 1),
        "data_factory": batches,
        "loss_fn": squared,
        "optimizer_factory": lambda p, lr: sfo.SGD(p, lr=lr),
    }
    with pytest.raises(RunError, match=message):
        tune(TorchRun(**(parts | change)), [0.1], 5)


def test_a_scheduler_inside_of_the_optimizer_factory_is_refused_by_name():
    def factory(parameters, lr):
        optimizer = torch.optim.SGD(parameters, lr=lr)
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
        optimizer.register_step_post_hook(lambda *_: scheduler.step())
        return optimizer

    with pytest.raises(RunError, match=r"must not attach a learning-rate scheduler.*give.*schedule="):
        tune(recipe(factory), LRS, 20)


@pytest.mark.parametrize("layers", [False, True])
def test_runs_of_one_global_model_do_not_share_its_weights(layers):
    one = nn.Linear(3, 1)
    runs = recipe(model=(lambda: nn.Sequential(one)) if layers else (lambda: one))
    before = one.weight.detach().clone()
    first, second = runs(0.1), runs(0.1)
    first.advance(5)
    assert second.distance() == 0.0
    assert torch.equal(one.weight, before)
    assert tune(runs, LRS, 40, max_states=1).table == tune(runs, LRS, 40, max_states=100).table


def test_a_model_that_draws_from_numpy_starts_at_the_same_point_each_time():
    def model():
        layer = nn.Linear(3, 1)
        layer.weight.data = torch.tensor(np.random.normal(size=(1, 3)), dtype=torch.float32)  # noqa: NPY002
        return layer

    first, second = (recipe(model=model)(0.1).evaluate() for _ in range(2))
    assert first == second


def shuffled(seed):
    data = torch.utils.data.TensorDataset(X, Y)
    return torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)


def drawn(seed):
    noise = np.random.normal(size=(40, 3))  # noqa: NPY002
    return [(X[rows] + torch.tensor(noise[rows], dtype=X.dtype), Y[rows]) for rows in torch.randperm(40).split(8)]


@pytest.mark.parametrize("data", [shuffled, drawn])
def test_batches_that_nobody_has_seeded_are_the_same_after_a_pause(data):
    def runs():
        return TorchRun(lambda: nn.Linear(3, 1), data, squared, lambda p, lr: sfo.SGD(p, lr=lr))

    straight, first, second = runs()(0.01, 1), runs()(0.01, 1), runs()(0.01, 1)
    straight.advance(12)
    torch.manual_seed(99)
    np.random.seed(5)  # noqa: NPY002
    first.advance(7)
    second.load_state_dict(first.state_dict())
    second.advance(5)
    assert same(straight, second)
    other = runs()(0.01, 2)
    other.advance(12)
    assert not same(straight, other)


def test_batches_that_differ_at_every_call_are_refused_by_name():
    generator = torch.Generator().manual_seed(0)

    def data(seed):
        return [(X[rows], Y[rows]) for rows in torch.randperm(40, generator=generator).split(8)]

    runs = TorchRun(lambda: nn.Linear(3, 1), data, squared, lambda p, lr: sfo.SGD(p, lr=lr))
    with pytest.raises(RunError, match=r"data_factory\(0\) must give the same batches.*manual_seed\(seed\)"):
        tune(runs, LRS, 20)


def test_the_optimizer_factory_may_take_the_model():
    def groups(model, lr):
        return torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias], "lr": lr / 10}], lr=lr)

    run = TorchRun(lambda: nn.Linear(3, 1), batches, squared, groups, lr=0.1)
    run.advance(3)
    assert [group["lr"] for group in run.optimizer.param_groups] == [0.1, 0.01]


def test_what_is_no_function_is_named():
    with pytest.raises(TypeError, match="data_factory must be a function, got 3"):
        TorchRun(lambda: nn.Linear(3, 1), 3, squared, torch.optim.SGD)


class Shuffled:
    """Draws its order whenever somebody goes through it, from torch's generator."""

    def __iter__(self):
        return iter([(X[rows], Y[rows]) for rows in torch.randperm(40).split(8)])


def test_the_first_epoch_is_that_of_the_seed_too():
    runs = TorchRun(lambda: nn.Linear(3, 1), lambda seed: Shuffled(), squared, lambda p, lr: sfo.SGD(p, lr=lr))
    one, other = runs(1e-9), runs(1e-9)
    np.testing.assert_array_equal(one.advance(3).losses, other.advance(3).losses)
    other.load_state_dict(one.state_dict())
    np.testing.assert_array_equal(one.advance(4).losses, other.advance(4).losses)


def test_a_named_schedule_serves_every_horizon():
    runs = recipe(schedule="cosine")
    for horizon in (20, 40):
        assert tune(runs, [0.01, 0.1], horizon).horizon == horizon
        assert len(runs.schedule) == horizon
