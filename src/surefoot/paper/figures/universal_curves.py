"""All models in one picture: δ/F and the effective step are functions of z = α‖g‖²/F alone.

Left: the index. Every curve starts like z/2; SGD's goes on, all others flatten at 1, the lower the rung the sooner.
Right: what a low rung costs. The step in units of Polyak's F/‖g‖² stays within 1 for SPS and 2 for NGN, but reaches 1/p
for Power(p), and has no limit for LogNGN: a small index at a point is not a stable method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.plots.methods import GREY, look
from surefoot.plots.style import key, legend_below, new_figure
from surefoot.theory import models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "index and step of every model depend on z = α‖g‖²/F alone"
NAMED = {
    "sgd": models.Linear(),
    "sps": models.Truncated(),
    "ngn": models.SquareRoot(),
    "log-ngn": models.Exponential(),
}
FAMILY = {f"power(p={p:g})": models.Power(p) for p in (0.75, 0.25, 0.1, -1.0)}


def data() -> Columns:
    """δ/F, t and the step in Polyak units for every model on a grid of z."""
    z = np.geomspace(1e-2, 1e4, 181)
    every = {**NAMED, **FAMILY}
    steps = {name: model.step(1.0, z, 1.0) for name, model in every.items()}
    return {
        "model": np.repeat(list(every), z.size),
        "z": np.tile(z, len(every)),
        "delta": np.concatenate([steps[name].delta for name in every]),
        "scale": np.concatenate([steps[name].size for name in every]),
        "polyak_steps": np.concatenate([steps[name].size * z for name in every]),
    }


def draw(columns: Columns) -> Figure:
    """Index (left) and effective step (right)."""
    figure, (left, right) = new_figure(2)
    for name in dict.fromkeys(columns["model"].tolist()):
        chosen = columns["model"] == name
        named = name in NAMED
        style: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "alpha": 0.8}
        if named:
            drawn = look(name)
            style = {"color": drawn.colour, "linewidth": 1.8, "label": drawn.label}
            style |= {"marker": drawn.marker, "markevery": 20, "markersize": 4}
        left.plot(columns["z"][chosen], columns["delta"][chosen], **style)
        right.plot(columns["z"][chosen], columns["polyak_steps"][chosen], **style)
        if not named:
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
    legend_below(figure, (left, right))
    return figure
