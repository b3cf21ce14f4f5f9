"""Claims about ResNet20 on CIFAR-10 (Sec. 5.1 and the appendix), judged on sweeps that were run before.

A *window* is the unbroken range of rates around the best one whose loss is at most a tenth of (ln 10 − f⋆) above it:
ln 10 is the loss of guessing, f⋆ the smallest f(x_T) of the sweep. "≈" means one step of the grid, half a decade.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np

from surefoot.paper.claims._claim import (
    SECTIONS,
    Claim,
    Evidence,
    Finding,
    NotRun,
    Swept,
    at_most_a_step,
    claim_about,
    decades,
    listed,
    windows,
)
from surefoot.paper.curves import EARLY, Floats, MissingRuns, curve_label
from surefoot.plots import label_of
from surefoot.study import Sensitivity

SECTION = "ResNet20 on CIFAR-10"
METHODS = ("sgd", "sps", "ngn")
OURS = ("sps", "ngn")
WARMUP = "sgd+warmup"
LARGE = 10.0
"""The rate that stands for large ones: a decade above SGD's last good rate in the paper."""
_STEP = 0.5
_ENOUGH = 5
"""Rates from which on a sweep that is not finished tells windows."""
_WINDOW = "f ≤ f_best + 0.1(ln 10 − f⋆)"

SweptCheck = Callable[[Swept], Finding]
CHECKS: dict[str, SweptCheck] = {}
"""What decides each claim on one sweep."""


def claim(name: str, words: str, rule: str) -> Callable[[SweptCheck], SweptCheck]:
    """The decorator that makes a claim of a check of one sweep: it judges the sweep in every size that there is."""

    def take(check: SweptCheck) -> SweptCheck:
        CHECKS[name] = check
        claim_about(SECTION, name, f"{SECTION}: {words}", rule)(partial(_on_every_size, check))
        return check

    return take


def _on_every_size(check: SweptCheck, evidence: Evidence) -> Finding:
    """What the most trusted sweep says that is finished and can be judged; numbers of the others stand beside it."""
    seen = [(sweep, _look(check, sweep)) for sweep in evidence.sweeps("cifar10")]
    judged = [(sweep, finding) for sweep, finding in seen if isinstance(finding, Finding)]
    if not judged:
        raise NotRun("; ".join(f"{absent} ({_origin(sweep)})" for sweep, absent in seen))
    words = [f"{finding.measured} ({_origin(sweep)})" for sweep, finding in judged]
    if len(judged) > 1:
        pairs = zip(judged, words, strict=True)
        words = [f"{sweep.preset} {finding.verdict}: {text}" for (sweep, finding), text in pairs]
    complete = [finding for sweep, finding in judged if not _lacking(sweep)]
    return Finding((complete or [judged[0][1]])[0].holds, "; ".join(words))


def _look(check: SweptCheck, sweep: Swept) -> Finding | str:
    """What a check sees in a sweep, or what the sweep lacks for it."""
    try:
        return check(sweep)
    except MissingRuns as absent:
        return f"there are no runs of {absent.args[0]}"


def compared(evidence: Evidence | None = None) -> list[tuple[Claim, dict[str, Finding | str]]]:
    """Every claim about ResNet20 with what was found in each size, by preset; a text says what a size lacks.

    >>> claim, findings = compared(Evidence(sizes=["small"]))[0]
    >>> claim.id, findings["small"].verdict
    ('cifar-sgd-degrades', 'holds')
    """
    sweeps = (evidence or Evidence()).sweeps("cifar10")
    return [
        (claim, {sweep.preset: _look(CHECKS[claim.id], sweep) for sweep in sweeps})
        for claim in SECTIONS[SECTION].values()
    ]


def _origin(sweep: Swept) -> str:
    """Where the numbers come from, and what a sweep that is not finished lacks."""
    origin = f"preset {sweep.preset}{', as recorded in the package' if sweep.recorded else ''}"
    lacking = _lacking(sweep)
    return f"{origin}, not finished: {'; '.join(lacking)}" if lacking else origin


