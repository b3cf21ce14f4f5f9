"""The figures of the network studies: those of the paper on CIFAR-10, and some of our own.

All figures of a sweep are drawn from the same runs. In every table ``step`` counts from 1, as t does in the paper, and
is −1 where a number belongs to a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from surefoot.paper import presets
from surefoot.paper.curves import Curve, Floats, curves, pool
from surefoot.paper.figures._recipe import Recipe
from surefoot.plots.methods import GREY, looks
from surefoot.plots.panels import Columns, Row, as_columns, constant, draw_rates, draw_traces, methods_of, series
from surefoot.plots.style import KEY, drawable, key, mark_edge, new_figure
from surefoot.theory import bounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.study import Result

Results = Mapping[str, "Result"]
Rows = Iterable[Row]
Block = Callable[[presets.Sweep, Results], Rows]
"""Makes some rows of a figure's table."""

DISTANCES = (1.0, 10**0.5, 10.0, 10**1.5, 100.0)
"""Values of D for the paper's ablation, D ∈ [1, 100]."""
WITHOUT = ("sgd", "sps", "ngn")
WITH = ("sgd+warmup", "sps", "ngn")
MODELS = ("sps", "ngn", "log-ngn")
GUESSING = "loss of guessing, ln 10"
FINAL = "training loss at the last iterate, $f(x_T)$"


def table(blocks: Iterable[Block], sweep: presets.Sweep, results: Results) -> Columns:
    """The table of a figure: what is trained, what losses are compared with, and the figure's own rows.

    Raises:
        MissingRuns: The sweep is not finished, and the figure needs what it lacks.
    """
    if "constant" in sweep.parts:
        curves(results)["sgd"]  # what the others are compared with
    reference = _first(results).initial_loss if sweep.reference is None else sweep.reference
    described: Row = ("problem", presets.described(sweep), 0.0, -1, 0.0)
    rows = [row for block in blocks for row in block(sweep, results)]
    return as_columns([described, _constant("reference", reference), *rows])


def _first(results: Results) -> Result:
    return next(iter(results.values()))


def _constant(name: str, value: float) -> Row:
    return ("constant", name, 0.0, -1, float(value))


def _over_rates(kind: str, curve: Curve, values: Floats) -> Rows:
    """A number a rate; of numbers of all runs the mean over the data orders, and the smallest and the largest."""
    lines = {kind: values}
    if values.ndim > 1:
        with np.errstate(over="ignore"):
            lines = {kind: values.mean(axis=1), f"{kind}-low": values.min(axis=1), f"{kind}-high": values.max(axis=1)}
    for name, line in lines.items():
        for lr, value in zip(curve.lrs, line, strict=True):
            yield name, curve.label, float(lr), -1, float(value)


def _measured(labels: Iterable[str] = (), **kinds: str) -> Block:
    """Measures of every method, or of those with these labels, by the kind that their rows have."""

    def rows(_: presets.Sweep, results: Results) -> Rows:
        by_label = curves(results)
        for curve in [by_label[label] for label in labels] or by_label.values():
            for kind, measure in kinds.items():
                yield from _over_rates(kind.replace("_", "-"), curve, curve.measure(measure))

    return rows


def _traces(kind: str, part: str = "") -> Block:
    """Something of every step at the sweep's rates, the mean over the data orders; of all parts, or of one."""

    def rows(sweep: presets.Sweep, results: Results) -> Rows:
        for curve in curves({part: results[part]} if part else results).values():
            steps = curve.result.dataset.step.values
            near = [rate for rate in sweep.rates if np.abs(np.log10(curve.lrs / rate)).min() < 0.3]
            for lr in np.unique([curve.lrs[np.abs(curve.lrs - rate).argmin()] for rate in near]).tolist():
                with np.errstate(over="ignore"):
                    values = curve.of(kind).sel(lr=lr).mean("seed").values
                for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                    yield kind, curve.label, lr, step + 1, value

    return rows


def _distance(_: presets.Sweep, results: Results) -> Rows:
    """The row that holds the D of the bound."""
    yield _constant("distance", _first(results).settings["distance"])


