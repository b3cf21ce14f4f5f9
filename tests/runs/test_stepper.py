"""Steps of any torch training: what they tell, and that runs do not disturb each other."""

import numpy as np
import pytest
import torch
from tests.runs.network_cases import TRAIN, Noisy
from tests.runs.torch_recipe import batches, recipe, same, squared
from torch import nn

import surefoot.optim as sfo
from surefoot.runs._stepper import Stepper, certifies
from surefoot.search import TorchRun
from surefoot.theory import models, schedules

INPUTS, TARGETS = TRAIN


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # several for so small a network wait for each other
    yield
    torch.set_num_threads(before)


def start(optimizer=sfo.SGD, seed=0, factors=None, model=Noisy, **options):
    torch.manual_seed(0)
    network = model()
    return Stepper(network, optimizer(network.parameters(), **({"lr": 0.1} | options)), factors, seed)


def loss_of(stepper):
    return nn.functional.cross_entropy(stepper.model(INPUTS), TARGETS)


def take(stepper, steps=5, first=0):
    with stepper.training():
        return [stepper.step(number, lambda: loss_of(stepper)) for number in range(first, first + steps)]


def point(stepper):
    return torch.cat([p.detach().flatten() for p in stepper.parameters])


@pytest.mark.parametrize(
    ("optimizer", "model"),
    [(sfo.SGD, models.Linear()), (sfo.SPS, models.Truncated()), (sfo.NGN, models.SquareRoot())],
)
def test_readings_of_our_optimizers_are_the_theory_s(optimizer, model):
    for loss, grad_sq, size, delta in take(start(optimizer, lr=3.0)):
        expected = model.step(float(loss), float(grad_sq), 3.0)
        assert (float(size), float(delta)) == pytest.approx((expected.size, expected.delta), rel=1e-6)


def test_the_gradient_is_that_of_the_loss():
    stepper = start(torch.optim.SGD)
    (reading,) = take(stepper, 1)
    assert float(reading.grad_sq) == pytest.approx(sum(float(p.grad.square().sum()) for p in stepper.parameters))


def test_the_index_of_plain_sgd_is_half_alpha_g_squared():
    (reading,) = take(start(torch.optim.SGD, lr=0.3), 1)
    assert float(reading.size) == pytest.approx(0.3)
    assert float(reading.delta) == pytest.approx(0.15 * float(reading.grad_sq))


def test_the_index_of_other_optimizers_is_half_the_inner_product_of_gradient_and_move():
    stepper = start(torch.optim.AdamW, lr=0.01)
    before = point(stepper)
    (reading,) = take(stepper, 1)
    gradient = torch.cat([p.grad.flatten() for p in stepper.parameters])
    move = before - point(stepper)
    assert float(reading.delta) == pytest.approx(0.5 * float(gradient @ move), rel=1e-5)
    assert float(reading.size) == pytest.approx(float(move.norm() / gradient.norm()), rel=1e-5)


def test_the_heuristic_is_exact_for_groups_of_plain_sgd():
    def groups(parameters, lr):
        first, *rest = parameters
        return torch.optim.SGD([{"params": [first], "lr": lr}, {"params": rest, "lr": 2 * lr}])

    stepper = start(groups)
    (reading,) = take(stepper, 1)
    squares = [float(p.grad.square().sum()) for p in stepper.parameters]
    assert float(reading.delta) == pytest.approx(0.05 * squares[0] + 0.1 * sum(squares[1:]), rel=1e-4)


def test_a_zero_gradient_has_size_zero():
    model = nn.Linear(6, 3)
    stepper = Stepper(model, torch.optim.Adam(model.parameters()), None, 0)
    with stepper.training():
        reading = stepper.step(0, lambda: 0.0 * model(INPUTS).sum())
    assert [float(value) for value in reading] == [0.0] * 4


def test_parameters_without_a_gradient_do_not_move():
    class Half(Noisy):
        def forward(self, inputs):
            return self.last(torch.zeros(len(inputs), 16))

    for optimizer in (sfo.NGN, torch.optim.SGD, torch.optim.AdamW):
        stepper = start(optimizer, model=Half)
        before = stepper.model.first.weight.detach().clone()
        take(stepper, 2)
        assert torch.equal(stepper.model.first.weight, before)


