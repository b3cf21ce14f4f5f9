"""Claims of the theory: those that need no study, and those about the stability indices along real runs."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal

import numpy as np

from surefoot.paper import experiments
from surefoot.paper.claims._claim import Evidence, Finding, claim_about, listed
from surefoot.paper.figures.convex import rates_data
from surefoot.paper.figures.formulas import toy_function_data
from surefoot.plots import label_of
from surefoot.problems import toy
from surefoot.study import Result
from surefoot.theory import bounds, models, rates

theory, indices = partial(claim_about, "theory"), partial(claim_about, "stability indices")


@theory(
    "toy-function",
    "On the toy function losses that stay low at large rates coincide with a sub-linear growth of δ (Fig. 1)",
    "at α = 100: SPS, NGN, SPP end below the starting loss, local exponent of δ below ½; SGD above, exponent 1",
)
def _toy(_: Evidence) -> Finding:
    data, start = toy_function_data(), float(toy.loss(toy.START))
    names = ("sgd", "sps", "ngn", "spp")
    losses = {name: float(data.next_loss.sel(algorithm=name)[-1]) for name in names}
    slopes = {name: float(np.gradient(np.log(data.delta.sel(algorithm=name)), np.log(data.lr))[-1]) for name in names}
    stable = all(losses[name] < start and slopes[name] < 0.5 for name in names[1:])
    text = ", ".join(f"{label_of(name)}: loss {losses[name]:.3g}, exponent {slopes[name]:.2f}" for name in names)
    return Finding(stable and losses["sgd"] > start and slopes["sgd"] > 0.99, f"at α = 100: {text}; start {start:.3g}")


@theory(
    "quadratics",
    "On quadratics the indices have the closed forms of App. A.3, and only SGD's grows linearly",
    "closed forms and models agree to 1e-12 on 10,000 draws; δ_SPS is at most the paper's upper bound",
)
def _quadratics(_: Evidence) -> Finding:
    """f = ½s²‖x − x⋆‖², so that ‖g‖² = 2s²f; NGN's step is the proximal point, with δ = f·a/(1 + a), a = αs²."""
    random = np.random.default_rng(0)
    loss, s, lr = 10.0 ** random.uniform(-3, 3, (3, 10_000))
    grad_sq, a = 2 * s**2 * loss, lr * s**2
    sgd, sps, ngn = (
        each.step(loss, grad_sq, lr).delta for each in (models.Linear(), models.Truncated(), models.SquareRoot())
    )
    worst = max(abs(sgd / (a * loss) - 1).max(), abs(ngn / (loss * a / (1 + a)) - 1).max())
    worst = max(worst, abs(sps / np.where(a > 0.5, loss * (1 - 0.25 / a), a * loss) - 1).max())
    below = float((sps / (np.minimum(0.5 * lr, 0.5 / s**2) * grad_sq)).max())
    text = f"10,000 draws: largest relative difference {worst:.1e}; δ_SPS over the paper's upper bound ≤ {below:.3f}"
    return Finding(bool(worst < 1e-12 and below <= 1 + 1e-12), text)


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
    "weakly-convex",
    "The base inequality and the bound for weakly convex losses (Lemma 3.5, Theorem 3.6)",
    "f(x, s) = |x² − s| with s = ½ or 3/2, SGD and SPS at α = 0.02, 0.05 and 0.2: the lemma at 601 points, the theorem "
    "over 50 steps of 2,000 runs from x = 2.5; left side over right side at most 1",
)
def _weakly_convex(_: Evidence) -> Finding:
    rho, rho_bar, draws = 2.0, 4.0, np.array([0.5, 1.5])
    y = np.linspace(-3.0, 3.0, 12_001)
    x, heights = y[::20], np.abs(y**2 - draws[:, None]).mean(axis=0)
    objective = heights + 0.5 * rho_bar * (y - x[:, None]) ** 2
    nearest, envelope = y[objective.argmin(axis=1)], objective.min(axis=1)
    random, lemma, theorem = np.random.default_rng(0), 0.0, 0.0
    for model in (models.Linear(), models.Truncated()):
        for lr in (0.02, 0.05, 0.2):

            def step(at: Any, s: Any, model: models.Model = model, lr: float = lr) -> tuple[Any, Any]:
                slope = 2 * at * np.sign(at**2 - s)
                taken = model.step(np.abs(at**2 - s), slope**2, lr)
                return at - taken.size * slope, taken.delta

            after, deltas = step(x, draws[:, None])
            right = (1 - lr * (rho_bar - rho)) * (x - nearest) ** 2 + 2 * lr * deltas.mean(axis=0)
            lemma = max(lemma, float((((after - nearest) ** 2).mean(axis=0) / (right + 1e-6)).max()))
            points, squares, indices = np.full(2_000, 2.5), [], []
            for _step in range(50):
                squares.append(float(((rho_bar * (points - np.interp(points, x, nearest))) ** 2).mean()))
                points, deltas = step(points, random.choice(draws, points.shape))
                indices.append(float(deltas.mean()))
            gap = float(np.interp(2.5, x, envelope) - np.interp(points, x, envelope).mean())
            bound = bounds.weakly_convex([lr] * 50, indices, gap, rho=rho, lam=0.0, rho_bar=rho_bar)
            theorem = max(theorem, lr * sum(squares) / (bound.bias + bound.noise))
    return Finding(max(lemma, theorem) <= 1, f"largest left over right side: lemma {lemma:.3f}, theorem {theorem:.3f}")


