"""How the figures of network studies are drawn; each function takes the figure's table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from surefoot.plots.panels import constant, draw_rates, draw_traces, methods_of, series
from surefoot.plots.style import GREY, colour_of, drawable, label_of, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

WITHOUT = ("sgd", "sps", "ngn")
WITH = ("sgd+warmup", "sps", "ngn")
MODELS = ("sps", "ngn", "log-ngn")
_BOUND = "{} (solid), $Ω_T$ (dashed)"


def _sides(columns: Columns) -> list[tuple[str, tuple[str, ...]]]:
    """Titles and methods of the two panels that compare; of a sweep that is not finished, those that it has."""
    there = set(columns["method"].tolist())
    title = "SGD with warmup" if WITH[0] in there else "SGD with warmup has no runs yet"
    return [
        ("without warmup", tuple(method for method in WITHOUT if method in there)),
        (title, tuple(method for method in WITH if method in there)),
    ]


def loss_and_bound(columns: Columns) -> Figure:
    """Final training loss and bound, without and with warmup (Fig. 4 of the paper)."""
    return _two_sides(columns, f"D = {constant(columns, 'distance'):g}", _BOUND.format("$f(x_T)$"))


def half(columns: Columns) -> Figure:
    """The same after half the epochs."""
    epochs, distance = (constant(columns, name) for name in ("epochs", "distance"))
    return _two_sides(columns, f"after {epochs:.0f} epochs, D = {distance:g}", _BOUND.format("training loss"))


def validation(columns: Columns) -> Figure:
    """Validation loss and bound."""
    return _two_sides(columns, f"D = {constant(columns, 'distance'):g}", _BOUND.format("validation loss"))


def delta(columns: Columns) -> Figure:
    """E[δ_t] over time at three rates, without and with warmup (Fig. 5 of the paper)."""
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, _sides(columns), strict=True):
        draw_traces(ax, columns, methods)
        ax.set(xscale="log", title=title)
    axes[0].set_ylabel("stability index E[$δ_t$]")
    lowest, highest = 0.1 * axes[0].get_ylim()[0], max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(lowest, highest)  # a warmup begins at 1e-10
    return _finished(figure, axes, columns)


def many_distances(columns: Columns) -> Figure:
    """The bound for several D, the larger the darker."""
    kinds = [kind for kind in dict.fromkeys(columns["kind"].tolist()) if kind.startswith("bound D=")]
    top = 30 * constant(columns, "reference")
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, _sides(columns), strict=True):
        for method in methods:
            for position, kind in enumerate(kinds):
                lrs, _, values = series(columns, kind, method)
                shade = 0.3 + 0.7 * position / (len(kinds) - 1)
                label = label_of(method) if kind == kinds[-1] else None
                ax.plot(lrs, drawable(values, top), "--", color=colour_of(method), alpha=shade, lw=1.2, label=label)
        ax.set(xscale="log", yscale="log", ylim=(None, top), xlabel="learning rate α")
        ax.set_title(title)
        ax.legend(frameon=False, fontsize=7)
    values = ", ".join(kind.removeprefix("bound D=") for kind in kinds)
    axes[0].set_ylabel(f"$Ω_T$ for D = {values}")
    return _finished(figure, axes, columns)


def travel(columns: Columns) -> Figure:
    """How far runs get from their start, over time and at their end, beside the D of the bound."""
    distance = constant(columns, "distance")
    figure, (left, right) = new_figure(2)
    draw_traces(left, columns, WITH, kind="distance")
    left.set(ylabel="‖$x_t − x_1$‖", title="over time, SGD with warmup")
    top = 100 * distance
    for method in methods_of(columns, "travel"):
        lrs, _, values = series(columns, "travel", method)
        line: dict[str, Any] = {"color": colour_of(method), "markersize": 2.5, "linewidth": 1.4}
        right.plot(lrs, drawable(values, top), "-o", label=label_of(method), **line)
    right.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="‖$x_T − x_1$‖")
    right.set_title("at the end")
    for ax in (left, right):
        ax.axhline(distance, color=GREY, linestyle=":", linewidth=0.8, label=f"D = {distance:g}")
        ax.set_ylim(max(ax.get_ylim()[0], 1e-3 * distance), top)
    right.legend(frameon=False, fontsize=7)
    return _finished(figure, (left, right), columns)


def pool_bias(columns: Columns) -> Figure:
    """The bound with the bias of visited points in place of D²/(2S₁), and both biases."""
    figure, (left, middle, right) = new_figure(3)
    start = constant(columns, "reference")
    for ax, (title, methods) in zip((left, middle), _sides(columns), strict=True):
        draw_rates(ax, columns, methods, start)
        ax.set_title(title)
    left.set_ylabel("$f(x_T)$ (solid), pool bias + noise (dashed)")
    for kind, style, label in (
        ("bias-pool", "-o", f"pool of {constant(columns, 'points'):.0f} visited points"),
        ("bias-distance", "--", f"$D²/(2S_1)$, D = {constant(columns, 'distance'):g}"),
    ):
        lrs, _, values = series(columns, kind, "sgd")
        right.plot(lrs, values, style, color=GREY, markersize=2.5, label=label)
    right.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="bias of the bound, constant rate")
    right.set_title("the bias without a guess")
    right.legend(frameon=False, fontsize=7)
    return _finished(figure, (left, middle, right), columns)


def lambert(columns: Columns) -> Figure:
    """The Lambert-W step beside SPS and NGN: loss and bound, δ_t, and the step in units of Polyak's."""
    figure, (left, middle, right) = new_figure(3)
    draw_rates(left, columns, MODELS, constant(columns, "reference"))
    left.set(ylabel=_BOUND.format("$f(x_T)$"), title=f"D = {constant(columns, 'distance'):g}")
    draw_traces(middle, columns, MODELS)
    middle.set(xscale="log", ylabel="stability index E[$δ_t$]", title="at three rates")
    for method in MODELS:
        lrs, _, values = series(columns, "polyak-units", method)
        right.plot(lrs, values, "-o", color=colour_of(method), markersize=2.5, label=label_of(method))
    for limit in (1.0, 2.0):
        right.axhline(limit, color=GREY, linestyle=":", linewidth=0.8)
    right.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="median of $γ_t‖g_t‖²/f_t$")
    right.set_title("the step in units of Polyak's")
    right.legend(frameon=False, fontsize=7)
    return _finished(figure, (left, middle, right), columns)