@pytest.mark.parametrize("optimizer", [sfo.SGD, torch.optim.SGD, torch.optim.AdamW])
def test_the_schedule_multiplies_the_rates_of_every_step(optimizer):
    factors = schedules.linear(5)
    stepper = start(optimizer, factors=factors)
    rates = []
    with stepper.training():
        for number in range(5):
            stepper.step(number, lambda: loss_of(stepper))
            rates.append(stepper.optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, 0.1 * factors)


def test_distance_is_that_from_the_start():
    stepper = start()
    before, origin = point(stepper), [p.detach().clone() for p in stepper.parameters]
    assert float(stepper.distance(origin)) == 0.0
    take(stepper)
    assert float(stepper.distance(origin)) == pytest.approx(float((point(stepper) - before).norm()), rel=1e-6)


def test_random_numbers_are_the_run_s_own():
    alone, one, other = start(seed=1), start(seed=1), start(seed=2)
    take(alone, 4)
    for number in range(4):
        torch.manual_seed(99)  # others use them, too
        take(one, 1, number)
        take(other, 1, number)
    assert torch.equal(point(alone), point(one))
    assert not torch.equal(point(alone), point(other))


def test_random_numbers_of_others_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    take(start(), 2)
    torch.manual_seed(3)
    stepper = start()
    torch.manual_seed(3)
    take(stepper, 2)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("optimizer", [sfo.NGN, sfo.MoMoAdam, torch.optim.AdamW])
def test_going_on_from_a_state(optimizer, tmp_path):
    straight, first, second = (start(optimizer) for _ in range(3))
    take(straight, 6)
    take(first, 4)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    take(second, 2, 4)
    assert torch.equal(point(straight), point(second))


def test_schedule_free_optimizers_are_evaluated_at_their_average():
    stepper = start(sfo.SGD, momentum=sfo.ScheduleFree())
    take(stepper)
    trained = point(stepper)
    with stepper.evaluating():
        assert not torch.equal(point(stepper), trained)
    torch.testing.assert_close(point(stepper), trained)


def test_optimizers_with_modes_are_in_the_right_one():
    class Modal(torch.optim.SGD):
        mode = None

        def train(self):
            self.mode = "train"

        def eval(self):
            self.mode = "eval"

        def step(self, closure=None):
            assert self.mode == "train"
            return super().step(closure)

    stepper = start(Modal)
    take(stepper, 1)
    with stepper.evaluating():
        assert stepper.optimizer.mode == "eval"
    take(stepper, 1)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (lambda p: sfo.NGN(p), True),
        (lambda p: torch.optim.SGD(p, 0.1), True),
        (lambda p: sfo.MoMo(p), False),
        (lambda p: sfo.NGNAdam(p), False),
        (lambda p: sfo.SPS(p, lower_bound="estimate"), False),
        (lambda p: sfo.SGD(p, weight_decay=0.1), False),
        (lambda p: sfo.SGD(p, max_grad_norm=1.0), False),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), False),
        (lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.1), False),
        (lambda p: torch.optim.SGD(p, 0.1, maximize=True), False),
        (lambda p: torch.optim.Adam(p), False),
    ],
)
def test_indices_that_may_stand_in_a_bound(optimizer, expected):
    model = Noisy()
    assert certifies(optimizer(model.parameters()), model) is expected


# Hooks, clipping, accumulation and mixed precision, as runs have them.


def clipped(parameters, lr):
    optimizer = torch.optim.SGD(parameters, lr=lr)

    def clip(optimizer, args, kwargs):
        torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 0.01)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def halved():
    layer = nn.Linear(3, 1)
    layer.weight.register_hook(lambda gradient: gradient / 2)
    return layer


def replaced(parameters, lr):
    optimizer = torch.optim.SGD(parameters, lr=lr)
    optimizer.step = lambda: None
    return optimizer


@pytest.mark.parametrize(
    "changes",
    [{"optimizer": clipped}, {"optimizer": replaced}, {"model": halved, "optimizer": torch.optim.SGD}],
    ids=["step hook", "another step", "gradient hook"],
)
def test_hooks_make_the_index_a_heuristic(changes):
    factory = changes.get("optimizer")
    model = changes.get("model", lambda: nn.Linear(3, 1))
    run = TorchRun(model, batches, squared, factory)(0.1, 0)
    run.advance(3)
    assert not run.certifies


