"""The figures of the convex experiments: the paper's six, and some of ours on rates, batch sizes and levels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from surefoot.paper.experiments import EXPERIMENTS, constants_of, study
from surefoot.paper.figures._recipe import Recipe
from surefoot.paper.figures.panels import draw_rates, draw_traces
from surefoot.plots.methods import GREY, look, looks
from surefoot.plots.style import drawable, key, legend_below, mark_edge, new_figure
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


BATCH_SIZES = (1, 2, 5, 10, 25, 50)
COMPARED = ("sgd", "sps", "spp")


def interpolation_data() -> xr.Dataset:
    """σ² with its standard error, and for every method the window of good rates in decades, over the batch size."""
    sigma, error, decades = [], [], []
    for size in BATCH_SIZES:
        measured = constants_of("v1", size)
        windows = study("v1", batch_size=size, epochs=2 * size, methods=list(COMPARED), seeds=5).run().sensitivity()
        sigma.append(measured.interpolation_constant)
        error.append(measured.standard_error)
        decades.append([windows[method].decades for method in COMPARED])
    return xr.Dataset(
        {
            "sigma_sq": ("batch_size", sigma),
            "standard_error": ("batch_size", error),
            "decades": (("batch_size", "algorithm"), decades),
        },
        {"batch_size": list(BATCH_SIZES), "algorithm": list(COMPARED)},
    )


def interpolation(data: xr.Dataset) -> Figure:
    """One of ours: the interpolation constant σ² over the batch size, against the windows of SPP and SPS.

    Linear regression with noise, 100 steps whatever the batch size. Larger batches can be fitted less well: their
    infima rise, σ² falls, and SPP, whose index is capped by the gap to those infima, works at larger rates. SPS with
    C = 0 cannot profit, because its lower bound stays where it is.
    """
    figure, (left, right) = new_figure(2)
    sizes, label = data.batch_size.values, "σ² ± 2 standard errors"
    left.errorbar(sizes, data.sigma_sq, 2 * data.standard_error, fmt="-o", color=GREY, capsize=3, label=label)
    left.set(title="interpolation constant of linear regression with noise", ylabel="interpolation constant σ²")
    right.set(title="rates within a tenth of the best loss", ylabel="window of good rates (decades)")
    for method, style in looks(COMPARED).items():
        right.plot(sizes, data.decades.sel(algorithm=method), **style.options(markersize=6))
    for ax in (left, right):
        ax.set(xscale="log", xlabel="batch size", ylim=(0, None))
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
    return figure


PANELS = {
    "linear-regression": "linear regression, and V3",
    "v1": "V1: noise on the targets",
    "vowel": "vowel",
    "dna": "dna",
}
BOUNDS = {"": ("C = 0", "-o"), "(lower_bound=-2)": ("C = −2", ":s"), "(lower_bound=level)": ("level", "--^")}
LEVELS = {f"{name}{bound}": (name, bound) for name in ("sps", "ngn") for bound in BOUNDS}


def level_data() -> xr.Dataset:
    """The loss at the last iterate, averaged over two seeds, for every problem, method and rate."""
    each = []
    for name in PANELS:
        result = study(name, methods=list(LEVELS), seeds=2).run()
        with np.errstate(over="ignore"):
            losses = result.dataset.last_loss.mean("seed")
        each.append(xr.Dataset({"loss": losses, "initial_loss": result.initial_loss}))
    return xr.concat(each, pd.Index(PANELS, name="problem"), join="outer")


def level(data: xr.Dataset) -> Figure:
    """One of ours: SPS and NGN with a level beside C = 0 and C = −2. Does a level repair V3?

    V3 of the paper is linear regression without noise, where SPS is given C = −2 instead of 0 and loses its protection.
    A level knows neither. V1 has a noise floor, which C = 0 is too low for; on vowel and dna C = 0 is a good bound.
    """
    figure, axes = new_figure(len(PANELS))
    for ax, (name, title) in zip(axes, PANELS.items(), strict=True):
        initial = float(data.initial_loss.sel(problem=name))
        top = 10 * initial
        for method, (base, bound) in LEVELS.items():
            losses, style = data.loss.sel(problem=name, algorithm=method).dropna("lr"), look(base)
            words, dashes = BOUNDS[bound]
            line: dict[str, Any] = {"color": style.colour, "markersize": 3.5, "label": f"{style.label}, {words}"}
            ax.plot(losses.lr, drawable(np.maximum(losses.values, 1e-12), top), dashes, **line)
            mark_edge(ax, losses.lr.values, losses.values, top, style.colour)
        ax.axhline(initial, color=GREY, linestyle=":", linewidth=1.0, label="loss at the start")
        ax.set(xscale="log", yscale="log", xlabel="learning rate α", title=title, ylim=(None, top))
    key(axes[0], "loss above the axis", linestyle="none", marker="^", fillstyle="none")
    key(axes[0], "diverged", linestyle="none", marker="x")
    axes[0].set(ylabel="loss at the last iterate", ylim=(1e-10, None))
    return figure


def _of_experiment(name: str, number: str) -> Recipe:
    data, draw = partial(experiment_data, name), partial(draw_experiment, name)
    return Recipe(number, EXPERIMENTS[name].title, data, draw, studies=(name,), is_slow=name in ("vowel", "dna"))


FIGURES = {
    "linear-regression": _of_experiment("linear-regression", "6"),
    "variants": Recipe(
        "7", "linear regression with noise, with larger batches, and with a wrong lower bound", variants_data, variants,
        studies=VARIANTS, is_slow=True,
    ),
    "vowel": _of_experiment("vowel", "8"),
    "dna": _of_experiment("dna", "12"),
    "rates": Recipe(
        "", "mean loss, its bound and its rate over α", rates_data, draw_rates_of_convergence
    ),
    "interpolation": Recipe(
        "", "larger batches: less noise σ², and longer windows for SPP", interpolation_data, interpolation
    ),
    "level": Recipe(
        "", "a level in place of a lower bound: SPS and NGN with C = 0, C = −2 and the level", level_data, level,
        is_slow=True,
    ),
}  # fmt: skip