def _lacking(sweep: Swept) -> list[str]:
    """Rates and methods that have no runs."""
    fewer: dict[str, list[str]] = {}
    for label, planned in _planned(sweep).items():
        there = len(sweep.runs[label].lrs) if label in sweep.runs else 0
        if there < planned:
            fewer.setdefault(f"{there} of {planned} rates" if there else "no runs", []).append(label)
    common = all(set(labels) == set(sweep.runs) for labels in fewer.values())
    return [words if common else f"{words} of {', '.join(labels)}" for words, labels in sorted(fewer.items())]


def _planned(sweep: Swept) -> dict[str, int]:
    """How many rates each method is to be run at."""
    parts = sweep.settings.parts.items()
    return {curve_label(part, method): len(study["lrs"]) for part, study in parts for method in study["methods"]}


def _windows(sweep: Swept, labels: Iterable[str], loss: str = "loss", bound: str = "bound") -> list[Sensitivity]:
    """Windows and best rates of methods, for f(x_T) and Ω_T or another loss and bound."""
    optimal = min(float(np.min(runs["loss"])) for runs in sweep.runs.values())
    reference = sweep.settings.reference
    assert reference is not None  # known for every image set
    chosen = [sweep.runs[label] for label in labels]
    for runs in chosen:
        enough = min(_ENOUGH, _planned(sweep)[runs.label])
        if len(runs.lrs) < enough:
            raise MissingRuns(f"{runs.label} at {enough} rates")
    return [runs.window(runs[loss], runs[bound], reference, optimal) for runs in chosen]


def _at(sweep: Swept, labels: Iterable[str], column: str, lr: float) -> dict[str, float]:
    """A number of methods at a rate of the grid, up to half of its step."""
    values = {}
    for label in labels:
        apart = np.abs(np.log10(sweep.runs[label].lrs / lr))
        if apart.min() > 0.5 * _STEP:
            raise MissingRuns(f"{label} at α = {lr:g}")
        values[label] = float(sweep.runs[label][column][int(apart.argmin())])
    return values


def _at_large_rates(sweep: Swept, column: str) -> tuple[Floats, ...]:
    """A column of SGD, SPS and NGN at the rates from 1 on that all of them were run at."""
    chosen = [sweep.runs[label] for label in METHODS]
    rates = reduce(np.intersect1d, [runs.lrs[runs.lrs > 0.99] for runs in chosen])
    if not len(rates):
        raise MissingRuns("SGD, SPS and NGN at the same rate from 1 on")
    return tuple(runs[column][np.isin(runs.lrs, rates)] for runs in chosen)


def _settings(sweep: Swept) -> Mapping[str, Any]:
    return next(iter(sweep.settings.parts.values()))


@claim(
    "cifar-sgd-degrades",
    "SGD starts to degrade for α ≥ 1",
    f"upper end of SGD's window {_WINDOW} between 0.316 and 1",
)
def _sgd_limit(sweep: Swept) -> Finding:
    (row,) = _windows(sweep, ["sgd"])
    return Finding(0.3 <= row.high <= 1.01, f"window {row.low:.3g}–{row.high:.3g}, best rate {row.best_rate:.3g}")


@claim(
    "cifar-sps-ngn-hold",
    "SPS and NGN work well up to α ≈ 10",
    "upper ends of the windows of SPS and NGN at least 10, up to one grid step (½ decade)",
)
def _limits(sweep: Swept) -> Finding:
    rows = _windows(sweep, OURS)
    return Finding(all(row.high >= 3.1 for row in rows), f"windows: {windows(rows)}")


