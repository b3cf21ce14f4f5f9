"""Forecasts of final losses against four simpler ones, on the same splits of real runs.

    python benchmarks/forecast.py [DATA] [--recorded]

DATA is a folder with ``runs.csv`` and ``curves.csv.gz`` of language models (by default ``llama-runs`` inside of the
folder that SUREFOOT_DATA names). The error of every forecast is recorded in ``forecast.csv``, with their curves and
with final losses only. Small networks are trained here, unless they are in ``forecast_networks.csv``.

Splits, all of 124 M parameters on one data set unless another model is named, and without the one run that diverged:

- *horizon*: fit the runs of at most 25,000 steps, forecast all longer ones;
- *schedule*: fit the WSD runs with a cooldown of 20 %, forecast cosine, constant and all other cooldowns;
- *other models*: fit the shorter runs of another model or data set, forecast its longest one with a cosine.

The form and its prior were chosen on runs of at most 25,000 steps and on longer ones with rates 5e-4 and 2e-3. Longer
runs with the rates 1e-4, 1e-3 and 3e-3, and all other models, were not looked at: rows "untouched" are about these.

Error: mean |forecast − loss|/loss. Regret: loss of the run with the smallest forecast, minus the smallest loss.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.stats import spearmanr

import _forecast_networks as networks
import surefoot as sf
from surefoot.forecasting import _fit, _read, _solve
from surefoot.forecasting import curve as form
from surefoot.theory import schedules

RECORDED = Path(__file__).with_suffix(".csv")
NETWORKS, SEEDS = Path(__file__).with_name("forecast_networks.csv"), (0, 1)
PARAMETERS, DATASET = 123_587_328, "slimpajama"
MUST = {"horizon": 0.35, "schedule": 0.28, "regret": 0.005, "coverage": (0.80, 0.97), "rank": 0.9}

Runs = list[_read.Run]


# ---- the forecasts: each takes runs to fit and runs to forecast, and returns losses


def ours(train: Runs, test: Runs) -> np.ndarray:
    """With the ends of the 90 % interval."""
    fitted = _fit.fit(train)
    return np.array([fitted.predict(run.rates) for run in test])


def shape(run: _read.Run) -> float:
    """log(N/A) of a run's schedule."""
    return float(_fit.shape(form.trace(run.rates)))


def best_of_the_short(train: Runs, test: Runs) -> np.ndarray:
    """What was measured at the longest run with the nearest rate, and schedule if it was there."""

    def nearest(run: _read.Run) -> float:
        def distance(other: _read.Run) -> tuple[float, float, float]:
            apart = abs(shape(run) - shape(other))
            return round(abs(np.log(run.lr / other.lr)), 6), round(apart, 1), abs(np.log(run.steps / other.steps))

        return min(train, key=distance).loss

    return np.array([nearest(run) for run in test])


def power_law(train: Runs, test: Runs) -> np.ndarray:
    """c·T^(−b) with a c for every rate and schedule and one b; where a pair is new, that of the nearest."""
    keys = sorted({(run.lr, run.schedule) for run in train})
    columns = np.zeros((len(train), len(keys) + 1))
    for row, run in zip(columns, train, strict=True):
        row[keys.index((run.lr, run.schedule))], row[-1] = 1.0, -np.log(run.steps)
    found = np.linalg.lstsq(columns, np.log([run.loss for run in train]), rcond=None)[0]
    shapes = {key: np.mean([shape(run) for run in train if (run.lr, run.schedule) == key]) for key in keys}

    def predict(run: _read.Run) -> float:
        key = min(keys, key=lambda key: (abs(np.log(key[0] / run.lr)), abs(shapes[key] - shape(run))))
        return float(np.exp(found[keys.index(key)] - found[-1] * np.log(run.steps)))

    return np.array([predict(run) for run in test])


def multi_power_law(train: Runs, test: Runs) -> np.ndarray:
    """Luo et al. 2025, arXiv 2503.12811: L_0 + A·S^(−α) − B Σ_k (η_{k−1} − η_k)·(1 − (1 + C·η_k^(−γ)·S_k)^(−β)).

    Seven numbers for every rate (it is a law of one peak rate), and the nearest rate's where there is none; Huber
    loss of logarithms (0.001) as in the paper, on the points that our fit sees; the warmup counts in S only.
    """
    rates = sorted({run.lr for run in train})
    nearest = {run.lr: min(rates, key=lambda rate: abs(np.log(rate / run.lr))) for run in test}
    fits = {rate: _multi_power_law([run for run in train if run.lr == rate]) for rate in set(nearest.values())}
    return np.concatenate([fits[nearest[run.lr]](form.trace(run.rates, [run.steps])) for run in test])


