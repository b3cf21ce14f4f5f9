"""Claims about ResNet20 on CIFAR-10 (Sec. 5.1 and the appendix), judged on sweeps that were run before.

A *window* is the unbroken range of rates around the best one whose loss is at most a tenth of (ln 10 − f⋆) above it:
ln 10 is the loss of guessing, f⋆ the smallest f(x_T) of the sweep. The bound's window ends where Ω exceeds 1.5 times
its minimum. "≈" means one step of the grid, half a decade. Numbers are means over the seeds that were run.

The most trusted size that can be judged decides. Rules that were changed after ``medium`` had been seen say so, and are
judged on seeds that were not seen then: those other than 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from surefoot.paper.cifar10 import COLUMNS, EARLY
from surefoot.paper.claims._claim import Evidence, Finding, at_most_a_step, claim_about, decades, listed, windows
from surefoot.plots import label_of

if TYPE_CHECKING:
    import xarray as xr

METHODS = ("sgd", "sps", "ngn")
WARMUP = "sgd+warmup"
LARGE = 10.0
"""The rate that stands for large ones: a decade above SGD's last good rate in the paper."""
_STEP = 0.5

SweepCheck = Callable[["xr.Dataset"], Finding]


class NotRun(Exception):
    """The runs that a rule needs are not there; the message says which."""


class Window(NamedTuple):
    """The rates around a method's best one that are good."""

    algorithm: str
    best: float
    low: float
    high: float


def claim(name: str, words: str, rule: str, *, before: str = "") -> Callable[[SweepCheck], SweepCheck]:
    """The decorator that makes a claim of a check of one sweep; ``before``: an earlier rule and its verdicts."""

    def take(check: SweepCheck) -> SweepCheck:
        section = "ResNet20 on CIFAR-10"
        revised = " (revised after medium: judged on other seeds than 0)" * bool(before)
        claim_about(section, name, f"{section}: {words}", rule + revised)(partial(_in_every_size, check, before))
        return check

    return take


def _in_every_size(check: SweepCheck, before: str, evidence: Evidence) -> Finding:
    """What the most trusted size says that can be judged, and what each of them says."""
    decided: Finding | None = None
    sweeps: dict[str, str] = {"before": before} if before else {}
    for preset, data in evidence.sweeps.items():
        found, seeds = _judged(check, data, data.seed.values[data.seed.values > 0] if before else data.seed.values)
        if found.holds is None and before:
            seen, _ = _judged(check, data, data.seed.values[data.seed.values == 0])
            if seen.holds is not None:
                found = Finding(None, f"no verdict, seed 0: {seen.measured}")
        verdict = "" if found.holds is None else f"{'holds' if found.holds else 'fails'}, {seeds}: "
        sweeps[preset] = verdict + found.measured
        if found.holds is not None and decided is None:
            decided = found._replace(measured=f"{found.measured} ({preset}, {seeds})")
    if decided is None:
        lacking = "; ".join(f"{preset}: {words}" for preset, words in sweeps.items())
        decided = Finding(None, "the runs with other seeds than 0 that decide are not there" if before else lacking)
    return decided._replace(sweeps=sweeps)


def _judged(check: SweepCheck, data: xr.Dataset, seeds: np.ndarray) -> tuple[Finding, str]:
    """What a check says of some seeds, or what they lack for it; and the seeds in words."""
    try:
        if not len(seeds):
            raise NotRun("there are no runs with other seeds than 0")
        chosen = data.sel(seed=seeds)
        runs = chosen.early_delta.notnull().sum(("algorithm", "lr"))
        whole = [f"{seed}" if runs.sel(seed=seed) == runs.max() else f"{seed} (in part)" for seed in seeds]
        return check(chosen), f"seed{'s' * (len(seeds) > 1)} {', '.join(whole)}"
    except NotRun as missing:
        return Finding(None, str(missing)), ""


def _means(data: xr.Dataset, labels: Iterable[str], column: str, least: float | None = None) -> dict[str, xr.DataArray]:
    """The means over the seeds, at the rates that a method was run at; from ``least`` on, that all were run at."""
    found = {}
    for label in labels:
        values = data[column].sel(algorithm=label) if column in data and label in data.algorithm else None
        with np.errstate(over="ignore"):
            values = None if values is None else values.mean("seed").dropna("lr")
        if values is None or not values.size:
            raise NotRun(f"there is no {COLUMNS[column]} of {label_of(label)}")
        found[label] = values
    if least is None:
        return found
    common = set.intersection(*({lr for lr in values.lr.values if lr > 0.99 * least} for values in found.values()))
    if not common:
        raise NotRun(f"there are no runs of {', '.join(map(label_of, found))} at the same rate from {least:.3g} on")
    return {label: values.sel(lr=sorted(common)) for label, values in found.items()}


