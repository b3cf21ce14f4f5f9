"""The figures of the sweeps on networks: those of the paper on CIFAR-10, and some of our own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import xarray as xr

from surefoot.paper.figures._recipe import Recipe
from surefoot.paper.figures.panels import draw_rates, draw_traces
from surefoot.paper.networks import EARLY
from surefoot.plots.methods import looks
from surefoot.plots.style import drawable, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DISTANCES = (1.0, 10.0, 10**1.5, 100.0)
"""Values of D for the paper's ablation, D ∈ [1, 100]."""
SIDES = {"without warmup": ("sgd", "sps", "ngn"), "SGD with warmup": ("sgd+warmup", "sps", "ngn")}
GUESSING = "loss of guessing, ln 10"


def _chosen(*names: str) -> Callable[[xr.Dataset], xr.Dataset]:
    """What makes a figure's data of the numbers of a sweep: some of them."""
    return lambda data: data[[name for name in names if name in data]]


def _many_distances(data: xr.Dataset) -> xr.Dataset:
    """Ω for several D: the bias, which is all of the bound but its noise, grows as D²."""
    scale = xr.DataArray([(far / data.distance) ** 2 for far in DISTANCES], {"D": list(DISTANCES)}, "D")
    return xr.Dataset({"bound": data.noise + scale * (data.bound - data.noise)}, attrs=data.attrs)


def _bound_words(data: xr.Dataset) -> str:
    """Which bound is drawn. A network's f⋆ is not known; that it is at least 0 is all that the bound is given."""
    return f"bound Ω, D = {data.distance:g} (f⋆ = 0)"


def _draw_two_sides(label: str, loss: str, bound: str, data: xr.Dataset) -> Figure:
    """A loss and its bound, without and with warmup (Fig. 4 of the paper)."""
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, SIDES.items(), strict=True):
        draw_rates(ax, data, methods, data.reference, loss=loss, bound=bound, headroom=4.0, start_label=GUESSING)
        ax.set(title=f"{title}: {_bound_words(data)}", xlim=(0.008, 125))
    low = min(ax.get_ylim()[0] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, 4 * data.reference)
    axes[0].set_ylabel(label.format(data.epochs // 2))
    return figure


def _draw_delta(data: xr.Dataset) -> Figure:
    """E[δ_t] over time (Fig. 5 of the paper); of recorded runs, which have no traces, the largest early one."""
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, SIDES.items(), strict=True):
        if "delta" in data:
            draw_traces(ax, data.delta, methods)
            ax.set(xscale="log", title=title)
        else:
            for method, style in looks(methods).items():
                largest = data.early_delta.sel(algorithm=method).mean("seed").dropna("lr")
                ax.plot(largest.lr, drawable(largest.values, 1e4), **style.options())
            ax.set(xscale="log", yscale="log", xlabel="learning rate α", ylim=(None, 1e4), title=title)
    axes[0].set_ylabel("stability index E[$δ_t$]" if "delta" in data else f"largest $δ_t$ of the first {EARLY} steps")
    return figure


def _draw_many_distances(data: xr.Dataset) -> Figure:
    """The bound for several D, each curve with its D beside it."""
    top = 30 * data.reference
    figure, axes = new_figure(2)
    for ax, (title, methods) in zip(axes, SIDES.items(), strict=True):
        for method, style in looks(methods).items():
            for far in DISTANCES:
                bound = data.bound.sel(algorithm=method, D=far).mean("seed").dropna("lr")
                label = style.label if far == DISTANCES[0] else None
                line = style.options(linewidth=1.0, markersize=2.5, label=label)
                ax.plot(bound.lr, drawable(bound.values, top), **line)
                if method == "sps" and bound.values[0] < top:
                    place = (float(bound.lr[0]), float(bound.values[0]))
                    words = {"fontsize": 7, "ha": "right", "va": "top" if far == DISTANCES[0] else "bottom"}
                    ax.annotate(f"D = {far:.3g}", place, (-3, 0), textcoords="offset points", **words)
        ax.set(xscale="log", yscale="log", ylim=(None, top), xlabel="learning rate α", title=title)
        ax.set_xlim(0.3 * ax.get_xlim()[0])
    axes[0].set_ylabel("bound Ω of the training loss (f⋆ = 0)")
    return figure


def _draw_parts(titles: dict[str, str], data: xr.Dataset) -> Figure:
    """The final training loss over the rates of each part; Surefoot, which needs no rate, as a level in all of them."""
    every = looks(data.algorithm.values.tolist())  # one look per method in all panels
    figure, axes = new_figure(len(titles))
    for ax, (part, title) in zip(axes, titles.items(), strict=True):
        for kind, options in (("loss", {}), ("valid_loss", {"linestyle": "--", "label": None})):
            for method in data.algorithm.values[data.part == part].tolist():
                values = data[kind].sel(algorithm=method).mean("seed").dropna("lr")
                ax.plot(values.lr, drawable(values.values, 3 * data.reference), **every[method].options(**options))
            level = float(data[kind].sel(algorithm="surefoot").mean())
            ax.axhline(level, **every["surefoot"].options(**{"marker": None, **options}))
        ax.axhline(data.reference, color="grey", linestyle=":", linewidth=1.0)
        ax.set(xscale="log", yscale="log", ylim=(None, 3 * data.reference), xlabel="learning rate α", title=title)
    axes[0].set_ylabel("loss at the end (dashed: validation)")
    return figure


def _cifar10(number: str, title: str, draw: Callable[[xr.Dataset], Figure], data: Callable[..., xr.Dataset]) -> Recipe:
    return Recipe(number, title, data, draw, sweep="cifar10")


FIGURES = {
    "cifar10-loss-and-bound": _cifar10(
        "4",
        "training loss and its bound, without and with warmup",
        partial(_draw_two_sides, "training loss at the last iterate, $f(x_T)$", "loss", "bound"),
        _chosen("loss", "bound"),
    ),
    "cifar10-delta": _cifar10(
        "5", "stability index, without and with warmup", _draw_delta, _chosen("early_delta", "delta")
    ),
    "cifar10-distances": _cifar10("9", "the bound for several guesses of D", _draw_many_distances, _many_distances),
    "cifar10-half": _cifar10(
        "10",
        "training loss and its bound after half the epochs",
        partial(_draw_two_sides, "training loss after {} epochs", "half_loss", "half_bound"),
        _chosen("half_loss", "half_bound"),
    ),
    "cifar10-validation": _cifar10(
        "11",
        "validation loss, and the bound",
        partial(_draw_two_sides, "validation loss at the end", "valid_loss", "bound"),
        _chosen("valid_loss", "bound"),
    ),
    "cifar10-geometries": Recipe(
        "",
        "averaged gradients, Adam's geometry and Surefoot",
        _chosen("loss", "valid_loss"),
        partial(_draw_parts, {"averaged": "averaged gradients", "adam": "Adam's geometry"}),
        sweep="cifar10-geometries",
    ),
    "characters": Recipe(
        "",
        "SGD, Adam's geometry and Surefoot on characters",
        _chosen("loss", "valid_loss"),
        partial(_draw_parts, {"plain": "SGD", "adam": "Adam's geometry"}),
        sweep="characters",
    ),
}
"""Every figure of a sweep on a network by its name."""