def _multi_power_law(train: Runs) -> Callable[[form.Trace], np.ndarray]:

    def losses(values: np.ndarray, parts: form.Trace) -> np.ndarray:
        floor, log_a, alpha, log_b, log_c, beta, gamma, _ = values
        mass = parts.counts * parts.rates
        behind = np.cumsum(mass, axis=-1)
        earlier = np.pad(parts.rates, ((0, 0), (0, 1)))[:, 1:]
        drop = np.where(np.pad(parts.counts, ((0, 0), (0, 1)))[:, 1:] > 0, np.maximum(earlier - parts.rates, 0.0), 0.0)
        scaled = np.exp(log_c) * np.maximum(parts.rates, 1e-12) ** -gamma * behind
        gone = (drop * (1 - (1 + scaled) ** -beta)).sum(axis=-1)
        return np.asarray(floor + np.exp(log_a) * behind[:, -1] ** -alpha - np.exp(log_b) * gone)

    data = _solve.points(train)
    weights = np.where(data.final, 1.0, _solve.CURVE_WEIGHT)

    def residuals(values: np.ndarray) -> np.ndarray:
        fitted = losses(values, data.parts) - values[-1] * ~data.final
        return np.nan_to_num(weights * (np.log(np.maximum(fitted, 0.1)) - np.log(data.losses)) / 1e-3, nan=1e3)

    starts = [np.array([2.6, -0.6, 0.5, np.log(b), np.log(c), 0.6, 0.5, 0.03]) for b, c in ((100, 2.0), (400, 0.1))]
    low = [0, -5, 0.05, 0, -8, 0.05, 0, -1]
    high = [10, 5, 2, 12, 8, 3, 2, 1]
    options: dict[str, Any] = {"loss": "huber", "bounds": (low, high), "x_scale": "jac", "max_nfev": 100}
    solved = [least_squares(residuals, start, **options) for start in starts]
    best = min(solved, key=lambda solution: float(solution.cost))
    return lambda parts: losses(best.x, parts)


def plain_bound(train: Runs, test: Runs) -> np.ndarray:
    """c + a/S + b·N: the bound as it stands, with p = q = 1 and three numbers, robustly fitted."""
    data = _solve.points(train)

    def columns(parts: form.Trace) -> np.ndarray:
        found = form.sums(parts)
        return np.stack([np.ones_like(found.total), 1 / found.total, found.noise], axis=-1)

    design = np.column_stack([columns(data.parts), -1.0 * ~data.final])
    scaled = np.abs(design).max(axis=0) + 1e-12
    weights = np.where(data.final, 1.0, _solve.CURVE_WEIGHT)
    start = np.linalg.lstsq(design / scaled, data.losses, rcond=None)[0]
    found = least_squares(
        lambda values: weights * (design / scaled @ values - data.losses) / 0.004, start, loss="soft_l1"
    ).x
    ends = form.stack([form.trace(run.rates, [run.steps]) for run in test])
    return np.asarray(columns(ends) @ (found / scaled)[:3])


FORECASTS: dict[str, Callable[[Runs, Runs], np.ndarray]] = {
    "surefoot": ours,
    "best of the short runs": best_of_the_short,
    "power law in T": power_law,
    "multi-power law": multi_power_law,
    "bound, p = q = 1": plain_bound,
}


# ---- the splits


def language_models(folder: Path, with_curves: bool) -> pd.DataFrame:
    """A row per forecast of a run, and one per forecast for its choice among the runs of 50,000 steps."""
    everything, _ = _read.read(folder / "runs.csv", folder / "curves.csv.gz")  # rates as logged, for every forecast
    if not with_curves:
        empty = (np.empty(0), np.empty(0))
        everything = [_read.Run(**{**run.__dict__, "curve": empty}) for run in everything]
    main = [run for run in everything if {("parameters", PARAMETERS), ("dataset", DATASET)} <= set(run.group)]
    main = [run for run in main if run.lr < 0.005]  # the one that diverged
    cooldown = {run.name: schedules.parse(run.schedule)[1].get("cooldown") for run in main}
    splits = {
        "horizon": ([r for r in main if r.steps <= 25_000], [r for r in main if r.steps > 25_000]),
        "schedule": ([r for r in main if cooldown[r.name] == 0.2], [r for r in main if cooldown[r.name] != 0.2]),
    }
    rows: list[dict[str, Any]] = []
    for split, (train, test) in splits.items():
        measured = np.array([run.loss for run in test])
        for name, forecast in FORECASTS.items():
            found = np.atleast_2d(forecast(train, test).T).T  # the forecast, and with ours its interval
            for run, value in zip(test, found, strict=True):
                rows.append(
                    {
                        "forecast": name,
                        "split": split,
                        "fitted": len(train),
                        "run": run.name,
                        "kind": "constant" if cooldown[run.name] == 0 else schedules.parse(run.schedule)[0],
                        "untouched": run.steps > 25_000 and run.lr in (1e-4, 1e-3, 3e-3),
                        "error": 100 * (value[0] - run.loss) / run.loss,
                        "inside": bool(value[1] <= run.loss <= value[2]) if len(value) > 1 else None,
                    }
                )
            at_end = [place for place, run in enumerate(test) if run.steps == 50_000]
            if split == "horizon":
                missed = measured[at_end][np.argmin(found[at_end, 0])] - measured[at_end].min()
                rows.append({"forecast": name, "split": "regret at 50k", "error": missed})
    return pd.DataFrame([*rows, *other_models(everything, main)]).assign(curves=with_curves)