@claim(
    "cifar-advantage",
    "SPS and NGN are more stable than SGD for large α and achieve a smaller loss",
    "mean f(x_T) of both at most SGD's at every α ≥ 1, and smaller than SGD's best at their best rates",
)
def _advantage(sweep: Swept) -> Finding:
    sgd, *ours = _at_large_rates(sweep, "loss")
    best = {label: float(sweep.runs[label]["loss"].min()) for label in METHODS}
    holds = all((losses <= sgd).all() for losses in ours) and max(best[label] for label in OURS) < best["sgd"]
    at_large = listed(_at(sweep, METHODS, "loss", LARGE), ".3g")
    return Finding(bool(holds), f"best f(x_T): {listed(best, '.3g')}; at α = {LARGE:g}: {at_large}")


@claim(
    "cifar-warmup",
    "with warmup SGD works for roughly one order of magnitude larger α",
    "upper end of SGD's window grows by 1 ± ½ decades with warmup",
)
def _warmup(sweep: Swept) -> Finding:
    before, after = _windows(sweep, ("sgd", WARMUP))
    gain = decades(after.high, before.high)
    return Finding(at_most_a_step([gain - 1], _STEP), f"windows: {windows([before, after])}; {gain:+.2f} decades")


@claim(
    "cifar-warmup-bound",
    "the gain of warmup is reflected in the bound",
    "upper end of the bound's window for SGD grows by 1 ± ½ decades with warmup",
)
def _warmup_bound(sweep: Swept) -> Finding:
    before, after = (row.bound_high for row in _windows(sweep, ("sgd", WARMUP)))
    gain = decades(after, before)
    text = f"upper ends of the bound's windows {before:.3g} → {after:.3g}; {gain:+.2f} decades"
    return Finding(at_most_a_step([gain - 1], _STEP), text)


def _best_rates(labels: Iterable[str], sweep: Swept) -> Finding:
    rows = _windows(sweep, labels)
    text = ", ".join(f"{label_of(row.algorithm)} loss {row.best_rate:.3g}, bound {row.bound_rate:.3g}" for row in rows)
    return Finding(at_most_a_step([row.minimiser_distance for row in rows], _STEP), f"best rates: {text}")


claim(
    "cifar-bound-best-rate",
    "the rate with the smallest bound of SPS matches the one with the smallest training loss",
    "at most one grid step (½ decade) apart for SPS",
)(partial(_best_rates, ["sps"]))
claim(
    "cifar-bound-best-rates",
    "the same for every method",
    "at most one grid step (½ decade) apart for SGD, SPS, NGN and SGD with warmup",
)(partial(_best_rates, [*METHODS, WARMUP]))


@claim(
    "cifar-bound-mirrors-loss",
    "the bound closely reflects the range of rates with a good final training loss",
    "upper ends of the bound's and the loss's windows at most one grid step apart for SGD, SPS, NGN",
)
def _bound_windows(sweep: Swept) -> Finding:
    apart = {row.algorithm: decades(row.bound_high, row.high) for row in _windows(sweep, METHODS)}
    text = f"bound's upper end over the loss's, in decades: {listed(apart, '+.2f')}"
    return Finding(at_most_a_step(apart.values(), _STEP), text)


@claim(
    "cifar-any-distance",
    "the advantage of SPS and NGN for large α is reflected in the bound independent of D",
    "noise of Ω, which does not depend on D, of SPS and NGN below SGD's at every α ≥ 1",
)
def _any_distance(sweep: Swept) -> Finding:
    """With one D for all methods the bias cancels: what is left to compare is the noise."""
    sgd, *ours = _at_large_rates(sweep, "noise")
    with np.errstate(invalid="ignore"):
        holds = all((noise < sgd).all() for noise in ours)
    text = "; ".join(f"α = {lr:.3g}: {listed(_at(sweep, METHODS, 'noise', lr), '.3g')}" for lr in (1.0, LARGE))
    return Finding(holds, f"noise of Ω: {text}")


def _largest_early(sweep: Swept, labels: tuple[str, ...]) -> tuple[dict[str, float], str]:
    """The largest early E[δ_t] by method, and in words: at the large rate, or the largest that all were run at."""
    rate = min(LARGE, *(float(sweep.runs[label].lrs[-1]) for label in labels))
    most = _at(sweep, labels, "early_delta", rate)
    return most, f"largest E[δ_t] of the first {EARLY} steps at α = {rate:.3g}: {listed(most, '.3g')}"


