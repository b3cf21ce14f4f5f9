"""The figures of the convex experiments: the paper's six, and one of ours on rates of convergence."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from surefoot.paper.experiments import EXPERIMENTS, constants_of, study
from surefoot.paper.figures.panels import Recipe, draw_rates, draw_traces
from surefoot.plots.methods import looks
from surefoot.plots.style import drawable, key, legend_below, new_figure
from surefoot.theory import rates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from surefoot.study import Result


VARIANTS = ("v1", "v2", "v3")


def experiment_data(name: str, result: Result) -> xr.Dataset:
    """Losses, bounds, indices over time and constants of an experiment."""
    measured = constants_of(name)
    deltas = result.dataset.delta.sel(lr=list(EXPERIMENTS[name].rates), method="nearest")
    more = {} if name in VARIANTS else {"bound_envelope": result.bound(bias="envelope").total}
    return xr.Dataset(
        {
            "loss": result.dataset.last_loss,
            "bound": result.bound().total,
            **more,
            "delta": deltas.mean("seed").rename(lr="rate"),
            "sigma_sq": measured.interpolation_constant,
            "lower_bound_error": measured.lower_bound_error,
            "standard_error": measured.standard_error,
            "initial_loss": result.initial_loss,
            "optimal_loss": result.optimal_loss,
        }
    )


def _loss_panel(ax: Axes, name: str, data: xr.Dataset) -> None:
    """The paper's picture: mean loss f(x_T) over the seeds, and its bound f⋆ + Ω_T with the paper's D."""
    start, lowest = float(data.initial_loss), float(data.optimal_loss)
    draw_rates(ax, data, EXPERIMENTS[name].shown, start, lowest=lowest)
    distance = EXPERIMENTS[name].settings["distance"]
    zero = abs(lowest) < 1e-9 * start  # Ω bounds f − f⋆
    words = f"Ω (D = {distance:g})" if zero else f"f⋆ + Ω (f⋆ = {lowest:.3g}, D = {distance:g})"
    ax.set(title=f"loss, and its bound {words}", ylabel="loss at the last iterate, $f(x_T)$")


def draw_experiment(name: str, data: xr.Dataset) -> Figure:
    """Left: the paper's picture. Middle: E[δ_t] over time at three rates. Right: every method, with the Moreau envelope
    in place of D²/(2S₁), which bounds f itself."""
    figure, (left, middle, right) = new_figure(3)
    _loss_panel(left, name, data)
    draw_rates(right, data, data.algorithm.values.tolist(), float(data.initial_loss), bound="bound_envelope")
    draw_traces(middle, data.delta, EXPERIMENTS[name].shown)
    middle.set(title="mean over the seeds, at three rates", ylabel="stability index, E[$δ_t$]")
    right.set_ylabel("loss at the last iterate, $f(x_T)$")
    right.set_title(f"all methods, bound without D\n{_constants(data)}")
    legend_below(figure, (left, right, middle))
    return figure


def _constants(data: xr.Dataset) -> str:
    numbers = (float(data[name]) for name in ("sigma_sq", "standard_error", "lower_bound_error"))
    sigma, error, gap = (round(value, 12) + 0.0 for value in numbers)  # what is zero up to rounding is zero
    return f"σ² = {sigma:.3g} ± {error:.1g}, $ε_{{lb}}$ = {gap:.3g}"


def variants_data(*results: Result) -> xr.Dataset:
    """The three variants of linear regression; C = −2 in V3 is a property of the variant here, not of the method."""
    each = [experiment_data(name, result) for name, result in zip(VARIANTS, results, strict=True)]
    for place, data in enumerate(each):
        plain = [method.partition("(")[0] for method in data.algorithm.values.tolist()]
        each[place] = data.assign_coords(algorithm=plain)
    return xr.concat(each, pd.Index(VARIANTS, name="variant"), join="outer")


def variants(data: xr.Dataset) -> Figure:
    """Fig. 7: the losses of V1, V2 and V3 with their bounds (above), and E[δ_t] over time at three rates (below)."""
    figure, axes = new_figure(3, rows=2)
    for above, below, name in zip(axes[:3], axes[3:], VARIANTS, strict=True):
        one = data.sel(variant=name)
        shown = [method.partition("(")[0] for method in EXPERIMENTS[name].shown]
        draw_rates(above, one, shown, float(one.initial_loss), lowest=float(one.optimal_loss))
        above.set_title(f"{EXPERIMENTS[name].title}\n{_constants(one)}")
        draw_traces(below, one.delta, shown)
        below.set_title(f"{name.upper()}: mean over the seeds, at three rates")
    axes[0].set_ylabel("loss $f(x_T)$, and its bound $f⋆ + Ω$")
    axes[3].set_ylabel("stability index, E[$δ_t$]")
    return figure


RATES = np.geomspace(0.05, 100.0, 12).tolist()
MEASURED = ("sgd", "sps", "ngn")


def rates_data() -> xr.Dataset:
    """On linear regression with interpolation, T = 100, 20 seeds of independent batches: the mean of f(x_t) − f⋆, Ω_avg
    with the safe index, and the rate of :mod:`surefoot.theory.rates`, where L is the largest of 20,000 batches."""
    chosen = study("linear-regression", methods=list(MEASURED), lrs=RATES, seeds=20, sampling="iid")
    result = chosen.run(progress=False)
    rows: Any = chosen.problem.A  # type: ignore[attr-defined]
    random = np.random.default_rng(0)
    batches = [rows[random.choice(len(rows), 5, replace=False)] for _ in range(20_000)]
    smoothness = max(float(np.linalg.norm(batch, 2)) ** 2 / 5 for batch in batches)
    loss = result.dataset.loss  # E f(x_t, s_t) = E f(x_t): the batch is drawn after x_t
    with np.errstate(over="ignore"):
        measured = loss.mean("step").mean("seed")
    bound = result.bound(index="safe", kind="average").total
    lrs = result.dataset.lr.values
    totals = [rates.sps(smoothness, 1.0, chosen.steps, lrs).total, rates.ngn(smoothness, 1.0, chosen.steps, lrs).total]
    rate = xr.DataArray(totals, {"algorithm": ["sps", "ngn"], "lr": lrs}, ("algorithm", "lr"))
    return xr.Dataset({"measured": measured, "bound": bound, "rate": rate, "smoothness": smoothness})


def draw_rates_of_convergence(data: xr.Dataset) -> Figure:
    """One of ours: measured (solid), Ω_avg of the δ that were measured (dashed), and the rate, which knows L, D and T
    alone (dotted), over α. The rate of SPS does not depend on α from 1/(2L) on; SGD has none beyond 1/L."""
    figure, (ax,) = new_figure(1, width=6.0)
    for method, style in looks(MEASURED).items():
        one = data.sel(algorithm=method)
        ax.plot(data.lr, drawable(one.measured.values, 1e3), **style.options())
        ax.plot(data.lr, drawable(one.bound.values, 1e3), **style.options(linestyle="--", markersize=2.5, label=None))
        ax.plot(data.lr, one.rate, color=style.colour, linestyle=":", linewidth=2.0)
    for words, line in (("measured", "-"), ("bound Ω from measured δ", "--"), ("rate from L, D and T", ":")):
        key(ax, words, linestyle=line)
    ax.set(xscale="log", yscale="log", ylim=(1e-3, 1e3), xlabel="learning rate α", ylabel="mean of $f(x_t)$ − f⋆")
    ax.set_title(f"T = 100, D = 1, L = {float(data.smoothness):.3g}")
    return figure


def _of_experiment(name: str, number: str) -> Recipe:
    data, draw = partial(experiment_data, name), partial(draw_experiment, name)
    return Recipe(number, EXPERIMENTS[name].title, data, draw, studies=(name,))


FIGURES = {
    "linear-regression": _of_experiment("linear-regression", "6"),
    "variants": Recipe(
        "7", "Linear regression with noise, with larger batches, and with a wrong lower bound", variants_data, variants,
        studies=VARIANTS,
    ),
    "vowel": _of_experiment("vowel", "8"),
    "dna": _of_experiment("dna", "12"),
    "rates": Recipe(
        "", "Mean loss, its bound and its rate over α", rates_data, draw_rates_of_convergence
    ),
}  # fmt: skip
