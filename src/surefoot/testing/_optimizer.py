"""Checks of a torch optimizer."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from surefoot.testing._model import require

Factory = Callable[[Iterable[Any]], Any]

_DTYPES = (torch.float32, torch.float64, torch.bfloat16)


class _Problem:
    """A small network on a stream of batches, the same for every optimizer that is compared."""

    def __init__(
        self, factory: Factory, dtype: torch.dtype = torch.float64, *, frozen: bool = False, steepness: float = 1.0
    ) -> None:
        self.steepness = steepness
        generator = torch.Generator().manual_seed(0)
        shapes = ((6, 4), (6,), (1, 6), (1,))
        self.params = [
            torch.nn.Parameter((0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype))
            for shape in shapes
        ]
        self.extra = torch.nn.Parameter(torch.ones(3, dtype=dtype))  # never used: it has no gradient
        self.optimizer = factory([*self.params, self.extra] if frozen else self.params)

    def loss(self, index: int) -> Tensor:
        """The mean loss on batch number ``index``."""
        generator = torch.Generator().manual_seed(100 + index)
        inputs = torch.randn((16, 4), generator=generator, dtype=torch.float64).to(self.params[0].dtype)
        first, bias, second, offset = self.params
        outputs = torch.tanh(inputs @ first.T + bias) @ second.T + offset
        return self.steepness * (outputs - torch.sin(inputs.sum(1, keepdim=True)) - 2.0).square().mean()

    def backward(self, index: int) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(index)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def take(self, compute: Callable[[], Tensor]) -> None:
        """A step with the loss that ``compute`` returns, after it has put the gradients in place."""
        if getattr(self.optimizer, "needs_closure", False):
            self.optimizer.step(compute)
        else:
            self.optimizer.step(loss=compute())

    def run(self, batches: Iterable[int], how: str = "loss") -> list[Tensor]:
        for index in batches:
            if how == "closure":
                self.optimizer.step(lambda index=index: self.backward(index))
            elif how == "add_loss":
                self.optimizer.zero_grad()
                for _ in range(2):
                    half = 0.5 * self.loss(index)
                    half.backward()  # type: ignore[no-untyped-call]
                    self.optimizer.add_loss(half)
                self.optimizer.step()
            else:
                self.take(functools.partial(self.backward, index))
        return self.values()

    def values(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.params]


def check_optimizer(factory: Factory) -> None:
    """Check an optimizer for everything that training code relies on; raise ``AssertionError`` if something fails.

    The loss falls on a small problem in float32, float64 and bfloat16; ``loss=``, closure and accumulated losses give
    the same steps; two equal groups are one; parameters without gradient stay; a scheduler of torch changes the rate;
    save and load (without pickled code) and deepcopy continue bitwise; a NaN loss or gradient, and a loss of several
    elements, leave the parameters untouched; ``train()`` undoes ``eval()``.

    Args:
        factory: Makes the optimizer from an iterable of parameters or parameter groups. It takes the loss as
            ``step(loss=loss)`` or from a closure, as :class:`surefoot.optim.LossOptimizer` does; one that cannot do
            without a closure has an attribute ``needs_closure = True``. ``add_loss``, ``last_step``, ``train`` and
            ``eval`` are checked if it has them.

    >>> import surefoot.optim as sfo
    >>> check_optimizer(lambda params: sfo.SPS(params, lr=0.1))
    """
    for check in _CHECKS:
        check(factory)


def _distance(left: list[Tensor], right: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


def _check_descent(factory: Factory) -> None:
    for dtype in _DTYPES:
        problem = _Problem(factory, dtype)
        before = sum(float(problem.loss(i).detach()) for i in range(5))
        problem.run(range(20))
        after = sum(float(problem.loss(i).detach()) for i in range(5))
        require(after < before, f"{dtype}: twenty steps did not reduce the loss ({before:.4g} -> {after:.4g})")
        kept = all(p.dtype is dtype for p in problem.params)
        require(kept, f"{dtype}: the parameters changed their dtype")


def _check_ways_to_give_the_loss(factory: Factory) -> None:
    plain = _Problem(factory).run(range(6))
    require(
        _distance(plain, _Problem(factory).run(range(6), "closure")) == 0, "step(closure) differs from step(loss=loss)"
    )
    problem = _Problem(factory)
    if hasattr(problem.optimizer, "add_loss"):
        apart = _distance(plain, problem.run(range(6), "add_loss"))
        require(apart <= 1e-9, f"accumulated halves differ from the whole by {apart:.1e}: add_loss does not sum losses")


def _check_groups(factory: Factory) -> None:
    def split(params: Iterable[Tensor]) -> Any:
        params = list(params)
        return factory([{"params": params[:2]}, {"params": params[2:]}])

    for steepness, steps in ((1.0, 6), (100.0, 2)):  # on the steep problem a Polyak step is no longer the rate itself
        plain = _Problem(factory, steepness=steepness).run(range(steps))
        apart = _distance(plain, _Problem(split, steepness=steepness).run(range(steps)))
        require(apart <= 1e-9, f"two groups with equal options move differently from one group, by {apart:.1e}")


def _check_frozen(factory: Factory) -> None:
    plain = _Problem(factory).run(range(3))
    problem = _Problem(factory, frozen=True)
    require(_distance(plain, problem.run(range(3))) == 0, "a parameter without gradient changes the step of the others")
    require(bool((problem.extra == 1).all()), "a parameter without gradient was moved")


def _check_schedule(factory: Factory) -> None:
    problem = _Problem(factory)
    for group in problem.optimizer.param_groups:
        require("lr" in group, "param_groups have no 'lr': schedulers of torch cannot work")
    scheduler = torch.optim.lr_scheduler.LambdaLR(problem.optimizer, lambda step: 1.0 if step == 0 else 0.0)
    problem.run([0])
    scheduler.step()
    resting = problem.values()
    problem.run([1])
    moved = _distance(resting, problem.values())
    require(moved == 0.0, f"the parameters move by {moved:.2g} although a scheduler has set the rate to 0")


def _check_resume(factory: Factory) -> None:
    for dtype in _DTYPES:
        whole = _Problem(factory, dtype).run(range(8))
        first = _Problem(factory, dtype)
        first.run(range(4))
        file = io.BytesIO()
        torch.save({"params": first.values(), "optimizer": first.optimizer.state_dict()}, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        second = _Problem(factory, dtype)
        with torch.no_grad():
            for p, value in zip(second.params, saved["params"], strict=True):
                p.copy_(value)
        second.optimizer.load_state_dict(saved["optimizer"])
        apart = _distance(whole, second.run(range(4, 8)))
        require(apart == 0.0, f"{dtype}: a run continued from state_dict differs from an unbroken one by {apart:.1e}")
        twin = copy.deepcopy(first)
        try:
            apart = _distance(whole, twin.run(range(4, 8)))
        except AttributeError as error:
            raise AssertionError(f"a deep copy of the optimizer does not work: {error}") from error
        require(apart == 0.0, f"{dtype}: a deep copy continues differently, by {apart:.1e}")


def _check_bad_input(factory: Factory) -> None:
    def unchanged(what: str, spoil: Callable[[_Problem, Tensor], Any]) -> None:
        problem = _Problem(factory)
        problem.run(range(2))
        before = problem.values()
        # Refusing is as good as skipping: what counts is that the parameters stay.
        with contextlib.suppress(ValueError, TypeError, RuntimeError, ArithmeticError):
            problem.take(lambda: spoil(problem, problem.backward(2).detach()))
        require(_distance(before, problem.values()) == 0, f"{what} has moved the parameters")
        values = problem.run([3])
        require(all(bool(v.isfinite().all()) for v in values), f"after {what} a good step gave non-finite parameters")

    def nan_gradient(problem: _Problem, loss: Tensor) -> Tensor:
        grad = problem.params[1].grad
        assert grad is not None
        grad[0] = math.nan
        return loss

    unchanged("a NaN loss", lambda problem, loss: loss * math.nan)
    unchanged("a NaN gradient", nan_gradient)
    unchanged("a loss of several elements", lambda problem, loss: loss.expand(3))


def _check_last_step(factory: Factory) -> None:
    problem = _Problem(factory)
    if not hasattr(problem.optimizer, "last_step"):
        return
    problem.run([0])
    size, delta = problem.optimizer.last_step
    require(isinstance(size, Tensor) and isinstance(delta, Tensor), "last_step should hold tensors")
    require(bool((size > 0).all()), f"last_step.size should be positive after a good step, got {size}")
    require(bool(torch.isfinite(delta)), f"last_step.delta should be finite after a good step, got {delta}")


def _check_modes(factory: Factory) -> None:
    problem = _Problem(factory)
    if not (hasattr(problem.optimizer, "train") and hasattr(problem.optimizer, "eval")):
        return
    problem.run(range(4))
    before = problem.values()
    problem.optimizer.eval()
    problem.optimizer.train()
    apart = _distance(before, problem.values())
    require(apart <= 1e-9, f"train() after eval() leaves the parameters {apart:.1e} away from where they were")
    problem.run([4])


_CHECKS = (
    _check_descent, _check_ways_to_give_the_loss, _check_groups, _check_frozen, _check_schedule, _check_resume,
    _check_bad_input, _check_last_step, _check_modes,
)  # fmt: skip
