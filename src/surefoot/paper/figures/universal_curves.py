"""All models in one picture: δ/F and the effective step are functions of z = α‖g‖²/F alone.

Left: the index. Every curve starts like z/2; SGD's goes on, all others flatten at 1, the lower the rung the sooner.
Right: what a low rung costs. The step in units of Polyak's F/‖g‖² stays within 1 for SPS and 2 for NGN, but reaches 1/p
for Power(p), and has no limit for the Lambert-W step: a small index at a point is not a stable method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot.plots.style import COLOURS, GREY, LABELS, new_figure
from surefoot.theory import models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "δ/F and the effective step of every model over z = α‖g‖²/F"
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
        named = name in COLOURS
        style = {
            "color": COLOURS.get(name, GREY),
            "linewidth": 1.8 if named else 1.0,
            "alpha": 1.0 if named else 0.8,
        }
        if named:
            style["label"] = LABELS[name]
        left.plot(columns["z"][chosen], columns["delta"][chosen], **style)
        right.plot(columns["z"][chosen], columns["polyak_steps"][chosen], **style)
        if not named:
            label = name.removeprefix("power(").removesuffix(")").replace("p=", "p = ")
            end = (columns["z"][chosen][-1], columns["polyak_steps"][chosen][-1])
            right.annotate(label, end, (3, 0), textcoords="offset points", fontsize=7, color=GREY, va="center")
    z = columns["z"][columns["model"] == "sgd"]
    left.plot(z, z / 2, ":", color="black", linewidth=0.8)
    left.axhline(1.0, linestyle=":", color="black", linewidth=0.8)
    left.text(1.1e-2, 1.04, "F", fontsize=8, va="bottom")
    left.text(1.6e-2, 1.4e-2, "z/2", fontsize=8)
    left.plot([], [], color=GREY, linewidth=1.0, label="Power(p)")
    left.set(xscale="log", yscale="log", ylim=(4e-3, 4), xlabel="z = α‖g‖²/F", ylabel="stability index δ/F")
    for level in (1.0, 2.0):
        right.axhline(level, linestyle=":", color="black", linewidth=0.8)
    right.set(xscale="log", yscale="log", ylim=(1e-2, 1e2), xlabel="z = α‖g‖²/F", ylabel="step / Polyak step")
    left.legend(frameon=False, fontsize=7, loc="lower right")
    return figure