def _at(data: xr.Dataset, labels: Iterable[str], column: str, lr: float) -> dict[str, float]:
    """A number of methods at a rate of the grid."""
    found = {}
    for label, values in _means(data, labels, column).items():
        apart = np.abs(np.log10(values.lr.values / lr))
        if apart.min() > 0.01:
            raise NotRun(f"there are no runs of {label_of(label)} at α = {lr:g}")
        found[label] = float(values[int(apart.argmin())])
    return found


def _windows(data: xr.Dataset, labels: Iterable[str], column: str = "loss", than: str | None = None) -> list[Window]:
    """The windows of methods, measured from the best number of each, or from that of one of them."""
    found, rows = _means(data, labels, column), []
    for label, values in found.items():
        lrs, numbers, least = values.lr.values, values.values, float(found[than or label].min())
        if len(lrs) < 3:
            raise NotRun(f"there are fewer than three rates of {label_of(label)}")
        limit = least + 0.1 * float(data.reference - data.loss.mean("seed").min()) if column != "bound" else 1.5 * least
        best, good = int(numbers.argmin()), (numbers <= limit) & np.isfinite(numbers)
        if not good[best]:
            rows.append(Window(label, np.nan, np.nan, np.nan))
            continue
        bad = np.flatnonzero(~good)
        low, high = bad[bad < best].max(initial=-1) + 1, bad[bad > best].min(initial=len(lrs)) - 1
        rows.append(Window(label, *(float(lrs[place]) for place in (best, low, high))))
    return rows


@claim(
    "cifar-sgd-degrades",
    "SGD starts to degrade for α ≥ 1",
    "upper end of SGD's window f ≤ f_best + 0.1(ln 10 − f⋆) between 0.316 and 1",
)
def _sgd_limit(data: xr.Dataset) -> Finding:
    (row,) = _windows(data, ["sgd"])
    return Finding(0.3 <= row.high <= 1.01, f"window {row.low:.3g}–{row.high:.3g}, best rate {row.best:.3g}")


def _reach_ten(labels: tuple[str, ...], data: xr.Dataset) -> Finding:
    rows = _windows(data, labels)
    return Finding(all(decades(row.high, 10) >= -_STEP - 1e-9 for row in rows), f"windows: {windows(rows)}")


claim(
    "cifar-sps-ngn-hold",
    "SPS and NGN work well up to α ≈ 10",
    "upper ends of the windows of SPS and NGN at least 10, up to one grid step (½ decade)",
)(partial(_reach_ten, ("sps", "ngn")))
claim(
    "cifar-log-ngn",
    "the Lambert-W step is also very stable (App. D)",
    "upper end of the window of LogNGN at least 10, up to one grid step (½ decade)",
)(partial(_reach_ten, ("log-ngn",)))


def _advantage(loss: str, data: xr.Dataset) -> Finding:
    large = _means(data, METHODS, loss, 1.0)
    best = {label: float(values.min()) for label, values in _means(data, METHODS, loss).items()}
    holds = all((large[label].values <= large["sgd"].values).all() for label in METHODS[1:])
    holds &= max(best["sps"], best["ngn"]) < best["sgd"]
    text = f"best: {listed(best, '.3g')}; at α = {LARGE:g}: {listed(_at(data, METHODS, loss, LARGE), '.3g')}"
    return Finding(holds, text)


claim(
    "cifar-advantage",
    "SPS and NGN are more stable than SGD for large α and achieve a smaller loss",
    "mean f(x_T) of both at most SGD's at every α ≥ 1, and smaller than SGD's best at their best rates",
)(partial(_advantage, "loss"))


def _gain(column: str, words: str, data: xr.Dataset) -> Finding:
    before, after = (row.high for row in _windows(data, ["sgd", WARMUP], column, than="sgd"))
    gain = decades(after, before)
    return Finding(at_most_a_step([gain - 1], _STEP), f"{words}: {before:.3g} → {after:.3g}; {gain:+.2f} decades")


