"""The stochastic proximal point for any closure: the exact model, minimised by ``torch.optim.LBFGS``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS

from surefoot.optim._distributed import is_distributed, mean_over_ranks
from surefoot.optim._interface import ReportingOptimizer, check_rate
from surefoot.optim._losses import check_closure, scalar
from surefoot.optim._tensors import scalar_dtype
from surefoot.theory.models import exact_delta


class SPP(ReportingOptimizer):
    """The stochastic proximal point method: x⁺ = argmin_y f(y) + ‖y − x‖²/(2α), for any closure (Sec. 4.4).

    ``torch.optim.LBFGS`` calls the closure until (α/2)‖∇P‖² ≤ ``tolerance``·(P(x) − P(x⁺)), with P the function that is
    minimised. For a convex closure P is 1/α-strongly convex, so that the left-hand side bounds P(x⁺) − min P, and the
    index of the exact step lies between δ and δ plus that, up to rounding.

    The closure clears the gradients, computes the loss, differentiates it and returns it, as for ``torch.optim.LBFGS``.
    It has to be one function for the whole step: the same batch, and no dropout.

    Args:
        params: parameters or parameter groups, which may have their own ``lr``; they have to be whole on every rank.
        lr: the rate α.
        tolerance: relative accuracy of the proximal problem.
        max_calls: calls of the closure after which a step looks for no better point.
        on_nonfinite: ``"skip"`` leaves the parameters untouched and counts if loss or gradient at x are not finite;
            ``"raise"`` raises ``ValueError``.
        process_group: the loss is averaged over this group, as in :class:`ModelBased`.

    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> opt = SPP([x], lr=1.0)
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = 0.5 * x.square().sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = opt.step(closure)
    >>> x.detach().round(decimals=4), round(opt.last_step.delta.item(), 4)  # x/(1 + α), and the fall of the envelope
    (tensor([1.5000, 2.0000]), 6.25)
    """

    needs_closure = True
    """Steps cannot be taken with a loss alone."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        *,
        tolerance: float = 1e-6,
        max_calls: int = 100,
        on_nonfinite: str = "skip",
        process_group: Any = "auto",
    ) -> None:
        if not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
            raise ValueError(f"tolerance must be a number in (0, 1), got {tolerance!r}")
        if not isinstance(max_calls, int) or max_calls < 2:
            raise ValueError(f"max_calls must be an integer of at least 2, got {max_calls!r}")
        self._tolerance, self._max_calls = tolerance, max_calls
        defaults = {"lr": check_rate("lr", lr)}
        super().__init__(params, defaults, on_nonfinite=on_nonfinite, process_group=process_group)

    def _check_group(self, group: dict[str, Any]) -> None:
        if any(is_distributed(p) for p in group["params"]):
            raise TypeError("SPP needs every parameter whole on every rank, got a DTensor")

    def _memory(self) -> Mapping[str, float]:
        return {"count": 0.0, "bound": 0.0}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step, with as many calls of the closure as it needs; returns the loss before it.

        Should the closure raise, the parameters are back where they were. Without closure it is an error, unless every
        rate is 0: then nothing happens, which distributed checkpointing relies on.
        """
        check_closure(closure)
        if closure is None:
            if all(float(group["lr"]) == 0.0 for group in self.param_groups):
                return None
            raise ValueError("SPP.step needs a closure: it clears the gradients, computes the loss, differentiates it")
        problem = _Proximal(self.param_groups, closure, self._process_group)
        if not problem.params:  # nothing has a gradient
            return problem.returned
        is_finite = math.isfinite(problem.value + problem.slope_sq)
        if is_finite:
            problem.solve(self._tolerance, self._max_calls)
        delta = exact_delta(problem.first, problem.loss, float(problem.best.square().sum()), 1.0)
        finite = torch.full_like(self._like, is_finite, dtype=torch.bool)
        loss, index, grad_sq = (self._scalar(value) for value in (problem.first, delta, problem.grad_sq))
        sizes = [self._scalar(group["lr"]) for group in self.param_groups]
        past = self._past()
        self._record({**past, "count": past["count"] + 1.0}, loss, finite, ~finite, index, grad_sq, sizes)
        return problem.returned


class _Proximal:
    """P(w) = f(x + √α·w) + ½‖w‖², in whose coordinates all groups have the same curvature."""

    def __init__(self, groups: list[dict[str, Any]], closure: Callable[[], Any], process_group: Any) -> None:
        self._closure, self._process_group = closure, process_group
        self.returned, self.first = self._call()
        """What the closure returns at x, and the loss there."""
        self.loss = self.value = self.slope_sq = math.inf
        """The loss, P and ‖∇P‖² at ``best``, the w where P was smallest."""
        rates = {p: check_rate("lr", group["lr"]) for group in groups for p in group["params"] if p.grad is not None}
        self.params, self._calls = list(rates), 0
        if self.params:
            like = torch.zeros((), dtype=scalar_dtype(self.params[0].device), device=self.params[0].device)
            roots = [like.new_full((p.numel(),), math.sqrt(rate)) for p, rate in rates.items()]
            self._x, self._roots = torch.cat([p.flatten().to(like) for p in self.params]), torch.cat(roots)
            self._w = torch.zeros_like(self._x).requires_grad_()
            self.grad_sq = sum(float(p.grad.double().square().sum()) for p in self.params if p.grad is not None)
            self._note(self.first)

    def _put(self, w: Tensor) -> None:
        """Bring the parameters to x + √α·w."""
        pieces = torch.split(self._x + self._roots * w, [p.numel() for p in self.params])
        for p, piece in zip(self.params, pieces, strict=True):
            p.copy_(piece.view_as(p))

    def _call(self) -> tuple[Any, float]:
        """What the closure returns, copied, and the loss: the mean over the ranks."""
        with torch.enable_grad():
            returned = self._closure()
        if returned is None:
            raise ValueError("closure must return the loss, got None")
        own = torch.as_tensor(float(scalar(returned)), dtype=torch.float64)
        copied = returned.detach().clone() if isinstance(returned, Tensor) else returned
        return copied, float(mean_over_ranks(self._process_group, own))

    def _note(self, loss: float) -> Tensor:
        """P at w, from the loss and the gradients that are in place there; remembers where it was smallest."""
        w = self._w.detach()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        self._w.grad = w + self._roots * torch.cat([g.flatten().to(w) for g in gradients])
        value = loss + 0.5 * float(w.square().sum())
        if not self._calls or value < self.value:
            self.loss, self.value, self.best = loss, value, w.clone()
            self.slope_sq = float(self._w.grad.square().sum())
        self._calls += 1
        return torch.tensor(value, dtype=torch.float64)

    @torch.no_grad()
    def _evaluate(self) -> Tensor:
        """P at w, with its gradient."""
        self._put(self._w.detach())
        return self._note(self._call()[1])

    def solve(self, tolerance: float, max_calls: int) -> None:
        """Minimise P until (α/2)‖∇P‖² is small beside what was gained, or only rounding is left; go to that point."""
        options: dict[str, Any] = {"max_iter": 1, "max_eval": 25, "history_size": 10, "line_search_fn": "strong_wolfe"}
        solver = LBFGS([self._w], lr=1.0, tolerance_grad=0.0, tolerance_change=0.0, **options)
        before, end = math.inf, torch.zeros_like(self.best)
        try:
            while self._calls < max_calls and self.value < before:
                if 0.5 * self.slope_sq <= tolerance * (self.first - self.value) or self.slope_sq == 0.0:
                    break
                before = self.value
                solver.step(self._evaluate)  # type: ignore[no-untyped-call]
            end = self.best
        finally:
            self._put(end)
