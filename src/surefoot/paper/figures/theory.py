"""Figures that need no runs: the toy function, the bound for powers of the rate, and all models in one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.paper.figures._recipe import Recipe
from surefoot.plots.methods import GREY, look, looks
from surefoot.plots.panels import Columns
from surefoot.plots.style import key, new_figure
from surefoot.problems import toy
from surefoot.theory import bounds, models

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NAMED: dict[str, models.Model] = {name: models.NAMED[name]() for name in ("sgd", "sps", "ngn", "log-ngn")}


def toy_function_data() -> Columns:
    """Next loss and δ of every method on a grid of rates."""
    lrs = np.geomspace(1e-1, 1e2, 151)
    x, loss, slope = toy.START, toy.loss(toy.START), toy.slope(toy.START)
    after, indices = {}, {}
    for name, model in NAMED.items():
        step = model.step(loss, slope**2, lrs)
        after[name], indices[name] = toy.loss(x - step.size * slope), step.delta
    nearest = toy.proximal_point(x, lrs)
    after["spp"] = toy.loss(nearest)
    indices["spp"] = models.exact_delta(loss, after["spp"], (nearest - x) ** 2, lrs)
    return {
        "method": np.repeat(list(after), lrs.size),
        "lr": np.tile(lrs, len(after)),
        "next_loss": np.concatenate(list(after.values())),
        "delta": np.concatenate(list(indices.values())),
        "best_sgd_lr": np.full(lrs.size * len(after), (toy.MINIMISER - x) / -slope),
    }


def toy_function(columns: Columns) -> Figure:
    """Fig. 1: one step on f(x) = ln(1 + e^(−x)) + max{x − 2, 0} from x = −3, for every rate.

    Left: the loss after the step. Right: the stability index. Where the loss stays low at large rates, the index has
    flattened. The vertical line marks SGD's best rate, which takes it straight to the minimum at 2.
    """
    figure, (left, right) = new_figure(2)
    for name, style in looks(dict.fromkeys(columns["method"].tolist())).items():
        chosen = columns["method"] == name
        for ax, column in ((left, "next_loss"), (right, "delta")):
            ax.plot(columns["lr"][chosen], columns[column][chosen], **style.options(markevery=15, markersize=4))
    for ax in (left, right):
        best = columns["best_sgd_lr"][0]
        ax.axvline(best, color=GREY, linestyle="--", linewidth=1.0, label=f"SGD's best rate, {best:.3g}")
        ax.set(xscale="log", xlabel="learning rate α")
    last = columns["next_loss"][columns["method"] == "sgd"][-1]
    left.set(ylabel="loss after the step", ylim=(0, 6))
    left.set_title(f"SGD leaves the axis: {last:.0f} at α = {columns['lr'][-1]:g}")
    right.set(ylabel="stability index δ of the step", yscale="log")
    right.set_title("SGD's index grows like α, the others flatten")
    return figure


GAP_RATES = (1.0, 2.0, 4.0, 8.0)
GAPS = {name: NAMED[name] for name in ("sgd", "ngn")}


def stability_index_data() -> Columns:
    """The loss and the update's objective over y, for both methods and several rates."""
    x, loss, slope = toy.START, toy.loss(toy.START), toy.slope(toy.START)
    method, lr, y = (
        grid.ravel() for grid in np.meshgrid(list(GAPS), GAP_RATES, np.linspace(-4.0, 6.0, 401), indexing="ij")
    )
    objective = np.empty(y.size)
    for name, model in GAPS.items():
        chosen = method == name
        away = y[chosen] - x
        objective[chosen] = model.value(loss, slope**2, -away / slope) + away**2 / (2 * lr[chosen])
    constant = {"x": x, "loss_at_x": loss, "grad_sq": slope**2}
    return {
        "method": method, "lr": lr, "y": y, "loss": toy.loss(y), "objective": objective,
        **{key: np.full(y.size, value) for key, value in constant.items()},
    }  # fmt: skip


def stability_index(columns: Columns) -> Figure:
    """Fig. 3: δ as the gap between the loss and the minimum of the regularised model, for SGD (left) and NGN (right).

    Thin lines are the objectives f_x(y) + (y − x)²/(2α) of the update for growing α, on the toy function of Fig. 1; the
    arrows are their gaps. They grow without limit for SGD, and stay below the loss for NGN.
    """
    from matplotlib import colormaps

    figure, axes = new_figure(len(GAPS))
    for ax, method in zip(axes, GAPS, strict=True):
        rows = columns["method"] == method
        ax.plot(columns["y"][rows][:401], columns["loss"][rows][:401], color="black", linewidth=1.8, label="the loss f")
        start = columns["loss_at_x"][0]
        for position, lr in enumerate(GAP_RATES):
            chosen = rows & (columns["lr"] == lr)
            y, objective = columns["y"][chosen], columns["objective"][chosen]
            colour = colormaps["viridis"](0.85 * position / (len(GAP_RATES) - 1))
            ax.plot(y, objective, color=colour, linewidth=0.9, label=f"update's objective, α = {lr:g}")
            lowest = objective.argmin()
            arrow = {"arrowstyle": "<->", "color": colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (y[lowest], start), (y[lowest], objective[lowest]), arrowprops=arrow)
        ax.axhline(start, color=GREY, linestyle=":", linewidth=1.0, label="f(x)")
        ax.plot(columns["x"][0], start, "o", color="black", markersize=5, linestyle="none", label="the point x")
        key(ax, "δ, from f(x) to the minimum", marker=r"$\updownarrow$", linestyle="none", markersize=9)
        ax.set(title=look(method).label, xlabel="y", ylim=(-2.0, 5.0))
    axes[0].set_ylabel("loss, and objective of the update")
    return figure


