"""Any torch model, data and loss as a problem: its numbers, what tells two of them apart, and what is refused."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from surefoot.data import Images, digits
from surefoot.problems import ImageInputs, NetworkProblem, create, networks

X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(20) % 3
MODEL = partial(networks.MLP, 4, (5,), 3)


def make(model=MODEL, data=(X, Y), **options):
    return NetworkProblem(model, data, **options)


def same(one, other):
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def test_every_model_starts_at_the_initial_point_of_what_is_trained():
    def frozen():
        model = MODEL()
        model[1].requires_grad_(False)
        return model

    problem = make(frozen)
    one, other = problem.model(), problem.model()
    assert same(one, other)
    assert problem.dimension == 5 * 3 + 3
    start = np.concatenate([p.detach().double().numpy().ravel() for p in one[3].parameters()])
    np.testing.assert_array_equal(problem.initial_point(), start)


def test_the_seed_of_the_model_sets_the_start_and_leaves_other_random_numbers_alone():
    before = torch.get_rng_state()
    assert not same(make(model_seed=1).model(), make(model_seed=2).model())
    assert torch.equal(torch.get_rng_state(), before)


def test_losses_are_those_of_the_model():
    problem = make(validation=(X[:7], Y[:7]))
    model = problem.model()
    with torch.no_grad():
        expected = functional.cross_entropy(model(X), Y)
        assert problem.full_loss(model) == pytest.approx(float(expected))
        assert problem.validation_loss(model) == pytest.approx(float(functional.cross_entropy(model(X[:7]), Y[:7])))
    rows = np.array([3, 1])
    assert torch.equal(problem.batch_loss(model, rows), functional.cross_entropy(model(X[rows]), Y[rows]))


def test_losses_over_many_rows_are_means_over_the_rows():
    """More rows than are evaluated at once, and not a multiple of them."""
    inputs = torch.randn(1300, 4, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(1300) % 3
    problem = make(data=(inputs, targets))
    model = problem.model()
    with torch.no_grad():
        expected = functional.cross_entropy(model(inputs).double(), targets)
    assert problem.full_loss(model) == pytest.approx(float(expected), rel=1e-6)


def test_full_losses_are_taken_in_evaluation_mode_and_leave_the_mode_as_it_was():
    problem = make(lambda: nn.Sequential(nn.BatchNorm1d(4), MODEL(), nn.Dropout(0.9)))
    model = problem.model()
    model[0].eval()  # a frozen layer stays frozen
    assert problem.full_loss(model) == problem.full_loss(model)
    assert (model.training, model[0].training, model[2].training) == (True, False, True)


def test_threads_are_those_asked_for_and_put_back():
    before = torch.get_num_threads()
    with make(threads=2).one_run():
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before


def test_precision_and_layout_are_given_to_the_model_and_the_images():
    seen = []

    class Watched(nn.Conv2d):
        def forward(self, inputs):
            found = super().forward(inputs)
            seen.append((inputs.is_contiguous(memory_format=torch.channels_last), found.dtype))
            return found.mean((2, 3))

    images = torch.randn(6, 4, 5, 5)
    problem = make(partial(Watched, 4, 3, 3), (images, Y[:6]), channels_last=True, autocast="bfloat16")
    model = problem.model()
    problem.batch_loss(model, np.arange(6))
    assert seen == [(True, torch.bfloat16)]
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


def test_augmentation_is_set_by_the_seed_and_left_out_without_one():
    problem = make(partial(networks.MLP, 64, (), 10), ImageInputs(digits("train"), padding=2))
    model, rows = problem.model(), np.arange(32)
    losses = [float(problem.batch_loss(model, rows, seed).detach()) for seed in (1, 1, 2, None, None)]
    assert losses[0] == losses[1] != losses[2]
    assert losses[3] == losses[4] != losses[0]


def test_the_loss_over_the_first_rows_only():
    problem, first = make(evaluated=7), make(data=(X[:7], Y[:7]))
    assert problem.full_loss(problem.model()) == first.full_loss(first.model()) != make().initial_losses[0]
    assert make(evaluated=20, name="another", device="cpu:0").fingerprint() == make().fingerprint()


# What tells two problems apart.

CHANGES = {
    "rows": {"data": (X + 1, Y)},
    "validation": {"validation": (X[:3], Y[:3])},
    "width": {"model": partial(networks.MLP, 4, (6,), 3)},
    "start": {"model_seed": 1},
    "loss": {"loss": lambda outputs, targets: functional.cross_entropy(outputs, targets)},
    "layout": {"channels_last": True},
    "precision": {"autocast": "bfloat16"},
    "threads": {"threads": 2},
    "evaluated": {"evaluated": 19},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_the_numbers_changes_the_fingerprint(change):
    assert make(**change).fingerprint() != make().fingerprint()


class Weighted(NetworkProblem):
    """Holds something of its own, under names that end as some of NetworkProblem's do."""

    user_identity = "nobody"

    def __init__(self, weight):
        super().__init__(MODEL, (X, Y), validation=(X[:5], Y[:5]))
        self.weight = weight

    def batch_loss(self, model, rows, seed=None):
        return self.weight * super().batch_loss(model, rows, seed)


