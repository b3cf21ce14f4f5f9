"""Torch trainings as runs."""

import numpy as np
import pytest
import torch
from tests.runs.torch_recipe import LRS, X, Y, batches, recipe, same, squared
from torch import nn

import surefoot.optim as sfo
from surefoot.problems import LinearRegression
from surefoot.search import ProblemRun, RunError, TorchRun, tune
from surefoot.theory import schedules


@pytest.mark.parametrize("optimizer", [sfo.SGD, sfo.SPS, sfo.NGN, torch.optim.SGD, torch.optim.AdamW])
def test_it_finds_a_rate_that_learns(optimizer):
    found = tune(recipe(optimizer), LRS, 60)
    losses, _ = recipe(optimizer)(found.lr).advance(60)
    assert losses[-1] < 0.5 * losses[0]
    assert found.run.step == 60


@pytest.mark.parametrize(
    ("optimizer", "certified"),
    [
        (sfo.SGD, True),
        (sfo.SPS, True),
        (sfo.NGN, True),
        (torch.optim.SGD, True),
        (sfo.MoMo, False),
        (sfo.NGNMomentum, False),
        (lambda p, lr: sfo.SPS(p, lr=lr, lower_bound="estimate"), False),
        (lambda p, lr: sfo.SGD(p, lr=lr, weight_decay=0.1), False),
        (lambda p, lr: sfo.SGD(p, lr=lr, max_grad_norm=1.0), False),
        (torch.optim.AdamW, False),
        (lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9), False),
        (lambda p, lr: torch.optim.SGD(p, lr=lr, weight_decay=0.1), False),
    ],
)
def test_indices_stand_in_a_bound_only_where_the_theory_allows_it(optimizer, certified):
    run = recipe(optimizer)(0.1)
    run.advance(3)
    assert run.certifies == certified


def test_indices_of_plain_sgd_are_ours():
    ours, theirs = recipe(sfo.SGD)(0.1).advance(10), recipe(torch.optim.SGD)(0.1).advance(10)
    np.testing.assert_allclose(ours.deltas, theirs.deltas, rtol=1e-5)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-5)


def test_the_heuristic_index_is_exact_for_sgd():
    """½⟨g, x_t − x_{t+1}⟩ is ½α‖g‖² there."""
    plain = recipe(sfo.SGD)(0.1).advance(10)
    foreign = recipe(lambda p, lr: torch.optim.SGD(p, lr=lr, maximize=False, momentum=1e-12))(0.1).advance(10)
    np.testing.assert_allclose(plain.deltas, foreign.deltas, rtol=1e-3)


