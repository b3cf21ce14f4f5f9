"""Claims about ResNet20 on CIFAR-10 (Sec. 5.1 and the appendix), judged on a sweep that was run before.

A *window* is the unbroken range of rates around the best one whose loss is at most a tenth of (ln 10 − f⋆) above it:
ln 10 is the loss of guessing, f⋆ the smallest f(x_T) of the sweep. "≈" means one step of the grid, half a decade.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from surefoot.paper.claims._claim import Claim, Evidence, Finding, NotRun, Sweep
from surefoot.paper.curves import MissingRuns, curve_label
from surefoot.paper.summary import EARLY, Summary
from surefoot.plots import label_of
from surefoot.study import Sensitivity

METHODS = ("sgd", "sps", "ngn")
WARMUP = "sgd+warmup"
LARGE = 10.0
"""The rate that stands for large ones: a decade above SGD's last good rate in the paper."""
_GRID_STEP = 0.5
_SLACK = 1e-9


def _on_cifar(check: Callable[[Sweep], Finding]) -> Callable[[Evidence], Finding]:
    """A check of the CIFAR-10 sweep; the numbers say which preset they are of."""

    def checked(evidence: Evidence) -> Finding:
        sweep = evidence.sweep("cifar10")
        try:
            found = check(sweep)
        except MissingRuns as absent:
            raise NotRun(f"there are no runs of {absent.args[0]} ({_origin(sweep)})") from None
        return Finding(found.holds, f"{found.measured} ({_origin(sweep)})")

    return checked


def _origin(sweep: Sweep) -> str:
    """Where the numbers come from, and what a sweep that is not finished lacks."""
    parts = sweep.settings.parts
    planned = {curve_label(part, method): part for part in parts for method in parts[part]["methods"]}
    absent = [label for label in planned if label not in sweep.runs]
    counts = {
        part: f"{len(sweep.runs[label].lrs)} of {len(parts[part]['lrs'])} rates"
        for label, part in planned.items()
        if label in sweep.runs and len(sweep.runs[label].lrs) < len(parts[part]["lrs"])
    }
    lacking = [*dict.fromkeys(counts.values()), *(["no runs of " + ", ".join(absent)] if absent else [])]
    origin = f"preset {sweep.preset}{', as recorded in the package' if sweep.recorded else ''}"
    return f"{origin}, not finished: {'; '.join(lacking)}" if lacking else origin


def window(sweep: Sweep, label: str, loss: str = "loss", bound: str = "bound") -> Sensitivity:
    """Window and best rate of a method: of f(x_T) and Ω_T, or of others."""
    runs = sweep.runs[label]
    optimal = min(float(np.min(other["loss"])) for other in sweep.runs.values())
    reference = sweep.settings.reference
    assert reference is not None  # known for every image set
    return runs.window(runs[loss], runs[bound], reference, optimal)


def _ends(rows: Iterable[Sensitivity]) -> str:
    return ", ".join(f"{label_of(row.algorithm)} {row.low:.3g}–{row.high:.3g}" for row in rows)


def _decades(high: float, low: float) -> float:
    """log10(high/low); NaN (which meets no rule) where one of them does not exist."""
    return math.log10(high / low) if high > 0 and low > 0 else math.nan


def _sgd_limit(sweep: Sweep) -> Finding:
    row = window(sweep, "sgd")
    return Finding(0.3 <= row.high <= 1.01, f"window {row.low:.3g}–{row.high:.3g}, best rate {row.best_rate:.3g}")


def _limits(sweep: Sweep) -> Finding:
    rows = [window(sweep, label) for label in ("sps", "ngn")]
    return Finding(all(row.high >= 3.1 for row in rows), f"windows: {_ends(rows)}")


def _advantage(sweep: Sweep) -> Finding:
    losses = {label: sweep.runs[label]["loss"] for label in METHODS}
    large = sweep.runs["sgd"].lrs > 0.99
    below = all((losses[label][large] <= losses["sgd"][large]).all() for label in ("sps", "ngn"))
    smaller = all(losses[label].min() < losses["sgd"].min() for label in ("sps", "ngn"))
    at_large = ", ".join(f"{label_of(label)} {_at(sweep.runs[label], 'loss', LARGE):.3g}" for label in METHODS)
    best = ", ".join(f"{label_of(label)} {values.min():.3g}" for label, values in losses.items())
    return Finding(bool(below and smaller), f"best f(x_T): {best}; at α = {LARGE:g}: {at_large}")


def _warmup(sweep: Sweep) -> Finding:
    rows = [window(sweep, label) for label in ("sgd", WARMUP)]
    gain = _decades(rows[1].high, rows[0].high)
    return Finding(_is_about_one(gain), f"windows: {_ends(rows)}; {gain:+.2f} decades")