@theory(
    "sps-rate",
    "Ours: on smooth convex losses with interpolation SPS has a rate that does not depend on α (docs/theory.md)",
    "linear regression, α from 0.05 to 100: mean f(x_t) − f⋆ of SPS and NGN below their rates, that of SPS constant",
)
def _rates(_: Evidence) -> Finding:
    data = rates_data()
    ours = data.measured.sel(algorithm=["sps", "ngn"])
    rate = data.rate.sel(algorithm="sps").values
    sps = data.measured.sel(algorithm="sps").values
    text = f"SPS: {sps.min():.3f} … {sps.max():.3f}, rate {rate.min():.3f} … {rate.max():.3f}"
    worst = {name: float((ours / data.rate).sel(algorithm=name).max()) for name in ("sps", "ngn")}
    text += f"; measured over rate at most {listed(worst, '.3f')}"
    return Finding(bool((ours <= data.rate).all() and np.ptp(rate) <= 1e-9 * rate[0]), text)


@theory(
    "ngn-lipschitz-rate",
    "On G-Lipschitz convex losses NGN has f(x̄) − f⋆ ≤ D²/(2αT) + αG²/2 (App. B.1)",
    "f = |x| from x₁ = 1, α = ½, T = 2: at most that; printed beside it the rate with the safe index",
)
def _ngn_lipschitz(_: Evidence) -> Finding:
    x = [1.0, 1.0 - float(models.SquareRoot().step(1.0, 1.0, 0.5).size)]
    average = abs(sum(x) / 2)
    claimed, safe = (float(rates.lipschitz(1.0, 1.0, 2, 0.5, method=name).total) for name in ("sgd", "ngn"))
    text = f"f(x̄) = {average:.2f}, claimed {claimed:.2f}, with the safe index {safe:.2f}"
    return Finding(average <= claimed + 1e-12, text)


def _below_sgd(model: models.Model, scales: tuple[float, ...], evidence: Evidence) -> Finding:
    """The index of a model beside SGD's, at every finite step of every run, with F a multiple of the loss."""
    worst, count = 0.0, 0
    for name in experiments.EXPERIMENTS:
        data = evidence[name].dataset
        loss, grad_sq = data.loss.values, data.grad_sq.values
        finite = np.isfinite(loss) & np.isfinite(grad_sq) & (loss > 0) & (grad_sq < 1e150) & (grad_sq > 0)
        point = grad_sq[finite], np.broadcast_to(data.lr.values[:, None, None], loss.shape)[finite]
        linear = models.Linear().step(loss[finite], *point).delta
        for scale in scales:
            delta = model.step(scale * loss[finite], *point).delta
            worst = max(worst, float((delta[linear > 0] / linear[linear > 0]).max()))
            count += delta.size
    text = f"largest ratio {worst:.12g} over {count:,} visited points and bounds"
    return Finding(worst <= 1 + 1e-9, text)


