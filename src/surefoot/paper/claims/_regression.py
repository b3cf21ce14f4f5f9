"""Claims about linear regression and its variants V1 to V3 (Sec. 5.2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from surefoot.paper.claims._claim import Claim, Evidence, Finding
from surefoot.paper.experiments import constants_of
from surefoot.plots import label_of
from surefoot.study import Result

_GRID_STEP = 1 / 3
"""Decades between two rates."""


def mean_loss(result: Result, algorithm: str) -> Any:
    """f(x_T) over the rates, averaged over the data orders; ∞ where one diverged."""
    with np.errstate(over="ignore"):
        return result.dataset.last_loss.sel(algorithm=algorithm).mean("seed")


def at(result: Result, algorithm: str, lr: float) -> float:
    """The mean loss at the rate of the grid that is closest."""
    return float(mean_loss(result, algorithm).sel(lr=lr, method="nearest"))


def windows(result: Result, *algorithms: str) -> str:
    """The measured windows in words."""
    table = result.sensitivity()
    return ", ".join(f"{label_of(name)} {table[name].low:.3g}–{table[name].high:.3g}" for name in algorithms)


def _stable_ranges(evidence: Evidence) -> Finding:
    result = evidence["linear-regression"]
    table = result.sensitivity()
    holds = all(table[name].high >= 99 for name in ("sps", "spp", "ngn")) and 0.03 <= table["sgd"].high <= 0.22
    return Finding(holds, f"windows: {windows(result, 'sgd', 'sps', 'spp', 'ngn')} (loss with the factor 1/(2b))")


def _overtakes(evidence: Evidence) -> Finding:
    result = evidence["linear-regression"]
    large = result.lrs >= 0.99
    loss = (mean_loss(result, "spp") / mean_loss(result, "sps")).values[large]
    total = result.bound().total
    bound = (total.sel(algorithm="spp") / total.sel(algorithm="sps")).values[large]
    text = f"for α ≥ 1: loss of SPP/SPS at most {loss.max():.1e}, bound at most {bound.max():.2f}"
    return Finding(bool(loss.max() < 1 and bound.max() < 1), text)


def _agreement(evidence: Evidence) -> Finding:
    table = evidence["linear-regression"].sensitivity()
    apart = {name: abs(math.log10(table[name].high / table[name].bound_high)) for name in ("sgd", "sps", "spp")}
    text = ", ".join(f"{label_of(name)} {value:.2f}" for name, value in apart.items())
    return Finding(max(apart.values()) <= _GRID_STEP + 1e-9, f"decades between the windows' upper ends: {text}")


def _noise(evidence: Evidence) -> Finding:
    base, noisy = evidence["linear-regression"], evidence["v1"]
    excess = {}
    worse = True
    for name in ("sps", "spp"):
        before, after = (mean_loss(result, name).values[-1] - result.optimal_loss for result in (base, noisy))
        excess[name] = (before, after)
        worse &= bool(after > before and noisy.sensitivity()[name].decades < base.sensitivity()[name].decades)
    text = ", ".join(f"{label_of(name)} {before:.1e} → {after:.2g}" for name, (before, after) in excess.items())
    return Finding(worse, f"f(x_T) − f⋆ at α = 100: {text}; windows on V1: {windows(noisy, 'sps', 'spp')}")


def _batches(evidence: Evidence) -> Finding:
    small, large = evidence["v1"], evidence["v2"]
    tables = small.sensitivity(), large.sensitivity()
    gained = {name: tables[1][name].decades - tables[0][name].decades for name in ("sps", "spp")}
    sigma = [constants_of(name).interpolation_constant for name in ("v1", "v2")]
    ahead = tables[1]["spp"].decades - tables[1]["sgd"].decades
    text = (
        f"window in decades, V1 → V2: SPP {gained['spp']:+.2f}, SPS {gained['sps']:+.2f}; "
        f"SPP ahead of SGD by {ahead:.2f}; σ² {sigma[0]:.3f} → {sigma[1]:.3f}"
    )
    return Finding(gained["spp"] > gained["sps"] and gained["spp"] > 0 and ahead > 1, text)


def _bad_bound(evidence: Evidence) -> Finding:
    result = evidence["v3"]
    table = result.sensitivity()
    apart = math.log10(table["sps(lower_bound=-2)"].high / table["sgd"].high)
    text = f"windows: {windows(result, 'sgd', 'sps(lower_bound=-2)', 'spp')}; SPS ends {apart:+.2f} decades from SGD"
    return Finding(apart <= _GRID_STEP + 1e-9, text)


def _bad_bound_strictly(evidence: Evidence) -> Finding:
    result = evidence["v3"]
    sgd, sps = (mean_loss(result, name).values for name in ("sgd", "sps(lower_bound=-2)"))
    text = f"at α = 100: SGD {sgd[-1]:.3g}, SPS {sps[-1]:.3g}"
    return Finding(bool((sps >= 0.1 * sgd).all()), text)


def _orabona(evidence: Evidence) -> Finding:
    good, bad = evidence["linear-regression"], evidence["v3"]
    name = "sps(lower_bound=-2)"
    start = good.initial_loss
    values = {
        "C = 0, α = 100": at(good, "sps", 100.0),
        "C = −2, α = 0.1": at(bad, name, 0.1),
        "C = −2, α = 100": at(bad, name, 100.0),
    }
    fine = values["C = 0, α = 100"] < 0.01 * start and values["C = −2, α = 0.1"] < 0.01 * start
    text = "; ".join(f"{key}: {value:.2g}" for key, value in values.items())
    return Finding(fine and values["C = −2, α = 100"] > start, f"{text}; initial loss {start:.2g}")


CLAIMS = (
    Claim(
        "regression-stable-ranges",
        "SPS and SPP do well for α up to 100, SGD starts to fail at α ≈ 0.03 (linear regression)",
        "upper end of the window f ≤ f_best + 0.1(f(x₁) − f⋆): 100 for SPS, SPP, NGN; between 0.03 and 0.22 for SGD",
        _stable_ranges,
    ),
    Claim(
        "spp-overtakes-sps",
        "SPP overtakes SPS for α ≥ 1, in the loss and in the bound",
        "mean f(x_T) and Ω_T of SPP below those of SPS at every rate ≥ 1",
        _overtakes,
    ),
    Claim(
        "bound-mirrors-loss",
        "The bound reflects the range of good rates (linear regression)",
        "upper ends of the bound's and the loss's windows at most one grid step (⅓ decade) apart for SGD, SPS, SPP",
        _agreement,
    ),
    Claim(
        "v1-noise",
        "V1: with noise on the targets SPS and SPP perform worse",
        "excess loss at α = 100 larger and window shorter than without noise, for both",
        _noise,
    ),
    Claim(
        "v2-batches",
        "V2: with larger batches σ² falls and SPP regains its advantage over SGD, SPS does not",
        "from V1 to V2 SPP's window grows, and by more than SPS's; on V2 it is over a decade longer than SGD's",
        _batches,
    ),
    Claim(
        "v3-lower-bound",
        "V3: with C = −2 SPS loses all advantage over SGD",
        "the window of SPS ends at most one grid step (⅓ decade) above that of SGD",
        _bad_bound,
    ),
    Claim(
        "v3-lower-bound-strictly",
        "V3, read strictly: SPS with C = −2 is no better than SGD at any rate",
        "mean f(x_T) of SPS at least a tenth of SGD's at every rate",
        _bad_bound_strictly,
    ),
    Claim(
        "orabona",
        "SPS is spoilt by a bad lower bound and a large rate together, not by one of them (App. B.2)",
        "f(x_T) below 1 % of f(x₁) for (C = 0, α = 100) and (C = −2, α = 0.1); above f(x₁) for (C = −2, α = 100)",
        _orabona,
    ),
)