def test_the_index_of_a_clipped_step_is_that_of_the_step():
    hooked = TorchRun(lambda: nn.Linear(3, 1), batches, squared, clipped, lr=0.1).advance(5)
    asked = TorchRun(lambda: nn.Linear(3, 1), batches, squared, torch.optim.SGD, clip=0.01, lr=0.1).advance(5)
    plain = TorchRun(lambda: nn.Linear(3, 1), batches, squared, torch.optim.SGD, lr=0.1).advance(5)
    np.testing.assert_allclose(hooked.deltas, asked.deltas, rtol=1e-5)
    assert max(asked.deltas) < 0.1 * min(plain.deltas)


def test_clipping_is_torch_s():
    run = TorchRun(lambda: nn.Linear(3, 1), batches, squared, torch.optim.SGD, clip=0.01, lr=0.1)
    run.advance(10)
    by_hand = TorchRun(lambda: nn.Linear(3, 1), batches, squared, clipped, lr=0.1)
    by_hand.advance(10)
    assert same(run, by_hand)
    assert not run.certifies
    with pytest.raises(ValueError, match="max_grad_norm"):
        recipe(sfo.SGD, clip=1.0)(0.1)


@pytest.mark.parametrize("optimizer", [sfo.NGN, torch.optim.SGD])
def test_accumulated_batches_are_one_large_one(optimizer):
    def large(seed):
        parts = batches(seed)
        pairs = (parts[0], parts[1]), (parts[2], parts[3])
        return [(torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])) for a, b in pairs]

    def make(data, **options):
        factory = lambda parameters, lr: optimizer(parameters, lr=lr)  # noqa: E731
        return TorchRun(lambda: nn.Linear(3, 1), data, squared, factory, lr=0.1, **options)

    one, two = make(large), make(lambda seed: batches(seed)[:4], accumulate=2)
    for ours, theirs in zip(two.advance(6), one.advance(6), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    again = make(lambda seed: batches(seed)[:4], accumulate=2)
    again.load_state_dict(two.state_dict())
    two.advance(3)
    again.advance(3)
    assert same(two, again)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("optimizer", [sfo.NGN, torch.optim.SGD])
def test_mixed_precision_trains_and_goes_on(dtype, optimizer):
    runs = recipe(optimizer, autocast=dtype)
    straight, first, second = runs(0.1), runs(0.1), runs(0.1)
    losses, deltas = straight.advance(40)
    assert losses[-1] < 0.5 * losses[0]
    assert min(deltas) >= 0
    first.advance(15)
    second.load_state_dict(first.state_dict())
    second.advance(25)
    assert same(straight, second)
    assert not straight.certifies


def test_a_gradient_too_large_for_float16_takes_no_step():
    runs = TorchRun(
        lambda: nn.Linear(3, 1), batches, lambda m, b: 1e4 * squared(m, b), torch.optim.SGD, autocast="float16", lr=1e-9
    )
    losses, deltas = runs.advance(30)
    assert np.isfinite(losses).all()
    assert np.isfinite(deltas).all()
    assert runs._stepper._scaler.get_scale() < 2**16
    assert runs.distance() > 0


@pytest.mark.parametrize("optimizer", [sfo.NGN, torch.optim.SGD])
def test_the_scale_of_float16_grows_while_all_is_well(optimizer):
    run = recipe(optimizer, autocast="float16")(0.1)
    run._stepper._scaler = scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=5)
    run.advance(12)
    assert scaler.get_scale() == 8.0


@pytest.mark.parametrize("optimizer", [sfo.SGD, torch.optim.SGD, torch.optim.Adam])
def test_a_rate_beyond_the_parameters_numbers_diverges(optimizer):
    *_, reading = take(start(optimizer, lr=1e39), 2)
    assert torch.isinf(reading.delta)
    (reading,) = take(start(sfo.NGN, lr=1e39), 1)
    assert torch.isfinite(reading.delta)


def test_a_move_without_a_gradient_has_an_infinite_size():
    class Flat(nn.Module):
        """A loss that is flat from its second step on."""

        def __init__(self):
            super().__init__()
            self.w, self.slope = nn.Parameter(torch.ones(2)), 1.0

        def forward(self, inputs):
            return self.slope * self.w.sum().expand(len(TARGETS), 10) * torch.arange(10.0)

    stepper = start(torch.optim.Adam, model=Flat)
    take(stepper, 1)
    stepper.model.slope = 0.0
    (reading,) = take(stepper, 1)
    assert reading.grad_sq == 0
    assert torch.isinf(reading.size)