def _half_the_epochs(_: presets.Sweep, results: Results) -> Rows:
    """The row that says after how many epochs the losses were measured."""
    yield _constant("epochs", _first(results).settings["epochs"] // 2)


def _many_distances(_: presets.Sweep, results: Results) -> Rows:
    """The rows of the bound for every D."""
    for curve in curves(results).values():
        for distance in DISTANCES:
            yield from _over_rates(f"bound D={distance:.3g}", curve, curve.bound(distance).total.values)


def _pool_bias(_: presets.Sweep, results: Results) -> Rows:
    """The loss, and the bound with the bias of visited points; that bias, and the one of D."""
    points = pool(results.values())
    distance = _first(results).settings["distance"]
    for curve in curves(results).values():
        bias = bounds.envelope_bias(curve.result.rates, points.losses, points.distances)
        yield from _over_rates("loss", curve, curve.measure("loss"))
        yield from _over_rates("bound", curve, bias + curve.measure("noise"))
        yield from _over_rates("bias-pool", curve, bias)
        yield from _over_rates("bias-distance", curve, bounds.distance_bias(curve.result.rates, distance))
    yield _constant("distance", distance)
    yield _constant("points", len(points.losses))


def _losses_by_part(_: presets.Sweep, results: Results) -> Rows:
    """Rows that say which part a method belongs to, and rows of its losses."""
    for part, result in results.items():
        for curve in curves({part: result}).values():
            yield (f"part {part}", curve.label, 0.0, -1, 0.0)
            yield from _over_rates("loss", curve, curve.measure("loss"))
            yield from _over_rates("valid", curve, curve.measure("valid_loss"))


def _sides(columns: Columns) -> list[tuple[str, tuple[str, ...]]]:
    """Titles and methods of the two panels that compare; of a sweep that is not finished, those that it has."""
    there = set(columns["method"].tolist())
    title = "SGD with warmup" if WITH[0] in there else "SGD with warmup has no runs yet"
    return [
        ("without warmup", tuple(method for method in WITHOUT if method in there)),
        (title, tuple(method for method in WITH if method in there)),
    ]


def _draw_two_sides(label: str, columns: Columns) -> Figure:
    """A loss and its bound, without and with warmup (Fig. 4 of the paper)."""
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, _sides(columns), strict=True):
        draw_rates(ax, columns, methods, constant(columns, "reference"), start_label=GUESSING)
        ax.set_title(f"{title}: {_bound_words(columns)}")
    axes[0].set_ylabel(label)
    return figure


def _draw_half(columns: Columns) -> Figure:
    """Training loss and bound after half the epochs, without and with warmup."""
    epochs = constant(columns, "epochs")
    return _draw_two_sides(f"training loss after {epochs:.0f} epoch{'s' * (epochs > 1)}", columns)


def _draw_delta(columns: Columns) -> Figure:
    """E[δ_t] over time at three rates, without and with warmup (Fig. 5 of the paper)."""
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, _sides(columns), strict=True):
        draw_traces(ax, columns, methods)
        ax.set(xscale="log", title=title)
    axes[0].set_ylabel("stability index E[$δ_t$]")
    lowest, highest = 0.1 * axes[0].get_ylim()[0], max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(lowest, highest)  # a warmup begins at 1e-10
    return figure


def _draw_many_distances(columns: Columns) -> Figure:
    """The bound for several D, the larger the darker."""
    kinds = [kind for kind in dict.fromkeys(columns["kind"].tolist()) if kind.startswith("bound D=")]
    shades = {kind: 0.3 + 0.7 * place / (len(kinds) - 1) for place, kind in enumerate(kinds)}
    top = 30 * constant(columns, "reference")
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, _sides(columns), strict=True):
        for method, style in looks(methods).items():
            for kind, shade in shades.items():
                lrs, _, values = series(columns, kind, method)
                label = style.label if kind == kinds[-1] else None
                line = style.options(linestyle="--", alpha=shade, linewidth=1.3, markersize=2.5, label=label)
                ax.plot(lrs, drawable(values, top), **line)
        ax.set(xscale="log", yscale="log", ylim=(None, top), xlabel="learning rate α", title=title)
    for kind, shade in shades.items():
        key(axes[0], f"D = {kind.removeprefix('bound D=')}", linestyle="--", alpha=shade)
    axes[0].set_ylabel("bound Ω of the training loss (f⋆ = 0)")
    return figure


def _draw_travel(columns: Columns) -> Figure:
    """How far runs get from their start, over time and at their end, beside the D of the bound."""
    distance = constant(columns, "distance")
    figure, (left, right) = new_figure(2)
    draw_traces(left, columns, WITH, kind="distance", smooth=False)
    left.set(ylabel="distance from the start, ‖$x_t − x_1$‖", title="over time, SGD with warmup")
    top = 100 * distance
    for method, style in looks(methods_of(columns, "travel")).items():
        lrs, _, values = series(columns, "travel", method)
        right.plot(lrs, drawable(values, top), **style.options(linewidth=1.4))
        mark_edge(right, lrs, values, top, style.colour)
    right.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="distance at the end, ‖$x_T − x_1$‖")
    right.set_title("at the end")
    for ax in (left, right):
        ax.axhline(distance, color=GREY, linestyle=":", linewidth=1.0, label=f"D = {distance:g}", gid=KEY)
        ax.set_ylim(max(ax.get_ylim()[0], 1e-3 * distance), top)
    return figure


def _draw_pool_bias(columns: Columns) -> Figure:
    """The bound with the bias of visited points in place of D²/(2S₁), and both biases."""
    figure, (left, middle, right) = new_figure(3)
    start = constant(columns, "reference")
    for ax, (title, methods) in zip((left, middle), _sides(columns), strict=True):
        draw_rates(ax, columns, methods, start, start_label=GUESSING)
        ax.set_title(f"{title}, bound without D")
    left.set_ylabel(FINAL)
    for kind, style, label in (
        ("bias-pool", "-", f"bias from {constant(columns, 'points'):.0f} visited points"),
        ("bias-distance", "-.", f"bias $D²/(2S_1)$, D = {constant(columns, 'distance'):g}"),
    ):
        lrs, _, values = series(columns, kind, "sgd")
        right.plot(lrs, values, style, color="black", label=label)
    right.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="bias of the bound")
    right.set_title("the two biases, constant rate")
    return figure


