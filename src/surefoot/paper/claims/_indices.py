"""Claims about the stability indices along real runs: their order, their growth, and the bounds built on them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from surefoot.paper import experiments
from surefoot.paper.claims._claim import Evidence, Finding, listed, section
from surefoot.plots import label_of
from surefoot.study import Result
from surefoot.theory import models

claim = section("stability indices")

_VISITED = "at every finite point visited in the six studies, up to rounding"


def _points(result: Result) -> tuple[Any, Any, Any]:
    """(loss, grad_sq, rate) at every finite step of every run."""
    loss, grad_sq = result.dataset.loss.values, result.dataset.grad_sq.values
    rates = np.broadcast_to(result.rates[:, None, :], loss.shape)
    finite = np.isfinite(loss) & np.isfinite(grad_sq) & (loss > 0) & (grad_sq < 1e150)
    return loss[finite], grad_sq[finite], rates[finite]


def _below_sgd(model: models.Model, evidence: Evidence) -> Finding:
    worst, count = 0.0, 0
    for name in experiments.EXPERIMENTS:
        loss, grad_sq, rate = _points(evidence[name])
        linear = models.Linear().step(loss, grad_sq, rate).delta
        ratio = model.step(loss, grad_sq, rate).delta[linear > 0] / linear[linear > 0]
        worst, count = max(worst, float(ratio.max())), count + ratio.size
    return Finding(worst <= 1 + 1e-9, f"largest ratio {worst:.12g} over {count:,} visited points")


claim("delta-sps-below-sgd", "δ_SPS ≤ δ_SGD at the same point, for any lower bound (Lemma 4.1)", _VISITED)(
    partial(_below_sgd, models.Truncated())
)
claim("delta-ngn-below-sgd", "δ_NGN ≤ δ_SGD at the same point (Lemma 4.2)", _VISITED)(
    partial(_below_sgd, models.SquareRoot())
)


@claim(
    "delta-spp-below-sps",
    "δ_SPP ≤ δ_SGD on convex losses (Lemma 4.3); sharper: δ_SPP ≤ δ_SPS with C = inf f(·, s)",
    "at every step of SPP on linear regression, V1, vowel and dna (loss above rounding), to 1e-6",
)
def _spp_order(evidence: Evidence) -> Finding:
    """inf f(·, s) = 0 on these studies: five rows in ten dimensions, and separable batches of sixteen."""
    to_sps = to_sgd = 0.0
    count = 0
    for name in ("linear-regression", "v1", "vowel", "dna"):
        result = evidence[name]
        data = result.dataset.sel(algorithm="spp")
        rates = np.broadcast_to(result.rates[:, None, :], data.loss.shape)
        # Where the loss is rounding (1e-20 of the start) its index is rounding too.
        chosen = data.loss.values > 1e-12 * result.initial_loss
        delta, loss, grad_sq, rate = (
            values[chosen] for values in (data.delta.values, data.loss.values, data.grad_sq.values, rates)
        )
        to_sps = max(to_sps, float((delta / models.Truncated().step(loss, grad_sq, rate).delta).max()))
        to_sgd = max(to_sgd, float((delta / models.Linear().step(loss, grad_sq, rate).delta).max()))
        count += loss.size
    text = f"largest δ_SPP/δ_SPS {to_sps:.9g}, δ_SPP/δ_SGD {to_sgd:.9g} over {count:,} steps"
    return Finding(max(to_sps, to_sgd) <= 1 + 1e-6, text)


@claim(
    "delta-explodes-for-sgd",
    "For large α δ_t quickly explodes for SGD, and remains bounded for SPP and SPS (linear regression)",
    "at α = 10: SGD's largest index above 10⁶ × its first; those of SPS and SPP at most 10 × the initial loss",
)
def _explosion(evidence: Evidence) -> Finding:
    data = evidence["linear-regression"].dataset.delta.sel(lr=10.0, method="nearest")
    first = {name: float(data.sel(algorithm=name).isel(step=0).max()) for name in ("sgd", "sps", "spp")}
    most = {name: float(data.sel(algorithm=name).max()) for name in first}
    start = evidence["linear-regression"].initial_loss
    calm = all(most[name] <= 10 * start for name in ("sps", "spp"))
    text = ", ".join(f"{label_of(name)} from {first[name]:.2g} to at most {most[name]:.2g}" for name in first)
    return Finding(calm and most["sgd"] > 1e6 * first["sgd"], f"at α = 10: {text}")


@claim(
    "last-iterate-bound",
    "E f(x_T) − f⋆ ≤ Ω_T for independent batches (Theorem 3.4)",
    "linear regression with and without noise, 200 orders of independent batches, D = ‖x₁ − x⋆‖: at all 16 rates",
)
def _theorem(_: Evidence) -> Finding:
    """Fresh runs: the theorems need batches drawn independently."""
    methods = ["sgd", "sps", "ngn", "spp"]
    worst = dict.fromkeys(methods, 0.0)
    for noise in (0.0, 1.0):
        changes = {"methods": methods, "problem_options": {"start": "zeros", "noise": noise}}
        result = experiments.study("linear-regression", sampling="iid", seeds=200, **changes).run()
        with np.errstate(over="ignore", invalid="ignore"):
            gap = result.dataset.last_loss.mean("seed") - result.optimal_loss
            bound = result.bound(distance=result.optimum().distance).total
            ratio = (gap / bound).where(np.isfinite(bound), 0.0)
        worst = {method: max(worst[method], float(ratio.sel(algorithm=method).max())) for method in methods}
    text = f"largest (E f(x_T) − f⋆)/Ω over the rates: {listed(worst, '.3f')}"
    return Finding(max(worst.values()) <= 1.0, text)