claim(
    "cifar-warmup",
    "with warmup SGD works for roughly one order of magnitude larger α",
    "the last rate at which f(x_T) is at most SGD's best + 0.1(ln 10 − f⋆) grows by 1 ± ½ decades with warmup",
    before="SGD's window grows by 1 ± ½ decades: small holds, medium fails",
)(partial(_gain, "loss", "last rate as good as SGD's best"))
claim(
    "cifar-warmup-bound",
    "the gain of warmup is reflected in the bound",
    "the last rate at which Ω is at most 1.5 × SGD's smallest grows by 1 ± ½ decades with warmup",
    before="the window of SGD's bound grows by 1 ± ½ decades: small holds, medium fails",
)(partial(_gain, "bound", "last rate with a low bound"))


@claim(
    "cifar-bound-best-rate",
    "the rate with the smallest bound of SPS matches the one with the smallest training loss",
    "at most one grid step (½ decade) apart for SPS",
)
def _best_rate(data: xr.Dataset) -> Finding:
    (loss,), (bound,) = _windows(data, ["sps"]), _windows(data, ["sps"], "bound")
    apart = decades(bound.best, loss.best)
    return Finding(at_most_a_step([apart], _STEP), f"best rates of SPS: loss {loss.best:.3g}, bound {bound.best:.3g}")


@claim(
    "cifar-sps-best-rates",
    "SPS achieves the best performance for α between 1 and 10 (App. B.2)",
    "the rate with the smallest f(x_T) of SPS between 1 and 10",
)
def _sps_best(data: xr.Dataset) -> Finding:
    (row,) = _windows(data, ["sps"])
    return Finding(0.99 <= row.best <= 10.1, f"best rate of SPS {row.best:.3g}, window {row.low:.3g}–{row.high:.3g}")


@claim(
    "cifar-bound-mirrors-loss",
    "the bound closely reflects the range of rates with a good final training loss",
    "upper ends of the windows of Ω (≤ 1.5 × its minimum) and of the loss at most one grid step apart for all three",
    before="windows end at most half a decade apart: small fails, medium fails",
)
def _mirrors(data: xr.Dataset) -> Finding:
    pairs = zip(_windows(data, METHODS, "bound"), _windows(data, METHODS), strict=True)
    apart = {loss.algorithm: decades(bound.high, loss.high) for bound, loss in pairs}
    text = f"bound's upper end over the loss's, in decades: {listed(apart, '+.2f')}"
    return Finding(at_most_a_step(apart.values(), _STEP), text)


@claim(
    "cifar-any-distance",
    "the advantage of SPS and NGN for large α is reflected in the bound independent of D",
    "noise of Ω, which does not depend on D, of SPS and NGN below SGD's from a decade above SGD's window on",
    before="noise of Ω below SGD's at α ≥ 1: small fails, medium fails",
)
def _any_distance(data: xr.Dataset) -> Finding:
    """With one D for all methods the bias cancels: what is left to compare is the noise."""
    (sgd,) = _windows(data, ["sgd"])
    noise = _means(data, METHODS, "noise", 10 * sgd.high)
    holds = all((noise[label].values < noise["sgd"].values).all() for label in METHODS[1:])
    first = float(noise["sgd"].lr[0])
    text = f"noise of Ω at α = {first:.3g}: {listed({label: float(row[0]) for label, row in noise.items()}, '.3g')}"
    return Finding(holds, text)


def _largest_early(rate: float, most: dict[str, float]) -> str:
    return f"largest δ_t of the first {EARLY} steps at α = {rate:.3g}: {listed(most, '.3g')}"


@claim(
    "cifar-delta-explodes",
    "δ_t explodes for SGD in the first iterations when α is large, and grows much slower for SPS and NGN",
    f"at α = {LARGE:g} SGD's largest δ_t of the first {EARLY} steps at least 10 × those of SPS and NGN",
)
def _explosion(data: xr.Dataset) -> Finding:
    most = _at(data, METHODS, "early_delta", LARGE)
    return Finding(most["sgd"] >= 10 * max(most["sps"], most["ngn"]), _largest_early(LARGE, most))