STEPS, DISTANCE = 100, 1.0
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)


def power_law_data() -> Columns:
    """Bound, bias and noise for every exponent ν and rate α (T = 100, D = 1)."""
    nu, lr = (grid.ravel() for grid in np.meshgrid(EXPONENTS, np.geomspace(1e-3, 1e2, 101), indexing="ij"))
    bound = bounds.power_law(lr, STEPS, DISTANCE, nu)
    return {"nu": nu, "lr": lr, "bias": bound.bias, "noise": bound.noise, "total": bound.total}


def power_law(columns: Columns) -> Figure:
    """Fig. 2 (left): Ω_last for a constant rate if E[δ_t] = α^ν. The larger ν, the worse the bound at large rates."""
    from matplotlib import colormaps

    figure, (ax,) = new_figure(1, width=6.0)
    for position, nu in enumerate(EXPONENTS):
        chosen = columns["nu"] == nu
        colour = colormaps["viridis"](0.9 * position / (len(EXPONENTS) - 1))
        ax.plot(columns["lr"][chosen], columns["total"][chosen], color=colour, label=f"ν = {nu:g}")
    ax.plot(columns["lr"][chosen], columns["bias"][chosen], ":", color="grey", label="bias D²/(2αT) alone")
    ax.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="bound Ω of the last iterate", ylim=(5e-2, 1e3))
    ax.set_title(f"T = {STEPS} steps at a constant rate, D = {DISTANCE:g}")
    beside = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
    ax.legend(frameon=False, fontsize=8.5, title="E[δ] = $α^ν$", title_fontsize=9, **beside)
    return figure


FAMILY = {f"power(p={p:g})": models.Power(p) for p in (0.75, 0.25, 0.1, -1.0)}


def universal_curves_data() -> Columns:
    """δ/F, t and the step in Polyak units for every model on a grid of z."""
    z = np.geomspace(1e-2, 1e4, 181)
    drawn = {**NAMED, **FAMILY}
    steps = {name: model.step(1.0, z, 1.0) for name, model in drawn.items()}
    return {
        "model": np.repeat(list(drawn), z.size),
        "z": np.tile(z, len(drawn)),
        "delta": np.concatenate([steps[name].delta for name in drawn]),
        "scale": np.concatenate([steps[name].size for name in drawn]),
        "polyak_steps": np.concatenate([steps[name].size * z for name in drawn]),
    }


def universal_curves(columns: Columns) -> Figure:
    """All models in one picture: δ/F and the effective step are functions of z = α‖g‖²/F alone.

    Left: the index. Every curve starts like z/2; SGD's goes on, all others flatten at 1, the lower the rung the sooner.
    Right: what a low rung costs. The step in units of Polyak's F/‖g‖² stays within 1 for SPS and 2 for NGN, but reaches
    1/p for Power(p), and has no limit for LogNGN: a small index at a point is not a stable method.
    """
    figure, (left, right) = new_figure(2)
    for name in dict.fromkeys(columns["model"].tolist()):
        chosen = columns["model"] == name
        is_named = name in NAMED
        style: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "alpha": 0.8}
        if is_named:
            style = look(name).options(linewidth=1.8, markevery=20, markersize=4)
        left.plot(columns["z"][chosen], columns["delta"][chosen], **style)
        right.plot(columns["z"][chosen], columns["polyak_steps"][chosen], **style)
        if not is_named:
            label = name.removeprefix("power(").removesuffix(")").replace("p=", "p = ")
            end = (columns["z"][chosen][-1], columns["polyak_steps"][chosen][-1])
            right.annotate(label, end, (3, 0), textcoords="offset points", fontsize=7, color=GREY, va="center")
    z = columns["z"][columns["model"] == "sgd"]
    left.plot(z, z / 2, ":", color="black", linewidth=0.8)
    left.axhline(1.0, linestyle=":", color="black", linewidth=0.8)
    left.text(1.1e-2, 1.04, "δ = F", fontsize=8, va="bottom")
    left.text(1.6e-2, 1.4e-2, "z/2", fontsize=8)
    key(left, "PowerStep (p)", linewidth=1.0)
    key(left, "guides", linestyle=":", color="black", linewidth=0.8)
    left.set(xscale="log", yscale="log", ylim=(4e-3, 4), xlabel="z = α‖g‖²/F", ylabel="stability index δ/F")
    for level, words in ((1.0, "Polyak's step"), (2.0, "twice that")):
        right.axhline(level, linestyle=":", color="black", linewidth=0.8)
        right.text(1.1e-2, 1.04 * level, words, fontsize=8, va="bottom")
    right.set(xscale="log", yscale="log", ylim=(1e-2, 1e2), xlabel="z = α‖g‖²/F", ylabel="step / Polyak step")
    left.set_title("SGD's index goes on, all others flatten at F")
    right.set_title("what a small index may cost: a step without limit")
    return figure


FIGURES = {
    "toy-function": Recipe("1", "one step on the toy function from x = −3", toy_function_data, toy_function),
    "stability-index": Recipe(
        "3", "the stability index δ as a gap, for SGD and NGN", stability_index_data, stability_index
    ),
    "power-law": Recipe("2 (left)", "the bound Ω if δ grows like a power of the rate", power_law_data, power_law),
    "universal-curves": Recipe(
        "", "index and step of every model depend on z = α‖g‖²/F alone", universal_curves_data, universal_curves
    ),
}