def test_what_a_problem_of_yours_holds_counts_and_goes_to_other_processes():
    problem = Weighted(1.0)
    assert problem.fingerprint() == Weighted(1.0).fingerprint() != Weighted(5.0).fingerprint()
    problem.user_identity, problem.known_facts = "me", "all"
    copy = pickle.loads(pickle.dumps(problem))
    assert (copy.user_identity, copy.known_facts) == ("me", "all")
    assert copy.fingerprint() == problem.fingerprint()
    assert copy.initial_losses == problem.initial_losses


@pytest.mark.parametrize("name", ["digits-mlp", "digits-cnn"])
def test_named_networks_know_the_digits(name):
    problem = create(name)
    assert (problem.n_rows, problem.n_valid) == (1437, 360)
    assert problem.initial_losses[0] == pytest.approx(np.log(10), abs=1.0)


def test_characters_of_a_file(tmp_path):
    path, text = tmp_path / "text.txt", "the quick brown fox jumps over the lazy dog. " * 40
    path.write_text(text)
    problem = create("characters", data=str(path), context=16, d=8)
    assert problem.n_rows == (0.9 * len(text) - 1) // 16
    assert problem.initial_losses[0] == pytest.approx(np.log(28), abs=1.5)
    path.write_text(text[:100])
    with pytest.raises(ValueError, match="data must have over 16 characters in each part, the context, got 10"):
        create("characters", data=str(path), context=16, d=8)


# What is refused.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": 3}, TypeError, "model_factory must be a function, got 3"),
        ({"loss": "mse"}, TypeError, "loss must be a function, got 'mse'"),
        ({"autocast": "float16"}, ValueError, "autocast must be None or 'bfloat16', got 'float16'"),
        ({"threads": True}, ValueError, "threads must be a whole number"),
        ({"evaluated": 21}, ValueError, "evaluated must be at most the 20 training rows, got 21"),
        ({"device": "gpu"}, ValueError, "device must be a device of torch such as 'cpu' or 'cuda', got 'gpu'"),
        ({"data": 5}, TypeError, "data must be surefoot.data.Images"),
        ({"data": (X, Y[:3])}, ValueError, "inputs must have as many rows as targets, 3, got 20"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_here():
    with pytest.raises(ValueError, match="device must be one that is here, got 'cuda'"):
        make(device="cuda")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": lambda: 3}, TypeError, "model_factory must give a torch.nn.Module, got 3"),
        ({"model": nn.ReLU}, ValueError, "model_factory must give a model with parameters to train"),
        ({"loss": partial(functional.cross_entropy, reduction="none")}, TypeError, r"one number .*; got \(2,\)"),
        ({"loss": lambda outputs, targets: 3.0}, TypeError, "loss must give one number .* got float"),
        ({"model": partial(nn.Linear, 5, 3)}, RuntimeError, "mat1 and mat2 shapes cannot be multiplied"),
        ({"data": (X, Y + 9)}, RuntimeError, "network: model and loss fail on the first rows: IndexError: Target"),
    ],
)
def test_bad_models_and_losses_show_before_any_work(options, error, message):
    with pytest.raises(error, match=message):
        make(**options).fingerprint()


def test_validation_images_are_normalised_as_the_training_images():
    random = np.random.default_rng(0)
    dark, bright = (random.integers(low, low + 100, (16, 1, 8, 8), dtype=np.uint8) for low in (0, 150))
    labels, names = np.arange(16) % 2, ("a", "b")
    train, valid = Images("mine", dark, labels, names), Images("mine", bright, labels, names)
    told = Images("mine", bright, labels, names, *train.statistics())
    losses = [make(partial(networks.MLP, 64, (), 2), train, validation=held).initial_losses for held in (valid, told)]
    assert losses[0] == losses[1]
