"""step() without a loss: it is heard from loss.backward(), or refused with a reason."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.optim.optim_problem import Problem, distance, equal, make, train
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import surefoot.optim as sfo


def differentiate(problem: Problem, index: int, part: slice = slice(None), factor: float = 1.0) -> Tensor:
    inputs, targets = problem.batch(index)
    loss = factor * problem.loss_of(inputs[part], targets[part])
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


@pytest.mark.parametrize("clear", ["optimizer", "none", "zeros", "not at all"])
def test_accumulated_losses_are_summed_and_forgotten(clear: str) -> None:
    told, heard = Problem(), Problem()
    left, right = make("NGN", told.params), make("NGN", heard.params)
    for index in range(4):
        for problem, optimizer in ((told, left), (heard, right)):
            losses = [differentiate(problem, index, half, 0.5) for half in (slice(0, 8), slice(8, 16))]
            optimizer.step(**({"loss": sum(losses)} if problem is told else {}))
            if clear == "optimizer":
                optimizer.zero_grad()
            for p in problem.params if clear in ("none", "zeros") else ():
                assert clear == "none" or p.grad is not None
                p.grad = None if clear == "none" else torch.zeros_like(p)
    assert equal(told.values(), heard.values())


def test_an_explicit_loss_wins() -> None:
    told, heard = Problem(), Problem()
    for problem, listen in ((told, False), (heard, True)):
        optimizer = make("SPS", problem.params, lr=100.0, listen=listen)
        differentiate(problem, 0)
        optimizer.step(loss=0.5)
        optimizer.zero_grad()
        loss = differentiate(problem, 1)
        optimizer.add_loss(0.5 * loss)
        optimizer.step()
    assert equal(told.values(), heard.values())


def test_a_closure_wins_and_knows_nothing_of_what_it_has_cleared() -> None:
    told, heard = Problem(), Problem()
    train(told, make("NGN", told.params), [0])
    optimizer = make("NGN", heard.params)
    differentiate(heard, 3)  # its gradients are dropped by the closure

    def closure() -> Tensor:
        optimizer.zero_grad()
        return differentiate(heard, 0)

    optimizer.step(closure)
    assert equal(told.values(), heard.values())


def test_a_closure_that_keeps_earlier_gradients_keeps_their_losses() -> None:
    told, heard = Problem(), Problem()
    train(told, make("NGN", told.params), [0])
    optimizer = make("NGN", heard.params)
    differentiate(heard, 0, slice(0, 8), 0.5)
    optimizer.step(lambda: differentiate(heard, 0, slice(8, 16), 0.5))
    assert distance(told.values(), heard.values()) <= 1e-12


@pytest.mark.parametrize("how", ["loss", "add_loss", "heard"])
def test_a_closure_that_returns_none_yields(how: str) -> None:
    told, heard = Problem(), Problem()
    train(told, make("NGN", told.params), [0])
    optimizer = make("NGN", heard.params)
    loss = differentiate(heard, 0)
    if how == "add_loss":
        optimizer.add_loss(loss)
    optimizer.step(lambda: None, **({"loss": loss} if how == "loss" else {}))
    assert equal(told.values(), heard.values())


@pytest.mark.parametrize("gradient", [torch.tensor(0.25, dtype=torch.float64), None])
def test_a_gradient_argument_weighs_the_loss(gradient: Tensor | None) -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    loss = problem.loss(0)
    loss.backward(gradient)  # type: ignore[no-untyped-call]
    assert optimizer.step() == (1.0 if gradient is None else 0.25) * loss


@pytest.mark.parametrize("how", ["two losses", "two elements"])
def test_several_losses_at_once_raise_a_doubt(how: str) -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    losses = [problem.loss(0), problem.loss(1)]
    if how == "two losses":
        torch.autograd.backward(losses)
    else:
        torch.stack(losses).backward(torch.ones(2, dtype=torch.float64))  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="several losses or elements at once: call it on their sum"):
        optimizer.step()


def test_two_optimizers_hear_what_reaches_their_parameters() -> None:
    """A generator and a discriminator, whose gradients are cleared by their modules and not by the optimizers."""
    torch.manual_seed(0)
    nets = [torch.nn.Linear(3, 3).double(), torch.nn.Linear(3, 1).double()]
    for set_to_none in (True, False):
        generator, discriminator = (sfo.NGN(net.parameters(), lr=0.1) for net in nets)
        for _ in range(3):
            noise = torch.randn(4, 3, dtype=torch.float64)
            nets[1].zero_grad(set_to_none)
            loss = nets[1](nets[0](noise).detach()).square().mean()
            loss.backward()
            assert discriminator.step() == loss
            nets[0].zero_grad(set_to_none)
            loss = (nets[1](nets[0](noise)) - 1.0).square().mean()
            loss.backward()
            assert generator.step() == loss


def test_gradients_changed_in_between_raise_a_doubt() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    differentiate(problem, 0)
    for p in problem.params:
        assert p.grad is not None
        p.grad.mul_(0.5)
    differentiate(problem, 1)
    with pytest.raises(ValueError, match="the gradients were changed between two backward passes"):
        optimizer.step()
    optimizer.zero_grad()
    assert optimizer.step(loss=differentiate(problem, 2)) is not None


def test_a_loss_of_somebody_elses_parameters_is_not_heard() -> None:
    problem, other = Problem(), Problem()
    optimizer = make("NGN", problem.params)
    differentiate(other, 0)
    with pytest.raises(ValueError, match=r"needs the loss \(it has received none"):
        optimizer.step()


def test_without_listening_nothing_is_heard() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params, listen=False)
    differentiate(problem, 0)
    with pytest.raises(ValueError, match="needs the loss"):
        optimizer.step()


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_network_is_heard_once(reentrant: bool) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    optimizer = sfo.NGN(net.parameters(), lr=0.1)
    inputs = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    loss = checkpoint(net, inputs, use_reentrant=reentrant).square().mean()
    loss.backward()
    assert optimizer.step() == loss


@pytest.mark.parametrize("unscale", [False, True])
def test_the_scale_of_a_scaler_is_taken_back(unscale: bool) -> None:
    told, heard = Problem(), Problem()
    left = train(told, make("NGN", told.params), range(3))
    optimizer = make("NGN", heard.params)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for index in range(3):
        optimizer.zero_grad()
        loss = heard.loss(index)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert distance(left, heard.values()) <= 1e-12


@pytest.mark.parametrize("order", ["heard", "added before", "added after"])
def test_a_step_that_a_scaler_leaves_out_is_not_counted(order: str) -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for index in (0, 1):
        for p in problem.params:
            p.grad = None  # not by the optimizer's zero_grad
        loss = problem.loss(index)
        if order == "added before":
            optimizer.add_loss(loss)
        scaler.scale(loss).backward()
        if order == "added after":
            optimizer.add_loss(loss)
        if index == 0:
            assert problem.params[0].grad is not None
            problem.params[0].grad.fill_(float("inf"))
            scaler.step(optimizer)
            scaler.update()
    scaler.unscale_(optimizer)
    assert optimizer.step().item() == pytest.approx(loss.item())


def test_no_graph_is_kept_alive() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    loss = problem.loss(0)
    node = weakref.ref(loss)
    loss.backward()  # type: ignore[no-untyped-call]
    assert optimizer._losses.received is not None
    assert optimizer._losses.received.grad_fn is None
    del loss
    gc.collect()
    assert node() is None


def test_torch_is_as_it_was_when_the_last_one_is_gone() -> None:
    gc.collect()
    plain = torch.autograd.backward, torch.amp.GradScaler.unscale_
    while hasattr(plain[0], "__wrapped__"):  # somebody else still listens
        plain = plain[0].__wrapped__, plain[1].__wrapped__  # type: ignore[attr-defined]
    first, second = (make("NGN", Problem().params) for _ in range(2))
    assert torch.autograd.backward is not plain[0]
    del first
    gc.collect()
    assert torch.autograd.backward is not plain[0]
    del second
    gc.collect()
    assert (torch.autograd.backward, torch.amp.GradScaler.unscale_) == plain
    silent = make("NGN", Problem().params, listen=False)
    assert torch.autograd.backward is plain[0]
    assert silent is not None


def test_an_optimizer_may_be_collected_during_the_backward_pass_of_another() -> None:
    def trained() -> list[Any]:
        problem = Problem()
        optimizer = make("NGN", problem.params)
        differentiate(problem, 0)
        optimizer.step()
        differentiate(problem, 1)
        return [problem, optimizer]

    old, (problem, optimizer) = trained(), trained()
    optimizer.zero_grad()
    first = next(iter(problem.params))
    first.register_hook(lambda gradient: (old.clear(), gc.collect())[0])
    loss = differentiate(problem, 2)
    assert not old
    assert optimizer.step() == loss


@pytest.mark.parametrize("again", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_listens_too(again: Callable[[Any], Any]) -> None:
    problem = Problem()
    other, optimizer = again((problem, make("NGN", problem.params)))
    loss = differentiate(other, 0)
    assert optimizer.step() == loss


def test_a_loaded_optimizer_listens_on() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    optimizer.load_state_dict(make("NGN", problem.params).state_dict())
    loss = differentiate(problem, 0)
    assert optimizer.step() == loss


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_compiled_step_hears_too() -> None:
    told, heard = Problem(), Problem()
    left = train(told, make("NGN", told.params), range(4))
    optimizer = make("NGN", heard.params)
    step = torch.compile(optimizer.step, backend="eager")
    for index in range(4):
        optimizer.zero_grad()
        differentiate(heard, index)
        step()
    torch._dynamo.reset()
    assert distance(left, heard.values()) <= 1e-12


@pytest.mark.parametrize("how", ["heard", "added"])
def test_a_loss_that_is_changed_before_the_step_was_taken_as_it_was(how: str) -> None:
    left, right = Problem(), Problem()
    for problem, factor in ((left, 1.0), (right, 10.0)):
        optimizer = make("SPS", problem.params, listen=how == "heard")
        loss = differentiate(problem, 0)
        if how == "added":
            optimizer.add_loss(loss)
        loss.detach().mul_(factor)
        optimizer.step()
    assert equal(left.values(), right.values())


@pytest.mark.parametrize("how", ["heard", "added"])
def test_losses_of_little_precision_are_summed_with_more(how: str) -> None:
    x = torch.nn.Parameter(torch.full((4,), 2.0))
    optimizer = sfo.SPS([x], listen=how == "heard")
    for _ in range(512):
        loss = (0.5 * x.square().sum()).bfloat16() / 512
        loss.backward()
        if how == "added":
            optimizer.add_loss(loss)
    assert optimizer.pending_loss == 8.0


def test_a_failed_backward_is_forgotten_with_its_gradients() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)

    def fail(_: Tensor) -> None:
        raise RuntimeError("out of memory")

    handle = problem.params[0].register_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        differentiate(problem, 0)
    handle.remove()
    assert any(p.grad is not None for p in problem.params)
    assert "failed" in str(optimizer._losses.doubt)
    for p in problem.params:
        p.grad = torch.zeros_like(p)
    loss = differentiate(problem, 1)
    assert optimizer.step() == loss.detach()


def test_losses_of_new_groups_and_of_thawed_parameters_are_received() -> None:
    old, new = Problem(), Problem(seed=1)
    optimizer = torch.optim.SGD(old.params, lr=0.1)
    losses = sfo.Losses(optimizer, listen=True)
    for p in new.params:
        p.requires_grad_(False)
    optimizer.add_param_group({"params": new.params})
    losses.forget()
    for p in new.params:
        p.requires_grad_(True)
    losses.forget()
    loss = differentiate(new, 0)
    assert losses.pending == loss
