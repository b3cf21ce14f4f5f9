"""The figures of the convex experiments: the paper's six, and two of ours on batch sizes and levels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from surefoot.paper.experiments import EXPERIMENTS, constants_of, study
from surefoot.paper.figures._recipe import Recipe
from surefoot.plots.methods import GREY, look, looks
from surefoot.plots.panels import Columns, Row, as_columns, constant, draw_rates, draw_traces, methods_of
from surefoot.plots.style import drawable, key, legend_below, mark_edge, new_figure
from surefoot.problems import constants

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.study import Result


def experiment_data(name: str, result: Result) -> Columns:
    """A long table: losses, bounds, indices and constants of an experiment."""
    experiment, losses, data = EXPERIMENTS[name], result.dataset.last_loss, result.dataset
    rows: list[Row] = []
    with np.errstate(over="ignore"):
        for kind, values in (
            ("loss", losses.mean("seed")),
            ("loss-low", losses.min("seed")),
            ("loss-high", losses.max("seed")),
            ("bound", result.bound().total),
            ("bound-envelope", result.bound(bias="envelope").total),
            ("bound-safe", result.bound(index="safe").total),
        ):
            for method, line in zip(result.algorithms, values.values.tolist(), strict=True):
                rows += [(kind, method, lr, -1, value) for lr, value in zip(result.lrs.tolist(), line, strict=True)]
        for rate in experiment.rates:
            deltas = data.delta.sel(lr=rate, method="nearest").mean("seed")
            for method in experiment.shown:
                line = deltas.sel(algorithm=method).values.tolist()
                steps = data.step.values.tolist()
                rows += [("delta", method, float(deltas.lr), *pair) for pair in zip(steps, line, strict=True)]
    measured = constants_of(name)
    constant_values = {
        "sigma_sq": measured.interpolation_constant,
        "lower_bound_error": measured.lower_bound_error,
        "standard_error": measured.standard_error,
        "initial_loss": result.initial_loss,
        "optimal_loss": result.optimal_loss,
    }
    return as_columns([*rows, *(("constant", key, 0.0, -1, value) for key, value in constant_values.items())])


def draw_experiment(name: str, columns: Columns) -> Figure:
    """Three panels: loss and bound, the indices, and every method.

    Left: the paper's picture, mean loss f(x_T) over the data orders (solid, with their range) and its bound f⋆ + Ω_T
    with the paper's D (dashed). Middle: E[δ_t] over time at three rates. Right: every method, with the Moreau envelope
    in place of D²/(2S₁), which bounds f itself.
    """
    experiment = EXPERIMENTS[name]
    figure, (left, middle, right) = new_figure(3)
    start, lowest = constant(columns, "initial_loss"), constant(columns, "optimal_loss")
    draw_rates(left, columns, experiment.shown, start, lowest=lowest)
    draw_rates(right, columns, methods_of(columns, "loss"), start, bound="bound-envelope")
    draw_traces(middle, columns, experiment.shown)
    distance = experiment.settings["distance"]
    zero = abs(lowest) < 1e-9 * start  # Ω bounds f − f⋆
    words = f"Ω (D = {distance:g})" if zero else f"f⋆ + Ω (f⋆ = {lowest:.3g}, D = {distance:g})"
    left.set_title(f"loss, and its bound {words}")
    middle.set_title("mean over the data orders, at three rates")
    numbers = (constant(columns, name) for name in ("sigma_sq", "standard_error", "lower_bound_error"))
    sigma, error, gap = (round(value, 12) + 0.0 for value in numbers)  # what is zero up to rounding is zero
    right.set_title(f"all methods, bound without D\nσ² = {sigma:.3g} ± {error:.1g}, $ε_{{lb}}$ = {gap:.3g}")
    left.set_ylabel("loss at the last iterate, $f(x_T)$")
    middle.set_ylabel("stability index, E[$δ_t$]")
    right.set_ylabel("loss at the last iterate, $f(x_T)$")
    legend_below(figure, (left, right, middle))
    return figure


BATCH_SIZES = (1, 2, 5, 10, 25, 50)
COMPARED = ("sgd", "sps", "spp")


def interpolation_data() -> Columns:
    """σ² with its standard error, and for every method the window in decades and the loss at the largest rate."""
    rows = []
    for batch_size in BATCH_SIZES:
        sweep = study("v1", batch_size=batch_size, epochs=2 * batch_size, methods=list(COMPARED))
        measured = constants(sweep.problem, batch_size)
        result = sweep.run()
        windows = result.sensitivity()
        with np.errstate(over="ignore"):
            last = result.dataset.last_loss.mean("seed").values[:, -1]
        for position, method in enumerate(COMPARED):
            sigma = (measured.interpolation_constant, measured.standard_error)
            rows.append((batch_size, *sigma, method, windows[method].decades, last[position]))
    return as_columns(rows, ("batch_size", "sigma_sq", "standard_error", "method", "decades", "loss_at_largest_rate"))


def interpolation(columns: Columns) -> Figure:
    """One of ours: the interpolation constant σ² over the batch size, against how long SPP and SPS hold.

    Linear regression with noise, 100 steps whatever the batch size. Larger batches can be fitted less well: their
    infima rise, σ² falls, and SPP, whose index is capped by the gap to those infima, holds at larger rates. SPS with
    C = 0 cannot profit, because its lower bound stays where it is.
    """
    figure, (left, right) = new_figure(2)
    once = columns["method"] == COMPARED[0]
    sizes = columns["batch_size"][once]
    left.errorbar(
        sizes, columns["sigma_sq"][once], 2 * columns["standard_error"][once], fmt="-o", color=GREY, capsize=3,
        label="σ² ± 2 standard errors",
    )  # fmt: skip
    left.set_title("interpolation constant of linear regression with noise")
    right.set_title("rates within a tenth of the best loss")
    left.set(xscale="log", xlabel="batch size", ylabel="interpolation constant σ²", ylim=(0, None))
    for method, style in looks(COMPARED).items():
        rows = columns["method"] == method
        right.plot(sizes, columns["decades"][rows], **style.options(markersize=6))
    right.set(xscale="log", xlabel="batch size", ylabel="window of good rates (decades)", ylim=(0, None))
    for ax in (left, right):
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
SEEDS = 2


def level_data() -> Columns:
    """The loss at the last iterate, averaged over the data orders, for every problem, method and rate."""
    rows = []
    for name in PANELS:
        result = study(name, methods=list(LEVELS), seeds=SEEDS).run()
        initial = float(result.dataset.train_loss.values[0, 0, 0, 0])
        with np.errstate(over="ignore"):
            losses = result.dataset.last_loss.mean("seed").values
        for position, method in enumerate(LEVELS):
            for lr, loss in zip(result.dataset.lr.values, losses[position], strict=True):
                rows.append((name, method, lr, loss, initial))
    return as_columns(rows, ("problem", "method", "lr", "loss", "initial_loss"))


def level(columns: Columns) -> Figure:
    """One of ours: SPS and NGN with a level beside C = 0 and C = −2. Does a level repair V3?

    V3 of the paper is linear regression without noise, where SPS is given C = −2 instead of 0 and loses its protection.
    A level knows neither. V1 has a noise floor, which C = 0 is too low for; on vowel and dna C = 0 is a good bound.
    """
    figure, axes = new_figure(len(PANELS))
    for ax, (name, title) in zip(axes, PANELS.items(), strict=True):
        initial = columns["initial_loss"][columns["problem"] == name][0]
        top = 10 * initial
        for method, (base, bound) in LEVELS.items():
            rows = (columns["problem"] == name) & (columns["method"] == method)
            lrs, losses, style = columns["lr"][rows], columns["loss"][rows], look(base)
            words, dashes = BOUNDS[bound]
            line = {"color": style.colour, "markersize": 3.5, "label": f"{style.label}, {words}"}
            ax.plot(lrs, drawable(np.maximum(losses, 1e-12), top), dashes, **line)
            mark_edge(ax, lrs, losses, top, style.colour)
        ax.axhline(initial, color=GREY, linestyle=":", linewidth=1.0, label="loss at the start")
        ax.set(xscale="log", yscale="log", xlabel="learning rate α", title=title, ylim=(None, top))
    if (columns["loss"] > 10 * columns["initial_loss"]).any():
        key(axes[0], "loss above the axis", linestyle="none", marker="^", fillstyle="none")
    if np.isinf(columns["loss"]).any():
        key(axes[0], "diverged", linestyle="none", marker="x")
    axes[0].set(ylabel="loss at the last iterate", ylim=(1e-10, None))
    return figure


def _of_experiment(name: str, number: str) -> Recipe:
    data, draw = partial(experiment_data, name), partial(draw_experiment, name)
    return Recipe(number, EXPERIMENTS[name].title, data, draw, study=name, is_slow=name in ("vowel", "dna"))


NUMBERS = {"linear-regression": "6", "v1": "7 (left)", "v2": "7 (middle)", "v3": "7 (right)", "vowel": "8", "dna": "12"}
"""The experiments, and their figures in the paper."""

FIGURES = {
    **{name: _of_experiment(name, number) for name, number in NUMBERS.items()},
    "interpolation": Recipe(
        "", "larger batches: less noise σ², and longer windows for SPP", interpolation_data, interpolation
    ),
    "level": Recipe(
        "",
        "a level in place of a lower bound: SPS and NGN with C = 0, C = −2 and the level",
        level_data,
        level,
        is_slow=True,
    ),
}