def _warmup_bound(sweep: Sweep) -> Finding:
    rows = [window(sweep, label) for label in ("sgd", WARMUP)]
    gain = _decades(rows[1].bound_high, rows[0].bound_high)
    return Finding(
        _is_about_one(gain),
        f"upper ends of the bound's windows {rows[0].bound_high:.3g} → {rows[1].bound_high:.3g}; {gain:+.2f} decades",
    )


def _is_about_one(gain: float) -> bool:
    return abs(gain - 1) <= _GRID_STEP + _SLACK


def _best_rate(labels: tuple[str, ...]) -> Callable[[Sweep], Finding]:
    def check(sweep: Sweep) -> Finding:
        rows = [window(sweep, label) for label in labels]
        text = ", ".join(
            f"{label_of(row.algorithm)} loss {row.best_rate:.3g}, bound {row.bound_rate:.3g}" for row in rows
        )
        return Finding(all(row.minimiser_distance <= _GRID_STEP + _SLACK for row in rows), f"best rates: {text}")

    return check


def _bound_windows(sweep: Sweep) -> Finding:
    rows = [window(sweep, label) for label in METHODS]
    apart = {row.algorithm: _decades(row.bound_high, row.high) for row in rows}
    text = ", ".join(f"{label_of(label)} {value:+.2f}" for label, value in apart.items())
    holds = all(abs(value) <= _GRID_STEP + _SLACK for value in apart.values())
    return Finding(holds, f"bound's upper end over the loss's, in decades: {text}")


def _any_distance(sweep: Sweep) -> Finding:
    """With one D for all methods the bias cancels: what is left to compare is the noise."""
    noise = {label: sweep.runs[label]["noise"] for label in METHODS}
    large = sweep.runs["sgd"].lrs > 0.99
    with np.errstate(invalid="ignore"):
        holds = all((noise[label][large] < noise["sgd"][large]).all() for label in ("sps", "ngn"))
    text = "; ".join(
        f"α = {lr:.3g}: "
        + ", ".join(f"{label_of(label)} {_at(sweep.runs[label], 'noise', lr):.3g}" for label in METHODS)
        for lr in (1.0, LARGE)
    )
    return Finding(bool(holds), f"noise of Ω: {text}")


def _explosion(sweep: Sweep) -> Finding:
    most, text = _largest_early(sweep, METHODS)
    return Finding(most["sgd"] >= 10 * max(most["sps"], most["ngn"]), text)


def _slowed(sweep: Sweep) -> Finding:
    most, text = _largest_early(sweep, ("sgd", WARMUP))
    return Finding(most[WARMUP] <= 0.1 * most["sgd"], text)


def _largest_early(sweep: Sweep, labels: tuple[str, ...]) -> tuple[dict[str, float], str]:
    """At the large rate, or at the largest one that all of these were run at."""
    rate = min(LARGE, *(float(sweep.runs[label].lrs[-1]) for label in labels))
    most = {label: _at(sweep.runs[label], "early_delta", rate) for label in labels}
    text = ", ".join(f"{label_of(label)} {value:.3g}" for label, value in most.items())
    return most, f"largest E[δ_t] of the first {EARLY} steps at α = {rate:.3g}: {text}"


def _polyak(sweep: Sweep) -> Finding:
    runs = sweep.runs["sps"]
    medians = {lr: _at(runs, "polyak", lr) for lr in (0.1, 1.0, LARGE)}
    text = ", ".join(f"{median:.3g} at α = {lr:g}" for lr, median in medians.items())
    first = _at(runs, "first_polyak", 1.0)
    text = f"median of f/‖g‖² over the first {EARLY} steps of SPS: {text}; at the very first step {first:.3g}"
    return Finding(0.03 <= medians[1.0] <= 0.32, text)


def _half(sweep: Sweep) -> Finding:
    epochs = _settings(sweep)["epochs"]
    rows = [(window(sweep, label, "half_loss", "half_bound"), label) for label in METHODS]
    return _compared(sweep, rows, f"after {epochs // 2} of {epochs} epochs")


def _validation(sweep: Sweep) -> Finding:
    return _compared(
        sweep, [(window(sweep, label, "valid_loss"), label) for label in METHODS], "of the validation loss"
    )


def _compared(sweep: Sweep, rows: list[tuple[Sensitivity, str]], words: str) -> Finding:
    apart = [abs(_decades(row.high, window(sweep, label).high)) for row, label in rows]
    text = f"windows {words}: {_ends(row for row, _ in rows)}; at the end: "
    text += _ends(window(sweep, label) for _, label in rows)
    return Finding(all(value <= _GRID_STEP + _SLACK for value in apart), text)


