"""Figures that need no runs: the toy function, the bound for powers of the rate, and all models in one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from surefoot.paper.figures.panels import Recipe
from surefoot.plots.methods import GREY, look, looks
from surefoot.plots.style import key, new_figure
from surefoot.problems import toy
from surefoot.theory import bounds, models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED: dict[str, models.Model] = {name: models.NAMED[name]() for name in ("sgd", "sps", "ngn", "log-ngn")}


def toy_function_data() -> xr.Dataset:
    """Next loss and δ of every method on a grid of rates."""
    lrs = np.geomspace(1e-1, 1e2, 151)
    x, loss, slope = toy.START, toy.loss(toy.START), toy.slope(toy.START)
    steps = [model.step(loss, slope**2, lrs) for model in NAMED.values()]
    nearest = toy.proximal_point(x, lrs)
    after = [*(toy.loss(x - step.size * slope) for step in steps), toy.loss(nearest)]
    deltas = [*(step.delta for step in steps), models.exact_delta(loss, after[-1], (nearest - x) ** 2, lrs)]
    dims = ("algorithm", "lr")
    return xr.Dataset(
        {"next_loss": (dims, after), "delta": (dims, deltas), "best_sgd_lr": (toy.MINIMISER - x) / -slope},
        {"algorithm": [*NAMED, "spp"], "lr": lrs},
    )


def toy_function(data: xr.Dataset) -> Figure:
    """Fig. 1: one step on f(x) = ln(1 + e^(−x)) + max{x − 2, 0} from x = −3, for every rate.

    Left: the loss after the step. Right: the stability index. Where the loss stays low at large rates, the index has
    flattened. The vertical line marks SGD's best rate, which takes it straight to the minimum at 2.
    """
    figure, (left, right) = new_figure(2)
    for name, style in looks(data.algorithm.values.tolist()).items():
        for ax, values in ((left, data.next_loss), (right, data.delta)):
            ax.plot(data.lr, values.sel(algorithm=name), **style.options(markevery=15, markersize=4))
    best = float(data.best_sgd_lr)
    for ax in (left, right):
        ax.axvline(best, color=GREY, linestyle="--", linewidth=1.0, label=f"SGD's best rate, {best:.3g}")
        ax.set(xscale="log", xlabel="learning rate α")
    last = float(data.next_loss.sel(algorithm="sgd")[-1])
    left.set(ylabel="loss after the step", ylim=(0, 6))
    left.set_title(f"SGD leaves the axis: {last:.0f} at α = {float(data.lr[-1]):g}")
    right.set(ylabel="stability index δ of the step", yscale="log")
    right.set_title("SGD's index grows like α, the others flatten")
    return figure


def stability_index_data() -> xr.Dataset:
    """The loss and the update's objective over y, for both methods and several rates."""
    x, loss, slope = toy.START, toy.loss(toy.START), toy.slope(toy.START)
    lrs, y = np.array([1.0, 2.0, 4.0, 8.0]), np.linspace(-4.0, 6.0, 401)
    objectives = [
        NAMED[name].value(loss, slope**2, np.tile((x - y) / slope, (4, 1))) + (y - x) ** 2 / (2 * lrs[:, None])
        for name in ("sgd", "ngn")
    ]
    return xr.Dataset(
        {"loss": ("y", toy.loss(y)), "objective": (("algorithm", "lr", "y"), objectives), "x": x, "loss_at_x": loss},
        {"algorithm": ["sgd", "ngn"], "lr": lrs, "y": y},
    )


def stability_index(data: xr.Dataset) -> Figure:
    """Fig. 3: δ as the gap between the loss and the minimum of the regularised model, for SGD (left) and NGN (right).

    Thin lines are the objectives f_x(y) + (y − x)²/(2α) of the update for growing α, on the toy function of Fig. 1; the
    arrows are their gaps. They grow without limit for SGD, and stay below the loss for NGN.
    """
    from matplotlib import colormaps

    figure, axes = new_figure(data.sizes["algorithm"])
    start = float(data.loss_at_x)
    for ax, method in zip(axes, data.algorithm.values, strict=True):
        ax.plot(data.y, data.loss, color="black", linewidth=1.8, label="the loss f")
        for shade, lr in zip(np.linspace(0, 0.85, data.sizes["lr"]), data.lr.values, strict=True):
            objective, colour = data.objective.sel(algorithm=method, lr=lr), colormaps["viridis"](shade)
            ax.plot(data.y, objective, color=colour, linewidth=0.9, label=f"update's objective, α = {lr:g}")
            lowest = float(data.y[int(objective.values.argmin())])
            arrow = {"arrowstyle": "<->", "color": colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (lowest, start), (lowest, float(objective.min())), arrowprops=arrow)
        ax.axhline(start, color=GREY, linestyle=":", linewidth=1.0, label="f(x)")
        ax.plot(float(data.x), start, "o", color="black", markersize=5, linestyle="none", label="the point x")
        key(ax, "δ, from f(x) to the minimum", marker=r"$\updownarrow$", linestyle="none", markersize=9)
        ax.set(title=look(method).label, xlabel="y", ylim=(-2.0, 5.0))
    axes[0].set_ylabel("loss, and objective of the update")
    return figure