@claim(
    "cifar-warmup-delta",
    "with warmup the increase of δ_t is slowed down",
    f"the largest δ_t of the first {EARLY} steps of SGD with warmup at most a tenth, at α = {LARGE:g} or "
    "the largest rate that both were run at",
)
def _slowed(data: xr.Dataset) -> Finding:
    rate = min(LARGE, *(float(values.lr[-1]) for values in _means(data, ["sgd", WARMUP], "early_delta").values()))
    most = _at(data, ["sgd", WARMUP], "early_delta", rate)
    return Finding(most[WARMUP] <= 0.1 * most["sgd"], _largest_early(rate, most))


@claim(
    "cifar-polyak-ratio",
    "f/‖g‖² is around 0.1 in early training (App. B.2)",
    f"the smallest of the first {EARLY} steps of SPS at α = 1, which bounds 1/(2L), at most 0.1",
    before="early median of f/‖g‖² between 0.03 and 0.32: medium fails (0.44)",
)
def _polyak(data: xr.Dataset) -> Finding:
    text = ", ".join(f"{_at(data, ['sps'], 'polyak', lr)['sps']:.3g} at α = {lr:g}" for lr in (0.1, 1.0, LARGE))
    first, least = (_at(data, ["sps"], column, 1.0)["sps"] for column in ("first_polyak", "least_polyak"))
    text = f"f/‖g‖² of SPS: smallest {least:.3g}, first {first:.3g}, median over the first {EARLY} steps {text}"
    return Finding(least <= 0.1, text)


claim(
    "cifar-half-the-epochs",
    "half the epochs do not change the main observation",
    "after half the epochs: loss of SPS and NGN at most SGD's at every α ≥ 1, their best below SGD's best",
    before="windows move by at most half a decade: medium fails",
)(partial(_advantage, "half_loss"))


@claim(
    "cifar-validation",
    "the stability in terms of validation loss is very similar",
    "upper ends of the windows of validation and training loss at the same iterate at most one grid step apart",
    before="windows of both losses end at most half a decade apart: small holds, medium fails",
)
def _validation(data: xr.Dataset) -> Finding:
    held_out, end = _windows(data, METHODS, "valid_loss"), _windows(data, METHODS, "end_loss")
    apart = [decades(row.high, other.high) for row, other in zip(held_out, end, strict=True)]
    text = f"windows of validation: {windows(held_out)}; training: {windows(end)}"
    return Finding(at_most_a_step(apart, _STEP), text)


@claim(
    "cifar-distance",
    "D is chosen close to ‖x_T − x₁‖",
    "median of ‖x_T − x₁‖ over the runs in the windows of SGD, SPS and NGN within a factor of 3 of D",
)
def _travel(data: xr.Dataset) -> Finding:
    rows, travel = _windows(data, METHODS), _means(data, METHODS, "travel")
    far = np.concatenate([travel[row.algorithm].sel(lr=slice(row.low, row.high)) for row in rows])
    if not far.size:
        return Finding(False, "no method has a window")
    middle, guess = float(np.median(far)), float(data.distance)
    text = f"‖x_T − x₁‖ at {far.size} rates in the windows: {far.min():.3g} … {far.max():.3g}, median {middle:.3g}"
    return Finding(guess / 3 <= middle <= 3 * guess, f"{text}; D = {guess:g}")


@claim(
    "cifar-norms",
    "different methods or rates can end with a similar loss, but a rather distinct norm (Sec. 5.1, footnote)",
    "two runs whose losses differ by at most 0.02 and whose ‖x_T − x₁‖ differ by a factor of 3 or more",
)
def _norms(data: xr.Dataset) -> Finding:
    if "loss" not in data:
        raise NotRun(f"there is no {COLUMNS['loss']}")
    runs = data[["loss", "travel"]].mean("seed").stack(run=("algorithm", "lr"))
    runs = runs.isel(run=np.isfinite(runs.loss.values) & np.isfinite(runs.travel.values))
    losses, travel = runs.loss.values, runs.travel.values
    ratio = np.where(np.abs(losses[:, None] - losses) <= 0.02, travel[:, None] / travel, 0.0)
    far, near = np.unravel_index(int(ratio.argmax()), ratio.shape)
    names = [f"{label_of(algorithm)} at {lr:.3g}" for algorithm, lr in runs.run.values]
    text = "; ".join(f"{names[k]}: loss {losses[k]:.3g}, ‖x_T − x₁‖ = {travel[k]:.3g}" for k in (far, near))
    return Finding(bool(ratio.max() >= 3), text)