def _draw_log_ngn(columns: Columns) -> Figure:
    """LogNGN beside SPS and NGN: loss and bound, δ_t, and the step in units of Polyak's."""
    figure, (left, middle, right) = new_figure(3)
    draw_rates(left, columns, MODELS, constant(columns, "reference"), start_label=GUESSING)
    left.set(ylabel=FINAL, title=_bound_words(columns))
    draw_traces(middle, columns, MODELS)
    middle.set(xscale="log", ylabel="stability index E[$δ_t$]", title="at three rates")
    for method, style in looks(MODELS).items():
        lrs, _, values = series(columns, "polyak-units", method)
        right.plot(lrs, values, **style.options())
    for limit, words in ((1.0, "Polyak's step"), (2.0, "twice that")):
        right.axhline(limit, color=GREY, linestyle=":", linewidth=1.0)
        right.annotate(words, (lrs[0], limit), (0, 2), textcoords="offset points", fontsize=8, color=GREY)
    right.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="median of $γ_t‖g_t‖²/f_t$")
    right.set_title("the step in units of Polyak's")
    return figure


def _draw_geometries(columns: Columns) -> Figure:
    """Averaged methods, Adam's geometry and Surefoot: the final training loss over their rates."""
    figure, axes = new_figure(3)
    start = constant(columns, "reference")
    titles = {"averaged": "averaged gradients", "adam": "Adam's geometry", "surefoot": "no rate: over the cap"}
    for ax, (part, title) in zip(axes, titles.items(), strict=True):
        methods = methods_of(columns, f"part {part}")
        draw_rates(ax, columns, methods, start, bound=None, headroom=3, start_label=GUESSING)
        ax.set_title(title)
    axes[0].set_ylabel("training loss at the end")
    return figure


def _draw_characters(columns: Columns) -> Figure:
    """Training and validation loss over the rate, and the index over time."""
    methods, start = methods_of(columns, "loss"), constant(columns, "reference")
    figure, (left, middle, right) = new_figure(3)
    for ax, kind, title in ((left, "loss", "training loss"), (middle, "valid", "validation loss")):
        draw_rates(ax, columns, methods, start, loss=kind, bound=None, headroom=2)
        ax.set(title=title, ylabel=f"{title} at the end")
    draw_traces(right, columns, methods)
    right.set(xscale="log", ylabel="stability index $δ_t$ (a diagnostic)", title="at three rates")
    return figure


def _bound_words(columns: Columns) -> str:
    """Which bound is drawn. A network's f⋆ is not known; that it is at least 0 is all that the bound is given."""
    return f"bound Ω, D = {constant(columns, 'distance'):g} (f⋆ = 0)"


def _recipe(
    number: str, title: str, draw: Callable[[Columns], Figure], *blocks: Block, sweep: str = "cifar10"
) -> Recipe:
    return Recipe(number, title, partial(table, blocks), draw, sweep=sweep)


_LOSSES = (_losses_by_part, _traces("delta"))

FIGURES = {
    "cifar10-loss-and-bound": _recipe(
        "4",
        "training loss and its bound, without and with warmup",
        partial(_draw_two_sides, FINAL),
        _measured(loss="loss", bound="bound"),
        _distance,
    ),
    "cifar10-delta": _recipe("5", "stability index over time, without and with warmup", _draw_delta, _traces("delta")),
    "cifar10-distances": _recipe("9", "the bound for several guesses of D", _draw_many_distances, _many_distances),
    "cifar10-half": _recipe(
        "10",
        "training loss and its bound after half the epochs",
        _draw_half,
        _measured(loss="half_loss", bound="half_bound"),
        _distance,
        _half_the_epochs,
    ),
    "cifar10-validation": _recipe(
        "11",
        "validation loss, and the bound",
        partial(_draw_two_sides, "validation loss at the end"),
        _measured(loss="valid_loss", bound="bound"),
        _distance,
    ),
    "cifar10-travel": _recipe(
        "",
        "how far runs get from their start, and the guess D",
        _draw_travel,
        _traces("distance"),
        _measured(travel="travel"),
        _distance,
    ),
    "cifar10-pool-bias": _recipe("", "the bound without D, from visited points", _draw_pool_bias, _pool_bias),
    "cifar10-log-ngn": _recipe(
        "",
        "LogNGN beside SPS and NGN",
        _draw_log_ngn,
        _measured(MODELS, loss="loss", bound="bound", polyak_units="polyak_units"),
        _traces("delta", part="constant"),
        _distance,
    ),
    "cifar10-geometries": _recipe(
        "", "averaged gradients, Adam's geometry and Surefoot", _draw_geometries, *_LOSSES, sweep="cifar10-geometries"
    ),
    "characters": _recipe(
        "",
        "SGD, AdamW and NGNAdam over their rates, Surefoot over its cap",
        _draw_characters,
        *_LOSSES,
        sweep="characters",
    ),
}
"""Every figure of a network study by its name."""