def other_models(everything: Runs, main: Runs) -> list[dict[str, Any]]:
    """The longest run of every other model, forecast from the shorter ones."""
    prior = _fit.fit(main).prior()
    rows = []
    for group in sorted({run.group for run in everything} - {main[0].group}, key=str):
        members = [run for run in everything if run.group == group]
        if len(members) < 5:
            continue
        last = max(members, key=lambda run: (run.schedule.startswith("cosine"), run.steps))
        train = [run for run in members if run is not last and run.steps < last.steps]
        named = dict(group)
        model = f"{named['dataset']}, {named['parameters'] / 1e6:.0f} M, {last.steps:,} steps"
        ending = form.trace(last.rates, weight_decay=last.weight_decay)
        for how, fit in {"apart": _fit.fit(train), "leaning": _fit.fit(train, prior)}.items():
            error = 100 * (float(form.loss(fit.parameters, ending, fit.reference)) - last.loss) / last.loss
            rows.append({"forecast": how, "split": "other models", "fitted": len(train), "run": model, "error": error})
    return rows


def show(rows: pd.DataFrame) -> None:
    """The tables of what was forecast."""
    for curves, these in rows.groupby("curves", sort=False):
        print(f"\nfinal losses{' and curves' if curves else ' only'}: mean error in %\n")
        splits = {split: these[these.split == split] for split in ("horizon", "schedule")}
        sizes = [f"{split} ({int(a.fitted.iloc[0])} → {a.run.nunique()})" for split, a in splits.items()]
        print(f"| forecast | {' | '.join(sizes)} | untouched | | regret at 50k |\n|---|---|---|---|---|---|")
        for name in FORECASTS:
            own = [part[part.forecast == name] for part in splits.values()]
            errors = [part.error.abs().mean() for part in own]
            errors += [part[part.untouched.astype(bool)].error.abs().mean() for part in own]
            missed = these[(these.split == "regret at 50k") & (these.forecast == name)].error.item()
            print(f"| {name} | {' | '.join(f'{error:.3f}' for error in errors)} | {missed:.4f} |")
        print("\n| split | runs in the 90 % interval | mean error by schedule |\n|---|---|---|")
        for split, part in splits.items():
            ours = part[part.forecast == "surefoot"]
            kinds = [f"{kind} {value:+.2f}" for kind, value in ours.groupby("kind").error.mean().items()]
            print(f"| {split} | {ours.inside.astype(bool).mean():.0%} | {', '.join(kinds)} |")
        print("\n| other model | fitted runs | error, exponents apart | and leaning |\n|---|---|---|---|")
        for model, pair in these[these.split == "other models"].groupby("run"):
            apart, leaning = (pair[pair.forecast == how].error.item() for how in ("apart", "leaning"))
            print(f"| {model} | {int(pair.fitted.iloc[0])} | {apart:+.2f} % | {leaning:+.2f} % |")


def small_networks(path: Path) -> None:
    rows = networks.read(path)
    lengths = f"T ≤ {max(networks.SHORT)} → {networks.LONG}"
    print(f"\n| small networks, {lengths} | rank correlation | error | in the interval | regret |")
    print("|---|---|---|---|---|")
    for seed in SEEDS:
        for name in networks.RATES:
            chosen = [row for row in rows if (row["dataset"], row["seed"]) == (name, seed)]
            mine: list[dict[str, Any]] = [{**row, "run": k} for k, row in enumerate(chosen)]
            short = [row for row in mine if row["steps"] < networks.LONG]
            longer = [row for row in mine if row["steps"] == networks.LONG and np.isfinite(row["final_loss"])]
            fit, measured = sf.forecast(short), np.array([row["final_loss"] for row in longer])
            loss, low, high = np.array([fit.predict(row["lr"], row["schedule"], row["steps"]) for row in longer]).T
            inside = ((low <= measured) & (measured <= high)).mean()
            missed = measured[loss.argmin()] - measured.min()
            rank = spearmanr(loss, measured).statistic
            off = (abs(loss - measured) / measured).mean()
            size = f"{len(short)} → {len(longer)} runs"
            print(f"| {name}, seed {seed} ({size}) | {rank:.3f} | {off:.2%} | {inside:.0%} | {missed:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="folder with runs.csv and curves.csv.gz")
    parser.add_argument("--recorded", action="store_true", help="forecast no language models, print what is recorded")
    given = parser.parse_args()
    folder = given.data or Path(os.environ.get("SUREFOOT_DATA", ".")) / "llama-runs"
    if not given.recorded:
        if not (folder / "runs.csv").is_file():
            parser.error(f"{folder / 'runs.csv'} is not there; name the folder, or set SUREFOOT_DATA")
        forecasts = [language_models(folder, with_curves) for with_curves in (True, False)]
        pd.concat(forecasts).to_csv(RECORDED, index=False, float_format="%.5f")
        for seed in SEEDS:
            networks.record(NETWORKS, seed)
    show(pd.read_csv(RECORDED))
    small_networks(NETWORKS)
    print("\nmust:", ", ".join(f"{name} {limit}" for name, limit in MUST.items()))


if __name__ == "__main__":
    main()