def test_the_numbers_are_those_of_the_convex_run():
    problem = LinearRegression(noise=0.5)
    theirs = ProblemRun(problem, "ngn", batch_size=5)(0.1, 0)
    A, b, start = torch.tensor(problem.A), torch.tensor(problem.y), torch.tensor(problem.initial_point())

    def model():
        layer = nn.Linear(10, 1, bias=False, dtype=torch.float64)
        layer.weight.data = start[None].clone()
        return layer

    rows = theirs._order(0).rows(0, 20)
    ours = TorchRun(model, lambda seed: [(A[r], b[r]) for r in rows], squared, lambda p, lr: sfo.NGN(p, lr=lr), lr=0.1)
    for one, other in zip(ours.advance(20), theirs.advance(20), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    assert ours.distance() == pytest.approx(theirs.distance())


@pytest.mark.parametrize("optimizer", [sfo.NGN, sfo.MoMoAdam, torch.optim.AdamW])
def test_going_on_from_a_state_on_disk(tmp_path, optimizer):
    from surefoot.runs import Key, Record, States

    def noisy():
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

    runs = recipe(optimizer, noisy)
    straight, first, second = runs(0.01, 1), runs(0.01, 1), runs(0.01, 1)
    straight.advance(12)
    first.advance(7)
    torch.manual_seed(99)  # others use random numbers, too
    record, states = Record(Key("", 0.01, 1), 12, np.zeros(7)), States(str(tmp_path / "states"), "context")
    states.save(record, first.state_dict())
    second.load_state_dict(states.load(record))
    second.advance(5)
    assert same(straight, second)


def test_runs_that_take_turns_do_not_disturb_each_other():
    def noisy():
        return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    runs = recipe(model=noisy)
    alone, one, other = runs(0.01), runs(0.01), runs(0.02)
    alone.advance(6)
    for _ in range(6):
        one.advance(1)
        other.advance(1)
    assert same(alone, one)


def test_the_global_random_numbers_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    recipe()(0.1).advance(3)
    assert torch.equal(torch.rand(1), expected)


def test_interrupted_and_resumed(tmp_path):
    whole = tune(recipe(sfo.NGN), LRS, 60)

    class Stop(Exception):
        pass

    def stop(steps):
        if steps > 20:
            raise Stop

    with pytest.raises(Stop):
        tune(recipe(sfo.NGN), LRS, 60, store=tmp_path / "search", progress=stop)
    again = tune(recipe(sfo.NGN), LRS, 60, store=tmp_path / "search")
    assert again.table == whole.table
    assert same(again.run, whole.run)


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
    with pytest.raises(ValueError, match="schedule must have 30 factors"):
        tune(recipe(schedule=factors), [0.01, 0.1], 30)


def test_the_evaluation_decides():
    found = tune(recipe(evaluate=lambda model: squared(model, (X, Y))), LRS, 60)
    assert found.loss == pytest.approx(float(squared(found.run.model, (X, Y)).detach()))


def test_divergence_is_a_result():
    run = recipe()(1e30)
    assert len(run.advance(50).losses) < 50
    found = tune(recipe(), [0.1, 1e30], 40)
    assert found.lr == 0.1
    assert found.table[1].outcome == "diverged"


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


def test_parts_that_are_no_functions():
    with pytest.raises(TypeError, match="loss_fn must be a function, got 3"):
        TorchRun(lambda: None, batches, 3, lambda p, lr: None)


# What a run has to keep, and what has to be the same.


def lambda_lr(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def test_a_scheduler_of_torch_goes_on_where_it_was():
    """With one state in memory all runs are put aside again and again."""
    few = tune(recipe(torch.optim.SGD, scheduler=lambda_lr), LRS, 40, max_states=1)
    many = tune(recipe(torch.optim.SGD, scheduler=lambda_lr), LRS, 40, max_states=100)
    assert few.table == many.table
    factors = 1 / (1 + np.arange(40))
    by_hand = tune(recipe(torch.optim.SGD, schedule=factors), LRS, 40)
    assert few.lr == by_hand.lr
    assert few.loss == pytest.approx(by_hand.loss, rel=1e-4)


def test_a_scheduler_inside_of_the_optimizer_factory_is_refused_by_name():
    def factory(parameters, lr):
        optimizer = torch.optim.SGD(parameters, lr=lr)
        scheduler = lambda_lr(optimizer)
        optimizer.register_step_post_hook(lambda *_: scheduler.step())
        return optimizer

    with pytest.raises(RunError, match=r"must not attach a learning-rate scheduler.*give.*scheduler="):
        tune(recipe(factory), LRS, 20)


def test_with_a_scheduler_that_follows_the_loss_the_index_is_a_heuristic():
    def plateau(optimizer):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)

    for scheduler, certified in ((plateau, False), (lambda_lr, True)):
        runs = recipe(torch.optim.SGD, scheduler=scheduler)
        runs.factors(20)
        assert runs(0.1).certifies == certified


def test_a_schedule_and_a_scheduler_are_one_too_many():
    with pytest.raises(ValueError, match="schedule and scheduler both set the rates"):
        recipe(schedule=np.ones(3), scheduler=lambda_lr)


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


@pytest.mark.parametrize("place", [0, 5, 19])
def test_steps_of_rate_zero_are_allowed(place):
    factors = np.linspace(1, 0.1, 20)
    factors[place] = 0.0
    found = tune(recipe(torch.optim.SGD, schedule=factors), [0.01, 0.1, 1.0], 20)
    assert np.isfinite(found.loss)


@pytest.mark.parametrize(
    ("name", "value"), [("clip", 0.0), ("accumulate", 0), ("autocast", "float8"), ("scheduler", 3)]
)
def test_bad_options_are_named(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        recipe(**{name: value})


class Shuffled:
    """Draws its order whenever somebody goes through it, from torch's generator."""

    def __iter__(self):
        return iter([(X[rows], Y[rows]) for rows in torch.randperm(40).split(8)])


def test_the_first_epoch_is_that_of_the_seed_too():
    runs = TorchRun(lambda: nn.Linear(3, 1), lambda seed: Shuffled(), squared, lambda p, lr: sfo.SGD(p, lr=lr))
    one, other = runs(1e-9), runs(1e-9)
    losses = one.advance(3).losses
    assert losses == other.advance(3).losses
    other.load_state_dict(one.state_dict())
    assert one.advance(4).losses == other.advance(4).losses


def test_a_model_is_evaluated_where_its_optimizer_says():
    def optimizer(parameters, lr):
        return sfo.SGD(parameters, lr=lr, momentum=sfo.ScheduleFree())

    def distance(model):
        return sum(p.detach().square().sum() for p in model.parameters()).item()

    runs = TorchRun(lambda: nn.Linear(3, 1), batches, squared, optimizer, evaluate=distance)
    run = runs(0.5)
    run.advance(5)
    there = distance(run.model)
    run.optimizer.eval()
    at_the_average = distance(run.model)
    run.optimizer.train()
    assert run.evaluate() == at_the_average != there
    assert distance(run.model) == there


def test_a_named_schedule_serves_every_horizon():
    runs = recipe(schedule="cosine")
    for horizon in (20, 40):
        assert tune(runs, [0.01, 0.1], horizon).horizon == horizon
        assert len(runs.schedule) == horizon
