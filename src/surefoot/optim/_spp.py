"""The stochastic proximal point for any closure: the exact model, solved to a certified accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim._arithmetic import Host
from surefoot.optim._distributed import check_parameter, is_distributed, mean_over_ranks
from surefoot.optim._losses import check_closure, scalar
from surefoot.optim._minimise import Evaluation, lbfgs, newton_cg
from surefoot.optim._settings import check_choice, check_process_group, check_rate
from surefoot.optim._skipped import raise_not_finite
from surefoot.optim._state import NamedScalars, name_old_vectors
from surefoot.theory.models import Step, exact_delta

_SETTINGS = ("inner", "tolerance", "max_calls", "history", "weak_convexity", "on_nonfinite", "process_group")
_FIELDS = ("delta", "gap", "residual", "calls", "reached", "all_calls", "skipped")
"""Names of the numbers that are noted in the first group."""


class ProximalStep(NamedTuple):
    """How well a step of :class:`SPP` has solved its proximal problem P(y) = f(y) + ‖y − x‖²/(2α)."""

    delta: float
    """P(x) − P(x⁺) = f(x) − f(x⁺) − ‖x⁺ − x‖²/(2α): the index of the step that was taken."""
    gap: float
    """A bound of P(x⁺) − P⋆; ∞ if the closure is not known to be convex."""
    residual: float
    """(α/2)‖∇P(x⁺)‖², which the inner solver brings down to ``tolerance``·δ."""
    calls: int
    """Calls of the closure."""
    reached: bool
    """Whether the tolerance was reached; if not, rounding or ``max_calls`` has ended the search."""

    @property
    def certified(self) -> bool:
        """Whether :attr:`interval` is proved."""
        return math.isfinite(self.gap)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the index δ = P(x) − P⋆ of the exact proximal point lies; the upper end is ∞ if nothing is proved."""
        return self.delta, self.delta + self.gap


