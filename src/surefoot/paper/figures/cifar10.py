"""The paper's figures of ResNet20 on CIFAR-10: one row of panels per size of the sweep that was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import xarray as xr

from surefoot.paper.figures.panels import Recipe, draw_rates, draw_traces, plain_ticks
from surefoot.plots.methods import looks
from surefoot.plots.style import drawable, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DISTANCES = (1.0, 10.0, 10**1.5, 100.0)
"""Values of D for the paper's ablation, D ∈ [1, 100]."""
SIDES = {"without warmup": ("sgd", "sps", "ngn"), "SGD with warmup": ("sgd+warmup", "sps", "ngn")}
Data = Callable[[Mapping[str, xr.Dataset]], xr.Dataset]
Panel = Callable[["Axes", xr.Dataset, tuple[str, ...]], None]
ABOUT = ("title", "distance", "epochs", "reference")


def sizes_data(columns: tuple[str, ...], sweeps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """These numbers of a sweep, over ``preset`` too: of each size that has them."""
    having = {preset: data for preset, data in sweeps.items() if all(name in data for name in columns)}
    having = {preset: data for preset, data in having.items() if data[columns[0]].notnull().any()}
    if not having:
        raise ValueError(f"no size of the sweep has the {' and '.join(columns)} of its runs, of {', '.join(sweeps)}")
    each = [data[list(columns)].assign({name: data.attrs[name] for name in ABOUT}) for data in having.values()]
    return xr.concat(each, pd.Index(having, name="preset"), join="outer", combine_attrs="drop")


def distances_data(sweeps: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Ω for several D: the bias, which is all of the bound but its noise, grows as D²."""
    data = sizes_data(("bound", "noise"), sweeps)
    scale = xr.DataArray(list(DISTANCES), {"D": list(DISTANCES)}, "D") ** 2 / data.distance**2
    return data[list(ABOUT)].assign(bound=data.noise + scale * (data.bound - data.noise))


def _draw(
    panel: Callable[[Axes, xr.Dataset, tuple[str, ...]], None], label: str, words: str, data: xr.Dataset
) -> Figure:
    """Panels without warmup (left) and with (right), of each size."""
    figure, axes = new_figure(2, rows=data.sizes["preset"])
    for place, preset in enumerate(data.preset.values):
        one, pair = data.sel(preset=preset), axes[2 * place : 2 * place + 2]
        for ax, (side, methods) in zip(pair, SIDES.items(), strict=True):
            panel(ax, one, tuple(name for name in methods if name in one.algorithm))
            ax.set_title(f"{one.title.item()}\n{side}{words.format(one.distance.item())}")
        lows, highs = zip(*(ax.get_ylim() for ax in pair), strict=True)
        for ax in pair:
            ax.set_ylim(min(lows), max(highs))
            plain_ticks(ax)
        pair[0].set_ylabel(label.format(one.epochs.item() // 2))
    return figure


def _loss_and_bound(loss: str, bound: str, ax: Axes, data: xr.Dataset, methods: tuple[str, ...]) -> None:
    level: dict[str, Any] = {"start_label": "loss of guessing, ln 10", "headroom": 4.0}
    draw_rates(ax, data, methods, float(data.reference), loss=loss, bound=bound, **level)
    ax.set_xlim(0.008, 125)


def _deltas(ax: Axes, data: xr.Dataset, methods: tuple[str, ...]) -> None:
    draw_traces(ax, data.delta.dropna("step", how="all").mean("seed"), methods, window=1)
    ax.set_xscale("log")


def _many_distances(ax: Axes, data: xr.Dataset, methods: tuple[str, ...]) -> None:
    """The bound for several D, each curve with its D beside it."""
    top = 30 * float(data.reference)
    for method, style in looks(methods).items():
        for far in DISTANCES:
            bound = data.bound.sel(algorithm=method, D=far).mean("seed").dropna("lr")
            label = style.label if far == DISTANCES[0] else None
            ax.plot(bound.lr, drawable(bound.values, top), **style.options(linewidth=1.0, markersize=2.5, label=label))
            shown = bound[bound.values < top]
            if method == "sps":
                height = "top" if far == DISTANCES[0] else "bottom"
                ax.text(0.9 * float(shown.lr[0]), float(shown[0]), f"D = {far:.3g}", fontsize=7, ha="right", va=height)
    ax.set(xscale="log", yscale="log", ylim=(None, top), xlabel="learning rate α", xlim=(0.003, 125))


def _recipe(
    number: str, title: str, data: Callable[..., xr.Dataset], label: str, panel: Any, words: str = ""
) -> Recipe:
    return Recipe(number, f"ResNet20, {title}", data, partial(_draw, panel, label, words), is_sweep=True)


def _losses(number: str, title: str, label: str, loss: str, bound: str) -> Recipe:
    words = "; bound with D = {:g}, f⋆ = 0"
    return _recipe(
        number, title, partial(sizes_data, (loss, bound)), label, partial(_loss_and_bound, loss, bound), words
    )


FIGURES = {
    "cifar10-loss-and-bound": _losses(
        "4", "training loss and its bound", "training loss at the last iterate, $f(x_T)$", "loss", "bound"
    ),
    "cifar10-delta": _recipe(
        "5", "stability index over time", partial(sizes_data, ("delta",)), "stability index, E[$δ_t$]", _deltas
    ),
    "cifar10-distances": _recipe(
        "9", "bound for several guesses of D", distances_data, "bound Ω of the loss (f⋆ = 0)", _many_distances
    ),
    "cifar10-half": _losses(
        "10", "loss and bound after half the epochs", "training loss after {} epochs", "half_loss", "half_bound"
    ),
    "cifar10-validation": _losses("11", "validation loss", "validation loss at the end", "valid_loss", "bound"),
}