STEPS, DISTANCE = 100, 1.0


def power_law_data() -> xr.Dataset:
    """Bound, bias and noise for every exponent ν and rate α (T = 100, D = 1)."""
    nu, lr = [0.0, 0.25, 0.5, 0.75, 1.0, 2.0], np.geomspace(1e-3, 1e2, 101)
    bound = bounds.power_law(lr, STEPS, DISTANCE, np.array(nu)[:, None])
    dims = ("nu", "lr")
    return xr.Dataset({"bias": ("lr", bound.bias), "noise": (dims, bound.noise)}, {"nu": nu, "lr": lr})


def power_law(data: xr.Dataset) -> Figure:
    """Fig. 2 (left): Ω_last for a constant rate if E[δ_t] = α^ν. The larger ν, the worse the bound at large rates."""
    from matplotlib import colormaps

    figure, (ax,) = new_figure(1, width=6.0)
    for shade, nu in zip(np.linspace(0, 0.9, data.sizes["nu"]), data.nu.values, strict=True):
        ax.plot(data.lr, (data.bias + data.noise).sel(nu=nu), color=colormaps["viridis"](shade), label=f"ν = {nu:g}")
    ax.plot(data.lr, data.bias, ":", color="grey", label="bias D²/(2αT) alone")
    ax.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="bound Ω of the last iterate", ylim=(5e-2, 1e3))
    ax.set_title(f"T = {STEPS} steps at a constant rate, D = {DISTANCE:g}")
    beside = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
    ax.legend(frameon=False, fontsize=8.5, title="E[δ] = $α^ν$", title_fontsize=9, **beside)
    return figure


def universal_curves_data() -> xr.Dataset:
    """δ/F, t and the step in Polyak units for every model on a grid of z."""
    z = np.geomspace(1e-2, 1e4, 181)
    drawn = {**NAMED, **{f"power(p={p:g})": models.Power(p) for p in (0.75, 0.25, 0.1, -1.0)}}
    steps = [model.step(1.0, z, 1.0) for model in drawn.values()]
    dims = ("model", "z")
    return xr.Dataset(
        {
            "delta": (dims, [step.delta for step in steps]),
            "polyak_steps": (dims, [step.size * z for step in steps]),
        },
        {"model": list(drawn), "z": z},
    )


def universal_curves(data: xr.Dataset) -> Figure:
    """All models in one picture: δ/F and the effective step are functions of z = α‖g‖²/F alone.

    Left: the index. Every curve starts like z/2; SGD's goes on, all others flatten at 1, the lower the rung the sooner.
    Right: what a low rung costs. The step in units of Polyak's F/‖g‖² stays within 1 for SPS and 2 for NGN, but reaches
    1/p for Power(p), and has no limit for LogNGN: a small index at a point is not a stable method.
    """
    figure, (left, right) = new_figure(2)
    for name in data.model.values.tolist():
        style: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "alpha": 0.8}
        if name in NAMED:
            style = look(name).options(linewidth=1.8, markevery=20, markersize=4)
        else:
            label = name.removeprefix("power(").removesuffix(")").replace("p=", "p = ")
            end = (float(data.z[-1]), float(data.polyak_steps.sel(model=name)[-1]))
            right.annotate(label, end, (3, 0), textcoords="offset points", fontsize=7, color=GREY, va="center")
        left.plot(data.z, data.delta.sel(model=name), **style)
        right.plot(data.z, data.polyak_steps.sel(model=name), **style)
    key(left, "Power(p)", linewidth=1.0)
    left.set(xscale="log", yscale="log", ylim=(4e-3, 4), xlabel="z = α‖g‖²/F", ylabel="stability index δ/F")
    for ax, level, words in ((left, 1.0, "δ = F"), (right, 1.0, "Polyak's step"), (right, 2.0, "twice that")):
        ax.axhline(level, linestyle=":", color="black", linewidth=0.8)
        ax.text(1.1e-2, 1.04 * level, words, fontsize=8, va="bottom")
    right.set(xscale="log", yscale="log", ylim=(1e-2, 1e2), xlabel="z = α‖g‖²/F", ylabel="step / Polyak step")
    left.set_title("SGD's index goes on, all others flatten at F")
    right.set_title("what a small index may cost: a step without limit")
    return figure


FIGURES = {
    "toy-function": Recipe("1", "One step on the toy function from x = −3", toy_function_data, toy_function),
    "stability-index": Recipe(
        "3", "The stability index δ as a gap, for SGD and NGN", stability_index_data, stability_index
    ),
    "power-law": Recipe("2 (left)", "The bound Ω if δ grows like a power of the rate", power_law_data, power_law),
    "universal-curves": Recipe(
        "", "Index and step of every model depend on z = α‖g‖²/F alone", universal_curves_data, universal_curves
    ),
}
