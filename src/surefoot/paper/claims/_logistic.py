"""Claims about logistic regression on vowel and dna (Sec. 5.2)."""

from __future__ import annotations

import math

from surefoot.paper.claims._claim import Claim, Evidence, Finding
from surefoot.paper.claims._regression import at, windows
from surefoot.paper.experiments import constants_of
from surefoot.plots import label_of

_GRID_STEP = 0.5


def _vowel(evidence: Evidence) -> Finding:
    result = evidence["vowel"]
    table = result.sensitivity()
    gain = table["sps"].decades - table["sgd"].decades
    text = f"windows: {windows(result, 'sgd', 'sps', 'ngn')}; SPS is {gain:+.2f} decades from SGD"
    return Finding(0 <= gain <= _GRID_STEP + 1e-9, text)


def _vowel_strictly(evidence: Evidence) -> Finding:
    result = evidence["vowel"]
    pairs = {lr: (at(result, "sgd", lr), at(result, "sps", lr)) for lr in (10.0, 31.6, 100.0)}
    text = "; ".join(f"α = {lr:g}: SGD {sgd:.3g}, SPS {sps:.3g}" for lr, (sgd, sps) in pairs.items())
    return Finding(all(sps >= 0.9 * sgd for sgd, sps in pairs.values()), text)


def _vowel_ngn(evidence: Evidence) -> Finding:
    table = evidence["vowel"].sensitivity()
    text = f"window in decades: NGN {table['ngn'].decades:.2f}, SPS {table['sps'].decades:.2f}"
    return Finding(table["ngn"].decades > table["sps"].decades, text)


def _vowel_reason(evidence: Evidence) -> Finding:
    found = constants_of("vowel")
    text = (
        f"ε_lb = {found.lower_bound_error:.3g}, σ² = {found.interpolation_constant:.3g} over {found.batches} batches: "
        "every batch of 16 is fitted exactly, so C = 0 is the infimum"
    )
    return Finding(found.lower_bound_error > 0.1 * found.interpolation_constant, text)


def _dna(evidence: Evidence) -> Finding:
    result = evidence["dna"]
    table = result.sensitivity()
    holds = all(table[name].high >= 99 for name in ("sps", "ngn")) and table["sgd"].high < 99
    return Finding(holds, f"windows: {windows(result, 'sgd', 'sps', 'ngn')}")


def _agreement(name: str) -> Claim:
    def check(evidence: Evidence) -> Finding:
        table = evidence[name].sensitivity()
        apart = {
            method: abs(math.log10(table[method].high / table[method].bound_high)) for method in ("sgd", "sps", "ngn")
        }
        text = ", ".join(f"{label_of(method)} {value:.2f}" for method, value in apart.items())
        return Finding(max(apart.values()) <= _GRID_STEP + 1e-9, f"decades between the windows' upper ends: {text}")

    return Claim(
        f"{name}-bound-mirrors-loss",
        f"The range of good rates roughly coincides with the bound's ({name})",
        "upper ends of the bound's and the loss's windows at most one grid step (½ decade) apart for SGD, SPS, NGN",
        check,
    )


CLAIMS = (
    Claim(
        "vowel-small-advantage",
        "vowel: there is almost no advantage of SPS over SGD",
        "the window of SPS is at most one grid step (½ decade) longer than that of SGD, and not shorter",
        _vowel,
    ),
    Claim(
        "vowel-small-advantage-strictly",
        "vowel, read strictly: SPS is no better than SGD at large rates",
        "mean f(x_T) of SPS at least 0.9 × SGD's at α = 10, 31.6 and 100",
        _vowel_strictly,
    ),
    Claim("vowel-ngn", "vowel: NGN is affected to a lesser extent than SPS", "its window is longer", _vowel_ngn),
    Claim(
        "vowel-reason",
        "vowel: the small advantage is likely due to the lower-bound estimation error",
        "ε_lb is at least a tenth of σ²",
        _vowel_reason,
    ),
    Claim(
        "dna-stable-ranges",
        "dna: SPS and NGN hold at rates where SGD fails",
        "windows of SPS and NGN reach α = 100, that of SGD does not",
        _dna,
    ),
    _agreement("vowel"),
    _agreement("dna"),
)