class SPP(Optimizer):
    """The stochastic proximal point method: x⁺ = argmin_y f(y) + ‖y − x‖²/(2α), for any closure (Sec. 4.4).

    An inner solver calls the closure until (α/2)‖∇P‖² ≤ ``tolerance``·(P(x) − P(x⁺)). For a convex closure P is
    1/α-strongly convex and P(x⁺) − P⋆ ≤ (α/2)‖∇P(x⁺)‖², so that :attr:`last_proximal` holds a proved interval of δ (up
    to rounding). Without that knowledge x⁺ is as good a stationary point as was asked for, and nothing is certified.

    The closure clears the gradients, computes the loss, differentiates it and returns it, as for ``torch.optim.LBFGS``.
    It has to be one function for the whole step: the same batch, and no dropout. A step costs a few calls at small
    rates and some tens at large ones, and some vectors of the parameters' size (L-BFGS: 2·``history``).

    Args:
        params: parameters or parameter groups, which may have their own ``lr``; they have to be whole on every rank.
        lr: the rate α.
        inner: ``"lbfgs"``, or ``"newton-cg"`` with differences of gradients for Hessian products.
        tolerance: relative accuracy of the proximal problem.
        max_calls: calls of the closure in one step, roughly: a solver ends its iteration first.
        convex: the closure is convex in the parameters, so certify.
        weak_convexity: η such that f + η/2‖·‖² is convex, in place of ``convex`` (which is η = 0). Certified are then
            steps with α < 1/η, by P(x⁺) − P⋆ ≤ α/(2(1 − αη))·‖∇P‖².
        history: pairs that L-BFGS remembers within a step.
        on_nonfinite: ``"skip"`` leaves the parameters untouched and counts if loss or gradient at x are not finite;
            ``"raise"`` raises ``ValueError``.
        process_group: the loss is averaged over this group, as in :class:`ModelBased`.

    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> opt = SPP([x], lr=1.0, convex=True)
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = 0.5 * x.square().sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = opt.step(closure)
    >>> x.detach(), opt.last_step.delta.item()                 # x/(1 + α), and the drop of the Moreau envelope
    (tensor([1.5000, 2.0000]), 6.25)
    >>> opt.last_proximal.certified, opt.last_proximal.calls
    (True, 3)
    """

    needs_closure = True
    """Steps cannot be taken with a loss alone."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        *,
        inner: str = "lbfgs",
        tolerance: float = 1e-6,
        max_calls: int = 100,
        convex: bool = False,
        weak_convexity: float | None = None,
        history: int = 10,
        on_nonfinite: str = "skip",
        process_group: Any = "auto",
    ) -> None:
        check_choice("inner", inner, ("lbfgs", "newton-cg"))
        if not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
            raise ValueError(f"tolerance must be a number in (0, 1), got {tolerance!r}")
        for name, value, least in (("max_calls", max_calls, 2), ("history", history, 1)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        if weak_convexity is not None and convex:
            raise ValueError(f"convex=True is weak_convexity=0: give one of the two, not {weak_convexity!r} as well")
        if weak_convexity is not None:
            weak_convexity = check_rate("weak_convexity", weak_convexity)
        check_choice("on_nonfinite", on_nonfinite, ("skip", "raise"))
        check_process_group(process_group)
        self.inner, self.tolerance, self.max_calls, self.history = inner, tolerance, max_calls, history
        self.weak_convexity = 0.0 if convex else weak_convexity
        self.on_nonfinite, self.process_group = on_nonfinite, process_group
        super().__init__(params, {"lr": check_rate("lr", lr)})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in _SETTINGS}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
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
        self._complete()

    def _complete(self) -> None:
        """Give the groups the tensors that they lack."""
        name_old_vectors(self.param_groups, common=_FIELDS)
        common, like = dict.fromkeys(_FIELDS, 0.0), torch.empty((), dtype=torch.float64)
        self._scalars = NamedScalars(self.param_groups, common, {"size": 0.0}, like)

    @property
    def last_step(self) -> Step:
        """The last step: ``size`` (its rate; one entry a group if the rates differ) and ``delta``, as tensors.

        A step that was skipped has size 0 and δ = ∞.
        """
        sizes = torch.stack([group["size"] for group in self.param_groups])
        return Step(sizes[0] if bool((sizes == sizes[0]).all()) else sizes, self._noted("delta"))

    @property
    def last_proximal(self) -> ProximalStep:
        """How well the last step has solved its proximal problem, and what that has cost."""
        delta, gap, residual, calls, reached = (float(self._noted(name)) for name in _FIELDS[:5])
        return ProximalStep(delta, gap, residual, int(calls), bool(reached))

    @property
    def calls(self) -> int:
        """Calls of the closure in all steps."""
        return int(self._noted("all_calls"))

    @property
    def skipped(self) -> Tensor:
        """How many steps were skipped because loss or gradient were not finite."""
        return self._noted("skipped")

    def _noted(self, name: str) -> Tensor:
        noted: Tensor = self.param_groups[0][name]
        return noted.clone()

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
        for group in self.param_groups:
            check_rate("lr", group["lr"])
        problem = _Problem(self.param_groups, closure, self.process_group)
        try:
            self._solve(problem)
        except BaseException:
            problem.restore()
            raise
        return problem.returned

    def _solve(self, problem: _Problem) -> None:
        start = problem.start
        if not math.isfinite(start.residual):
            if self.on_nonfinite == "raise":
                raise_not_finite(start.value)
            self._note(problem, [0.0] * len(self.param_groups), ProximalStep(math.inf, math.inf, math.inf, 1, False))
            return
        modulus = self._modulus()

        def reached(point: Evaluation) -> bool:
            return point.residual / (modulus or 1.0) <= self.tolerance * (start.value - point.value)

        def done(point: Evaluation) -> bool:
            return reached(point) or problem.calls >= self.max_calls

        if done(start):
            end = start
        elif self.inner == "lbfgs":
            end = lbfgs(problem.evaluate, start, done, self.history)
        else:
            end = newton_cg(problem.evaluate, start, done, problem.spacing)
        problem.write(end.w)
        step_sq = float(torch.dot(end.w, end.w))
        delta = exact_delta(start.value, end.value - 0.5 * step_sq, step_sq, 1.0)
        gap = end.residual / modulus if modulus else math.inf
        proximal = ProximalStep(delta, gap, end.residual, problem.calls, reached(end))
        self._note(problem, [float(group["lr"]) for group in self.param_groups], proximal)

    def _modulus(self) -> float:
        """How strongly convex P is known to be, in units of 1/α; 0 if it is not."""
        if self.weak_convexity is None:
            return 0.0
        return max(0.0, 1.0 - self.weak_convexity * max(float(group["lr"]) for group in self.param_groups))

    def _note(self, problem: _Problem, sizes: list[float], proximal: ProximalStep) -> None:
        all_calls, skipped = self.calls + problem.calls, float(self.skipped) + math.isinf(proximal.delta)
        noted = dict(zip(_FIELDS, [*proximal, all_calls, skipped], strict=True))
        self._scalars.write(Host(True), noted, [[size] for size in sizes])


class _Problem:
    """P(w) = f(x + √α·w) + ½‖w‖² of one step, over the parameters that have a gradient at x."""

    def __init__(self, groups: list[dict[str, Any]], closure: Callable[[], Any], process_group: Any) -> None:
        self.closure, self.process_group = closure, process_group
        self.calls = 0
        self.returned: Any = None
        loss = self._call()
        trained = [(p, float(group["lr"])) for group in groups for p in group["params"] if p.grad is not None]
        self.params: list[Tensor] = [p for p, _ in trained]
        self.roots = [math.sqrt(lr) for _, lr in trained]
        self.x = [p.detach().clone() for p in self.params]
        dtype = torch.float64 if any(p.dtype is torch.float64 for p in self.params) else torch.float32
        device = next((p.device for p in self.params), None)
        size = sum(p.numel() for p in self.params)
        self.start = self._evaluation(loss, torch.zeros(size, dtype=dtype, device=device))

    @property
    def spacing(self) -> float:
        """A distance at which differences of gradients are neither rounding nor curvature."""
        eps = max(torch.finfo(p.dtype).eps for p in self.params)
        size = math.sqrt(sum(float(x.double().square().sum()) for x in self.x))
        return math.sqrt(eps) * (1.0 + size) / max(self.roots)

    def evaluate(self, w: Tensor) -> Evaluation:
        """Call the closure at x + √α·w, or rather at what the parameters can hold of it."""
        self.write(w)
        loss = self._call()
        moved = [p - x.to(w.dtype) for p, x in zip(self.params, self.x, strict=True)]
        return self._evaluation(loss, self._vector(moved, [1.0 / root if root else 0.0 for root in self.roots], w))

    def write(self, w: Tensor) -> None:
        """Move the parameters to x + √α·w."""
        pieces = torch.split(w, [p.numel() for p in self.params])
        for p, x, root, piece in zip(self.params, self.x, self.roots, pieces, strict=True):
            p.copy_(torch.add(x.to(w.dtype), piece.to(x.device).view_as(x), alpha=root))

    def restore(self) -> None:
        """Bring the parameters back to x."""
        for p, x in zip(self.params, self.x, strict=True):
            p.copy_(x)

    def _call(self) -> float:
        """The loss where the parameters are, averaged over the ranks; gradients are in place afterwards."""
        self.calls += 1
        with torch.enable_grad():
            loss = self.closure()
        if loss is None:
            raise ValueError("closure must return the loss, got None")
        if self.calls == 1:
            self.returned = loss.detach().clone() if isinstance(loss, Tensor) else loss
        (value,) = mean_over_ranks(self.process_group, float(scalar(loss)))
        return float(value)

    def _evaluation(self, loss: float, w: Tensor) -> Evaluation:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        gradient = self._vector(grads, self.roots, w).add_(w)
        return Evaluation(w, loss + 0.5 * float(torch.dot(w, w)), gradient)

    @staticmethod
    def _vector(tensors: list[Tensor], scales: list[float], like: Tensor) -> Tensor:
        """Scaled tensors as one vector."""
        parts = [like.new_zeros(0)]
        parts += [tensor.to(like).reshape(-1) * scale for tensor, scale in zip(tensors, scales, strict=True)]
        return torch.cat(parts)
