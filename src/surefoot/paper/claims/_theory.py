"""Claims of the theory: those that need no study, and those about the stability indices along real runs."""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.paper import experiments, quadratics
from surefoot.paper.claims._claim import Evidence, Finding, claim_about, listed
from surefoot.paper.figures.theory import toy_function_data
from surefoot.plots import label_of
from surefoot.problems import toy
from surefoot.theory import bounds, models

theory, indices = partial(claim_about, "theory"), partial(claim_about, "stability indices")

_VISITED = "at every finite point visited in the six studies, up to rounding"


@theory(
    "toy-function",
    "On the toy function losses that stay low at large rates coincide with a sub-linear growth of δ (Fig. 1)",
    "at α = 100: SPS, NGN, SPP end below the starting loss, local exponent of δ below ½; SGD above, exponent 1",
)
def _toy(_: Evidence) -> Finding:
    columns = toy_function_data()
    start, lrs = float(toy.loss(toy.START)), np.unique(columns["lr"])
    losses, slopes = {}, {}
    for method in ("sgd", "sps", "ngn", "spp"):
        mine = columns["method"] == method
        losses[method] = float(columns["next_loss"][mine][-1])
        slopes[method] = float(bounds.local_exponent(lrs, columns["delta"][mine])[-1])
    stable = all(losses[method] < start and slopes[method] < 0.5 for method in ("sps", "ngn", "spp"))
    text = ", ".join(
        f"{label_of(method)}: loss {losses[method]:.3g}, exponent {slopes[method]:.2f}" for method in losses
    )
    return Finding(stable and losses["sgd"] > start and slopes["sgd"] > 0.99, f"at α = 100: {text}; start {start:.3g}")


@theory(
    "quadratics",
    "On quadratics the indices have the closed forms of App. A.3, and only SGD's grows linearly",
    "closed forms and models agree to 1e-12 on 10,000 draws; δ_SPS is at most the paper's upper bound",
)
def _quadratics(_: Evidence) -> Finding:
    random = np.random.default_rng(0)
    loss, s, lr = 10.0 ** random.uniform(-3, 3, (3, 10_000))
    methods = (quadratics.sgd, quadratics.sps, quadratics.ngn, quadratics.spp)
    sgd, sps, ngn, spp = (method(loss, s, lr).delta for method in methods)
    grad_sq = 2 * s**2 * loss
    paper = np.minimum(0.5 * lr, 0.5 / s**2) * grad_sq
    worst = max(
        abs(sgd / (0.5 * lr * grad_sq) - 1).max(),
        abs(ngn / models.SquareRoot().step(loss, grad_sq, lr).delta - 1).max(),
        abs(spp / (0.5 * lr / (1 + lr * s**2) * grad_sq) - 1).max(),
    )
    below = float((sps / paper).max())
    return Finding(
        bool(worst < 1e-12 and below <= 1 + 1e-12),
        f"10,000 draws: largest relative difference {worst:.1e}; δ_SPS over the paper's upper bound ≤ {below:.3f}",
    )


@theory(
    "spp-worst-case",
    "The bound min{αG²/2, f − inf f} on the index of SPP is very tight, but for the transition (Fig. 2 right)",
    "bound over worst case at most 1.01 for z ≤ 1 and z = 100, at most 1.35 between, and never below 1",
)
def _worst_case(_: Evidence) -> Finding:
    from surefoot import pep

    ratios = {z: pep.spp_index(lr=z, lipschitz=1.0).ratio for z in (0.01, 0.1, 1.0, 2.0, 10.0, 100.0)}
    text = ", ".join(f"{ratio:.4f} at {z:g}" for z, ratio in ratios.items())
    apart = all(ratio <= (1.35 if 1.0 < z < 100.0 else 1.01) for z, ratio in ratios.items())
    return Finding(apart and min(ratios.values()) >= 1 - 1e-6, f"bound over worst case, by z = αG²/F: {text}")


@theory(
    "loizou-bound",
    "The bound of Loizou et al. cannot explain the stability of SPS: it grows linearly in α (App. B.2)",
    "from α = 1 to 100 that bound's noise grows 100×, the noise of Ω for SPS on V1 less than 10×",
)
def _loizou(evidence: Evidence) -> Finding:
    lrs = np.array([1.0, 10.0, 100.0])
    earlier = bounds.loizou_sps(lrs, 100, 1.0, smoothness=10.0, interpolation_constant=0.1).noise
    growth = float(earlier[-1] / earlier[0])
    ours = evidence["v1"].bound().noise.sel(algorithm="sps")
    ratio = float(ours[-1] / ours.sel(lr=1.0, method="nearest"))
    text = f"from α = 1 to 100 it grows {growth:.0f}×, the noise of Ω on V1 {ratio:.2f}×"
    return Finding(growth > 99 and ratio < 10, text)


def _below_sgd(model: models.Model, evidence: Evidence) -> Finding:
    """The index of a model beside SGD's, at every finite step of every run."""
    worst, count = 0.0, 0
    for name in experiments.EXPERIMENTS:
        result = evidence[name]
        loss, grad_sq = result.dataset.loss.values, result.dataset.grad_sq.values
        finite = np.isfinite(loss) & np.isfinite(grad_sq) & (loss > 0) & (grad_sq < 1e150)
        point = loss[finite], grad_sq[finite], np.broadcast_to(result.rates[:, None, :], loss.shape)[finite]
        linear = models.Linear().step(*point).delta
        ratio = model.step(*point).delta[linear > 0] / linear[linear > 0]
        worst, count = max(worst, float(ratio.max())), count + ratio.size
    return Finding(worst <= 1 + 1e-9, f"largest ratio {worst:.12g} over {count:,} visited points")


indices("delta-sps-below-sgd", "δ_SPS ≤ δ_SGD at the same point, for any lower bound (Lemma 4.1)", _VISITED)(
    partial(_below_sgd, models.Truncated())
)
indices("delta-ngn-below-sgd", "δ_NGN ≤ δ_SGD at the same point (Lemma 4.2)", _VISITED)(
    partial(_below_sgd, models.SquareRoot())
)


@indices(
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


@indices(
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


@indices(
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