indices(
    "delta-sps-below-sgd",
    "δ_SPS ≤ δ_SGD at the same point, for any lower bound (Lemma 4.1)",
    "at every finite point visited in the six studies with f − C from 10⁻⁶ f to 10⁶ f, up to rounding",
)(partial(_below_sgd, models.Truncated(), (1e-6, 0.1, 0.5, 1.0, 3.0, 1e6)))
indices(
    "delta-ngn-below-sgd",
    "δ_NGN ≤ δ_SGD at the same point (Lemma 4.2)",
    "at every finite point visited in the six studies, up to rounding",
)(partial(_below_sgd, models.SquareRoot(), (1.0,)))


@indices(
    "delta-spp-below-sps",
    "δ_SPP ≤ δ_SGD on convex losses (Lemma 4.3); sharper: δ_SPP ≤ δ_SPS with C = inf f(·, s)",
    "at every step of SPP on linear regression, V1, vowel and dna (loss above rounding), to 1e-6",
)
def _spp_order(evidence: Evidence) -> Finding:
    """inf f(·, s) = 0 on these studies: five rows in ten dimensions, and separable batches of sixteen."""
    worst, count = {"SPS": 0.0, "SGD": 0.0}, 0
    for name in ("linear-regression", "v1", "vowel", "dna"):
        data = evidence[name].dataset.sel(algorithm="spp")
        # Where the loss is rounding (1e-20 of the start) its index is rounding too.
        chosen = data.loss.values > 1e-12 * evidence[name].initial_loss
        lrs = np.broadcast_to(data.lr.values[:, None, None], chosen.shape)
        loss, grad_sq, lr, delta = (
            each[chosen] for each in (data.loss.values, data.grad_sq.values, lrs, data.delta.values)
        )
        for label, model in (("SPS", models.Truncated()), ("SGD", models.Linear())):
            worst[label] = max(worst[label], float((delta / model.step(loss, grad_sq, lr).delta).max()))
        count += loss.size
    text = f"largest δ_SPP over that of {', '.join(f'{label} {ratio:.9g}' for label, ratio in worst.items())}"
    return Finding(max(worst.values()) <= 1 + 1e-6, f"{text}; {count:,} steps")


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


@cache
def _independent(noise: float) -> Result:
    """Runs of their own: the theorems need batches that are drawn independently."""
    options = {"start": "zeros", "noise": noise}
    changes: dict[str, Any] = {"methods": ["sgd", "sps", "ngn", "spp"], "problem_options": options, "distance": None}
    return experiments.run("linear-regression", sampling="iid", seeds=200, **changes)


def _theorem(kind: Literal["last", "average"], _: Evidence) -> Finding:
    worst: dict[str, float] = {}
    for result in map(_independent, (0.0, 1.0)):
        with np.errstate(over="ignore", invalid="ignore"):
            gap = result.dataset[f"{kind}_loss"].mean("seed") - result.optimal_loss
            bound = result.bound(kind=kind).total  # with the true D
            ratio = (gap / bound).where(np.isfinite(bound), 0.0).max("lr")
        worst = {name: max(worst.get(name, 0.0), float(ratio.sel(algorithm=name))) for name in result.algorithms}
    return Finding(max(worst.values()) <= 1.0, f"largest (E f − f⋆)/Ω over the rates: {listed(worst, '.3f')}")


_SETTING = "linear regression with and without noise, 200 seeds of independent batches, D = ‖x₁ − x⋆‖: at all 16 rates"
indices("average-iterate-bound", "E f(x̄_T) − f⋆ ≤ Ω_avg for independent batches (Theorem 3.3)", _SETTING)(
    partial(_theorem, "average")
)
indices("last-iterate-bound", "E f(x_T) − f⋆ ≤ Ω_T for independent batches (Theorem 3.4)", _SETTING)(
    partial(_theorem, "last")
)
