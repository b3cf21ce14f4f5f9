"""The stochastic proximal point for any closure: the exact model, minimised by ``torch.optim.LBFGS``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from surefoot.optim._distributed import check_parameter, check_process_group, is_distributed, mean_over_ranks
from surefoot.optim._interface import check_rate, raise_not_finite
from surefoot.optim._losses import check_closure, scalar
from surefoot.theory.models import Step, exact_delta

_REPORT = ("delta", "gap", "calls", "skipped", "all_calls")


class SPP(Optimizer):
    """The stochastic proximal point method: x⁺ = argmin_y f(y) + ‖y − x‖²/(2α), for any closure (Sec. 4.4).

    ``torch.optim.LBFGS`` calls the closure until (α/2)‖∇P‖² ≤ ``tolerance``·(P(x) − P(x⁺)), with P the function that is
    minimised. For a convex closure P is 1/α-strongly convex and P(x⁺) − P⋆ ≤ (α/2)‖∇P(x⁺)‖²: :attr:`last_gap` is this
    bound, so that the index of the exact step lies in [δ, δ + gap], up to rounding.

    The closure clears the gradients, computes the loss, differentiates it and returns it, as for ``torch.optim.LBFGS``.
    It has to be one function for the whole step: the same batch, and no dropout. A step costs a few calls at small
    rates and some tens at large ones.

    Args:
        params: parameters or parameter groups, which may have their own ``lr``; they have to be whole on every rank.
        lr: the rate α.
        tolerance: relative accuracy of the proximal problem.
        max_calls: calls of the closure in one step.
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
        if on_nonfinite not in ("skip", "raise"):
            raise ValueError(f"on_nonfinite must be one of 'skip', 'raise', got {on_nonfinite!r}")
        check_process_group(process_group)
        self._tolerance, self._max_calls = tolerance, max_calls
        self._on_nonfinite, self._process_group = on_nonfinite, process_group
        super().__init__(params, {"lr": check_rate("lr", lr)})
        self._complete()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group with its own ``lr``."""
        if "lr" in param_group:
            param_group["lr"] = check_rate("lr", param_group["lr"])
        super().add_param_group(param_group)
        try:
            for p in self.param_groups[-1]["params"]:
                check_parameter(p)
                if is_distributed(p):
                    raise TypeError("SPP needs every parameter whole on every rank, got a DTensor")
        except TypeError:
            self.param_groups.pop()
            raise

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._complete()

    def _complete(self) -> None:
        first = self.param_groups[0]
        for name in _REPORT:
            first.setdefault(name, torch.zeros((), dtype=torch.float64))
        for group in self.param_groups:
            group.setdefault("size", torch.zeros((), dtype=torch.float64))

    @property
    def last_step(self) -> Step:
        """The last step: ``size`` (its rate; one entry per group if the rates differ) and ``delta``, as tensors.

        A step that was skipped has size 0 and δ = ∞.
        """
        sizes = torch.stack([group["size"] for group in self.param_groups])
        return Step(sizes[0] if bool((sizes == sizes[0]).all()) else sizes, self.param_groups[0]["delta"].clone())

    @property
    def last_gap(self) -> Tensor:
        """(α/2)‖∇P(x⁺)‖² of the last step: for a convex closure a bound of P(x⁺) − P⋆."""
        return self._reported("gap")

    @property
    def calls(self) -> int:
        """Calls of the closure in all steps."""
        return int(self._reported("all_calls"))

    @property
    def skipped(self) -> Tensor:
        """How many steps were skipped because loss or gradient were not finite."""
        return self._reported("skipped")

    def _reported(self, name: str) -> Tensor:
        value: Tensor = self.param_groups[0][name]
        return value.clone()

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
        params = [p for group in self.param_groups for p in group["params"]]
        start = [p.detach().clone() for p in params]
        try:
            return self._solve(closure, params, start)
        except BaseException:
            self._put(params, start)
            raise

    def _solve(self, closure: Callable[[], Any], params: list[Tensor], start: list[Tensor]) -> Any:
        """Minimise P(w) = f(x + √α·w) + ½‖w‖², in whose coordinates all groups have the same curvature."""
        rates = {id(p): float(check_rate("lr", g["lr"])) for g in self.param_groups for p in g["params"]}
        record: dict[str, Any] = {"calls": 0, "best": math.inf}
        moved: list[tuple[Tensor, Tensor, float, Tensor]] = []
        """Parameters that have a gradient at x, with x, √α and w."""

        def evaluate() -> Tensor:
            """P and its gradient at w; remembers where it was smallest."""
            with torch.no_grad():
                for p, x, root, w in moved:
                    p.copy_(torch.add(x, w, alpha=root))
            with torch.enable_grad():
                returned = closure()
            if returned is None:
                raise ValueError("closure must return the loss, got None")
            if not record["calls"]:
                for p, x in zip(params, start, strict=True):
                    if p.grad is not None:
                        moved.append((p, x, math.sqrt(rates[id(p)]), torch.zeros_like(x).requires_grad_()))
            record["calls"] += 1
            own = torch.as_tensor(float(scalar(returned)), dtype=torch.float64)
            loss = float(mean_over_ranks(self._process_group, own))
            record.setdefault("returned", returned.detach().clone() if isinstance(returned, Tensor) else returned)
            record.setdefault("start", loss)
            with torch.no_grad():
                for p, _, root, w in moved:
                    w.grad = w.clone() if p.grad is None else torch.add(w, p.grad, alpha=root)
            step_sq = math.fsum(float(w.detach().double().square().sum()) for *_, w in moved)
            residual = 0.5 * math.fsum(float(w.grad.double().square().sum()) for *_, w in moved if w.grad is not None)
            value = loss + 0.5 * step_sq
            if record["calls"] == 1 or value < record["best"]:
                points = [w.detach().clone() for *_, w in moved]
                record.update(best=value, loss=loss, step_sq=step_sq, gap=residual, points=points)
            return torch.tensor(value, dtype=torch.float64)

        evaluate()
        if not moved:
            return record["returned"]
        if not math.isfinite(record["best"] + record["gap"]):
            if self._on_nonfinite == "raise":
                raise_not_finite(record["start"])
            self._note([0.0] * len(self.param_groups), math.inf, math.inf, 1, 1)
            return record["returned"]
        options: dict[str, Any] = {"max_iter": 1, "max_eval": 25, "history_size": 10, "line_search_fn": "strong_wolfe"}
        solver = LBFGS([w for *_, w in moved], lr=1.0, tolerance_grad=0.0, tolerance_change=0.0, **options)
        while record["calls"] < self._max_calls:
            if record["gap"] <= self._tolerance * (record["start"] - record["best"]) or record["gap"] == 0.0:
                break
            before = record["best"]
            solver.step(evaluate)  # type: ignore[no-untyped-call]
            if not record["best"] < before:  # rounding is all that is left
                break
        ends = [torch.add(x, w, alpha=root) for (_, x, root, _), w in zip(moved, record["points"], strict=True)]
        self._put([p for p, *_ in moved], ends)
        delta = exact_delta(record["start"], record["loss"], record["step_sq"], 1.0)
        self._note([float(g["lr"]) for g in self.param_groups], delta, record["gap"], record["calls"], 0)
        return record["returned"]

    @torch.no_grad()
    def _put(self, params: list[Tensor], values: list[Tensor]) -> None:
        for p, value in zip(params, values, strict=True):
            p.copy_(value)

    def _note(self, sizes: list[float], delta: float, gap: float, calls: int, skipped: int) -> None:
        first = self.param_groups[0]
        for name, value in (("delta", delta), ("gap", gap), ("calls", calls)):
            first[name].fill_(value)
        first["skipped"].add_(skipped)
        first["all_calls"].add_(calls)
        for group, size in zip(self.param_groups, sizes, strict=True):
            group["size"].fill_(size)