def geometries(columns: Columns) -> Figure:
    """Averaged methods and Adam's geometry: the final training loss over their rates."""
    figure, axes = new_figure(2)
    for ax, (part, title) in zip(axes, (("averaged", "averaged gradients"), ("adam", "Adam's geometry")), strict=True):
        draw_rates(
            ax, columns, methods_of(columns, f"part {part}"), constant(columns, "reference"), bound=None, headroom=3
        )
        ax.set_title(title)
    axes[0].set_ylabel("training loss at the end")
    return _finished(figure, axes, columns)


def characters(columns: Columns) -> Figure:
    """Training and validation loss over the rate, and the index over time."""
    methods, start = methods_of(columns, "loss"), constant(columns, "reference")
    figure, (left, middle, right) = new_figure(3)
    for ax, kind, title in ((left, "loss", "training loss"), (middle, "valid", "validation loss")):
        draw_rates(ax, columns, methods, start, loss=kind, bound=None, headroom=2)
        ax.set(title=title, ylabel="loss at the end")
    draw_traces(right, columns, methods)
    right.set(xscale="log", ylabel="stability index $δ_t$ (a diagnostic)", title="at three rates")
    return _finished(figure, (left, middle, right), columns)


def _two_sides(columns: Columns, words: str, label: str) -> Figure:
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, _sides(columns), strict=True):
        draw_rates(ax, columns, methods, constant(columns, "reference"))
        ax.set_title(f"{title}, {words}")
    axes[0].set_ylabel(label)
    return _finished(figure, axes, columns)


def _finished(figure: Figure, axes: Iterable[Any], columns: Columns) -> Figure:
    problem = str(columns["method"][columns["kind"] == "problem"][0])
    figure.suptitle(problem[:1].upper() + problem[1:], fontsize=10)
    for ax in axes:
        ax.title.set_fontsize(9)
    return figure