def _travel(sweep: Sweep) -> Finding:
    far = []
    for label in METHODS:
        row, runs = window(sweep, label), sweep.runs[label]
        far += runs["travel"][(runs.lrs >= row.low) & (runs.lrs <= row.high)].tolist()
    middle = float(np.median(far)) if far else math.nan
    guess = float(_settings(sweep)["distance"])
    text = f"‖x_T − x₁‖ at {len(far)} rates in the windows: {min(far, default=math.nan):.3g} … "
    text += f"{max(far, default=math.nan):.3g}, median {middle:.3g}; D = {guess:g}"
    return Finding(guess / 3 <= middle <= 3 * guess, text)


def _settings(sweep: Sweep) -> Mapping[str, Any]:
    return next(iter(sweep.settings.parts.values()))


def _at(runs: Summary, column: str, lr: float) -> float:
    """A number at a rate of the grid, up to half of its step."""
    apart = np.abs(np.log10(runs.lrs / lr))
    if apart.min() > 0.5 * _GRID_STEP:
        raise MissingRuns(f"{runs.label} at α = {lr:g}")
    return float(runs[column][int(apart.argmin())])


_WINDOW = "f ≤ f_best + 0.1(ln 10 − f⋆)"

CLAIMS = tuple(
    Claim(name, f"ResNet20 on CIFAR-10: {claim}", rule, _on_cifar(check))
    for name, claim, rule, check in (
        (
            "cifar-sgd-degrades",
            "SGD starts to degrade for α ≥ 1",
            f"upper end of SGD's window {_WINDOW} between 0.316 and 1",
            _sgd_limit,
        ),
        (
            "cifar-sps-ngn-hold",
            "SPS and NGN work well up to α ≈ 10",
            "upper ends of the windows of SPS and NGN at least 10, up to one grid step (½ decade)",
            _limits,
        ),
        (
            "cifar-advantage",
            "SPS and NGN are more stable than SGD for large α and achieve a smaller loss",
            "mean f(x_T) of both at most SGD's at every α ≥ 1, and smaller than SGD's best at their best rates",
            _advantage,
        ),
        (
            "cifar-warmup",
            "with warmup SGD works for roughly one order of magnitude larger α",
            "upper end of SGD's window grows by 1 ± ½ decades with warmup",
            _warmup,
        ),
        (
            "cifar-warmup-bound",
            "the gain of warmup is reflected in the bound",
            "upper end of the bound's window for SGD grows by 1 ± ½ decades with warmup",
            _warmup_bound,
        ),
        (
            "cifar-bound-best-rate",
            "the rate with the smallest bound of SPS matches the one with the smallest training loss",
            "at most one grid step (½ decade) apart for SPS",
            _best_rate(("sps",)),
        ),
        (
            "cifar-bound-best-rates",
            "the same for every method",
            "at most one grid step (½ decade) apart for SGD, SPS, NGN and SGD with warmup",
            _best_rate((*METHODS, WARMUP)),
        ),
        (
            "cifar-bound-mirrors-loss",
            "the bound closely reflects the range of rates with a good final training loss",
            "upper ends of the bound's and the loss's windows at most one grid step apart for SGD, SPS, NGN",
            _bound_windows,
        ),
        (
            "cifar-any-distance",
            "the advantage of SPS and NGN for large α is reflected in the bound independent of D",
            "noise of Ω, which does not depend on D, of SPS and NGN below SGD's at every α ≥ 1",
            _any_distance,
        ),
        (
            "cifar-delta-explodes",
            "δ_t explodes for SGD in the first iterations when α is large, and grows much slower for SPS and NGN",
            f"at α = {LARGE:g} the largest E[δ_t] of the first {EARLY} steps of SGD at least 10 × those of SPS and NGN",
            _explosion,
        ),
        (
            "cifar-warmup-delta",
            "with warmup the increase of δ_t is slowed down",
            f"the largest E[δ_t] of the first {EARLY} steps of SGD with warmup at most a tenth, at α = {LARGE:g} or "
            "the largest rate that both were run at",
            _slowed,
        ),
        (
            "cifar-polyak-ratio",
            "f/‖g‖² is around 0.1 in early training (App. B.2)",
            f"median over the first {EARLY} steps of SPS at α = 1 between 0.03 and 0.32",
            _polyak,
        ),
        (
            "cifar-half-the-epochs",
            "half the epochs do not change the main observation",
            "upper ends of the windows of SGD, SPS and NGN move by at most one grid step",
            _half,
        ),
        (
            "cifar-validation",
            "the stability in terms of validation loss is very similar",
            "upper ends of the windows of SGD, SPS and NGN at most one grid step from those of the training loss",
            _validation,
        ),
        (
            "cifar-distance",
            "D is chosen close to ‖x_T − x₁‖",
            "median of ‖x_T − x₁‖ over the runs in the windows of SGD, SPS and NGN within a factor of 3 of D",
            _travel,
        ),
    )
)
