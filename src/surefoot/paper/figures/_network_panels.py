"""How the figures of network studies are drawn; each function takes the figure's table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot.plots.methods import GREY, looks
from surefoot.plots.panels import Columns, constant, draw_rates, draw_traces, methods_of, series
from surefoot.plots.style import KEY, drawable, key, mark_edge, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITHOUT = ("sgd", "sps", "ngn")
WITH = ("sgd+warmup", "sps", "ngn")
MODELS = ("sps", "ngn", "log-ngn")
GUESSING = "loss of guessing, ln 10"


def _sides(columns: Columns) -> list[tuple[str, tuple[str, ...]]]:
    """Titles and methods of the two panels that compare; of a sweep that is not finished, those that it has."""
    there = set(columns["method"].tolist())
    title = "SGD with warmup" if WITH[0] in there else "SGD with warmup has no runs yet"
    return [
        ("without warmup", tuple(method for method in WITHOUT if method in there)),
        (title, tuple(method for method in WITH if method in there)),
    ]


def two_sides(label: str, columns: Columns) -> Figure:
    """A loss and its bound, without and with warmup (Fig. 4 of the paper)."""
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, _sides(columns), strict=True):
        draw_rates(ax, columns, methods, constant(columns, "reference"), start_label=GUESSING)
        ax.set_title(f"{title}: {_bound_words(columns)}")
    axes[0].set_ylabel(label)
    return figure


def half(columns: Columns) -> Figure:
    """The same after half the epochs."""
    epochs = constant(columns, "epochs")
    return two_sides(f"training loss after {epochs:.0f} epoch{'s' * (epochs > 1)}", columns)


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
    return figure


def many_distances(columns: Columns) -> Figure:
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


def travel(columns: Columns) -> Figure:
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


def pool_bias(columns: Columns) -> Figure:
    """The bound with the bias of visited points in place of D²/(2S₁), and both biases."""
    figure, (left, middle, right) = new_figure(3)
    start = constant(columns, "reference")
    for ax, (title, methods) in zip((left, middle), _sides(columns), strict=True):
        draw_rates(ax, columns, methods, start, start_label=GUESSING)
        ax.set_title(f"{title}, bound without D")
    left.set_ylabel("training loss at the last iterate, $f(x_T)$")
    for kind, style, label in (
        ("bias-pool", "-", f"bias from {constant(columns, 'points'):.0f} visited points"),
        ("bias-distance", "-.", f"bias $D²/(2S_1)$, D = {constant(columns, 'distance'):g}"),
    ):
        lrs, _, values = series(columns, kind, "sgd")
        right.plot(lrs, values, style, color="black", label=label)
    right.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="bias of the bound")
    right.set_title("the two biases, constant rate")
    return figure


def log_ngn(columns: Columns) -> Figure:
    """LogNGN beside SPS and NGN: loss and bound, δ_t, and the step in units of Polyak's."""
    figure, (left, middle, right) = new_figure(3)
    draw_rates(left, columns, MODELS, constant(columns, "reference"), start_label=GUESSING)
    left.set(ylabel="training loss at the last iterate, $f(x_T)$", title=_bound_words(columns))
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


def geometries(columns: Columns) -> Figure:
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


def characters(columns: Columns) -> Figure:
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
    """A network's f⋆ is not known; that it is at least 0 is all that the bound is given."""
    return f"bound Ω, D = {constant(columns, 'distance'):g} (f⋆ = 0)"
