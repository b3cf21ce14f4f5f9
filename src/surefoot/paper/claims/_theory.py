"""Claims that need no study: the toy function, quadratics, and the comparison with earlier bounds."""

from __future__ import annotations

import numpy as np

from surefoot.paper.claims._claim import Evidence, Finding, section
from surefoot.paper.figures import theory
from surefoot.plots import label_of
from surefoot.theory import bounds, models, quadratics, toy

claim = section("theory")


@claim(
    "toy-function",
    "On the toy function losses that stay low at large rates coincide with a sub-linear growth of δ (Fig. 1)",
    "at α = 100: SPS, NGN, SPP end below the starting loss, local exponent of δ below ½; SGD above, exponent 1",
)
def _toy(_: Evidence) -> Finding:
    columns = theory.toy_function_data()
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


@claim(
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


@claim(
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


@claim(
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