@claim(
    "cifar-delta-explodes",
    "δ_t explodes for SGD in the first iterations when α is large, and grows much slower for SPS and NGN",
    f"at α = {LARGE:g} the largest E[δ_t] of the first {EARLY} steps of SGD at least 10 × those of SPS and NGN",
)
def _explosion(sweep: Swept) -> Finding:
    most, text = _largest_early(sweep, METHODS)
    return Finding(most["sgd"] >= 10 * max(most["sps"], most["ngn"]), text)


@claim(
    "cifar-warmup-delta",
    "with warmup the increase of δ_t is slowed down",
    f"the largest E[δ_t] of the first {EARLY} steps of SGD with warmup at most a tenth, at α = {LARGE:g} or "
    "the largest rate that both were run at",
)
def _slowed(sweep: Swept) -> Finding:
    most, text = _largest_early(sweep, ("sgd", WARMUP))
    return Finding(most[WARMUP] <= 0.1 * most["sgd"], text)


@claim(
    "cifar-polyak-ratio",
    "f/‖g‖² is around 0.1 in early training (App. B.2)",
    f"median over the first {EARLY} steps of SPS at α = 1 between 0.03 and 0.32",
)
def _polyak(sweep: Swept) -> Finding:
    medians = {lr: _at(sweep, ["sps"], "polyak", lr)["sps"] for lr in (0.1, 1.0, LARGE)}
    text = ", ".join(f"{median:.3g} at α = {lr:g}" for lr, median in medians.items())
    first = _at(sweep, ["sps"], "first_polyak", 1.0)["sps"]
    text = f"median of f/‖g‖² over the first {EARLY} steps of SPS: {text}; at the very first step {first:.3g}"
    return Finding(0.03 <= medians[1.0] <= 0.32, text)


@claim(
    "cifar-half-the-epochs",
    "half the epochs do not change the main observation",
    "upper ends of the windows of SGD, SPS and NGN move by at most one grid step",
)
def _half(sweep: Swept) -> Finding:
    epochs = _settings(sweep)["epochs"]
    return _beside_the_end(
        sweep, _windows(sweep, METHODS, "half_loss", "half_bound"), f"after {epochs // 2} of {epochs} epochs"
    )


@claim(
    "cifar-validation",
    "the stability in terms of validation loss is very similar",
    "upper ends of the windows of SGD, SPS and NGN at most one grid step from those of the training loss",
)
def _validation(sweep: Swept) -> Finding:
    return _beside_the_end(sweep, _windows(sweep, METHODS, "valid_loss"), "of the validation loss")


def _beside_the_end(sweep: Swept, rows: list[Sensitivity], words: str) -> Finding:
    ends = _windows(sweep, METHODS)
    apart = [decades(row.high, end.high) for row, end in zip(rows, ends, strict=True)]
    return Finding(at_most_a_step(apart, _STEP), f"windows {words}: {windows(rows)}; at the end: {windows(ends)}")


@claim(
    "cifar-distance",
    "D is chosen close to ‖x_T − x₁‖",
    "median of ‖x_T − x₁‖ over the runs in the windows of SGD, SPS and NGN within a factor of 3 of D",
)
def _travel(sweep: Swept) -> Finding:
    far = []
    for label, row in zip(METHODS, _windows(sweep, METHODS), strict=True):
        runs = sweep.runs[label]
        far += runs["travel"][(runs.lrs >= row.low) & (runs.lrs <= row.high)].tolist()
    middle = float(np.median(far)) if far else math.nan
    guess = float(_settings(sweep)["distance"])
    text = f"‖x_T − x₁‖ at {len(far)} rates in the windows: {min(far, default=math.nan):.3g} … "
    text += f"{max(far, default=math.nan):.3g}, median {middle:.3g}; D = {guess:g}"
    return Finding(guess / 3 <= middle <= 3 * guess, text)
