"""One look for all figures: a colour and a marker a method, told apart by everybody (Okabe and Ito's palette)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = np.ndarray[Any, np.dtype[np.float64]]

COLOURS = {
    "sgd": "#d55e00",
    "sps": "#0072b2",
    "ngn": "#009e73",
    "spp": "#cc79a7",
    "log-ngn": "#e69f00",
    "sgd+warmup": "#8c3b00",
    # Averaging and geometry change what a model is fed, not the model: relatives share a colour.
    "sgd-momentum": "#d55e00",
    "momo": "#0072b2",
    "ngn-momentum": "#009e73",
    "adam": "#d55e00",
    "adamw": "#d55e00",
    "sps-adam": "#0072b2",
    "ngn-adam": "#009e73",
    "momo-adam": "#cc79a7",
}
LABELS = {
    "sgd": "SGD",
    "sps": "SPS",
    "ngn": "NGN",
    "spp": "SPP",
    "log-ngn": "Lambert-W",
    "sgd+warmup": "SGD, warmup",
    "sgd-momentum": "SGD with momentum",
    "momo": "MoMo",
    "ngn-momentum": "NGN with momentum",
    "adam": "Adam",
    "adamw": "AdamW",
    "sps-adam": "SPS-Adam",
    "ngn-adam": "NGN-Adam",
    "momo-adam": "MoMo-Adam",
}
GREY = "#777777"


def colour_of(method: str) -> str:
    """The colour of a method, whatever its parameters."""
    return COLOURS.get(method.partition("(")[0], GREY)


def label_of(method: str) -> str:
    """How a method is called in a legend.

    >>> label_of("sps(lower_bound=-2)")
    'SPS (lower_bound=-2)'
    """
    name, bracket, rest = method.partition("(")
    return f"{LABELS.get(name, name)}{' (' + rest if bracket else ''}"


def drawable(values: Floats, top: float) -> Floats:
    """Values for a logarithmic axis that ends at ``top``: a line leaves the picture, but not the float range.

    >>> drawable(np.array([0.0, 0.5, 1e300, np.inf]), top=1.0)
    array([   nan, 5.e-01, 1.e+03,    nan])
    """
    return np.where(np.isfinite(values) & (values > 0), np.minimum(values, 1e3 * top), np.nan)


def new_figure(columns: int, *, width: float = 4.2, height: float = 3.4) -> tuple[Figure, list[Any]]:
    """A figure with a row of panels, independent of any display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height), layout="constrained")
    axes = [figure.add_subplot(1, columns, column + 1) for column in range(columns)]
    for ax in axes:
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes
