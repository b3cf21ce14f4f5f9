"""Torch optimizers as methods: by name with options, or any of the user's."""

import pytest
import torch

import surefoot.optim as sfo
from surefoot.runs import has_level
from surefoot.runs._methods import OPTIMIZERS as NAMED
from surefoot.runs._methods import build
from surefoot.study import Method, Study, parse_method


def parameters():
    return [torch.nn.Parameter(torch.ones(3))]


@pytest.mark.parametrize("name", NAMED)
def test_every_name_trains(name):
    weights = parameters()
    optimizer = build(parse_method(name), weights, 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = weights[0].square().sum()
        loss.backward()
        optimizer.step(loss=loss) if isinstance(optimizer, sfo.LossOptimizer) else optimizer.step()
    assert weights[0].square().sum() < 3.0


def test_options_reach_the_optimizer():
    found = build(parse_method("adamw(weight_decay=0.1, eps=1e-6)"), parameters(), 0.1)
    assert (found.param_groups[0]["weight_decay"], found.param_groups[0]["eps"]) == (0.1, 1e-6)
    assert build(parse_method("sgd-momentum"), parameters(), 0.1).param_groups[0]["momentum"] == 0.9
    assert build(parse_method("sgd-momentum(momentum=0.5)"), parameters(), 0.1).param_groups[0]["momentum"] == 0.5


def test_the_lower_bound_goes_where_there_is_one():
    assert parse_method("momo", lower_bound=-2.0).lower_bound == -2.0
    assert parse_method("momo(lower_bound=-1)", lower_bound=-2.0).lower_bound == -1.0
    assert parse_method("momo").lower_bound == 0.0
    assert parse_method("adamw", lower_bound=-2.0).lower_bound is None
    assert Method("mine", optimizer=torch.optim.SGD).lower_bound is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adamx", "method must be .*adam.*, got 'adamx'"),
        ("adamw(momentum=0.9)", "parameter of method 'adamw' must be .*, got 'momentum'"),
        ("adamw(lr=0.1)", "parameter of method 'adamw' must be .*, got 'lr'"),
        ("adamw(eps=-1)", "method 'adamw': Invalid epsilon value: -1"),
        ("momo(lower_bound=true)", "momo"),
    ],
)
def test_bad_names_and_options(text, message):
    with pytest.raises(ValueError, match=message):
        parse_method(text)


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(TypeError, match=r"optimizer of the method 'mine' must give a torch.optim.Optimizer .* got 3"):
        build(Method("mine", optimizer=lambda parameters, lr: 3), parameters(), 0.1)


def test_the_exact_model_cannot_train_a_network():
    with pytest.raises(ValueError, match="the method 'spp' cannot train a network: it needs a prox"):
        build(parse_method("spp"), parameters(), 0.1)


@pytest.mark.parametrize("method", ["adamw", Method("mine", optimizer=torch.optim.SGD)])
def test_they_are_for_networks_only(method):
    with pytest.raises(ValueError, match="it is for networks"):
        Study("linear-regression", methods=[method], lrs=[0.1], epochs=1, batch_size=5)


def test_surefoot_has_a_level_of_its_own():
    methods = ["surefoot", "momo", "momo(lower_bound=level)"]
    study = Study("digits-mlp", methods=methods, lrs=[1.0], seeds=1, epochs=1, batch_size=64, lower_bound=0.5)
    assert [method.lower_bound for method in study.methods] == [None, 0.5, None]
    assert [has_level(method.identity) for method in study.methods] == [True, False, True]
    assert not has_level(parse_method("surefoot(lower_bound=0)").identity)
    assert parse_method("surefoot(lower_bound=0)").lower_bound == 0.0
