"""Worst cases computed by semidefinite programs: Λ(α) of the proximal point, and how tight the whole bounds are.

The left panel is the right one of the paper's Fig. 2, with the exact curve added; the other two are surefoot's own.
Needs the extra ``surefoot[pep]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot import pep
from surefoot.theory import proximal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "pep"
TITLE = "Worst cases: the index of SPP, and the bounds of whole runs"

Data = dict[str, Any]

_PAPER = {"worst": "tab:blue", "gap": "tab:green", "sgd": "0.6"}
_SHADES = (0.4, 0.7, 1.0)
_COLORS = {"constant": "tab:blue", "inverse_sqrt": "tab:orange", "linear": "tab:red"}


def data(*, processes: int | None = None, cache: bool | None = None) -> Data:
    """Solve the problems of the figure (or find their results in the cache).

    Returns:
        ``spp``: arrays ``lipschitz`` (G), ``lr`` (α), and ``worst``, ``exact``, ``gap``, ``bound`` of shape G × α.
        ``last`` and ``average``: arrays ``steps`` (T), ``schedule``, ``factor`` (α√T·G/D), and ``worst``, ``bound`` of
        shape T × schedule × factor.

    Raises:
        pep.SolverError: A problem was not solved.

    """
    rows = pep.run(["spp", "last-iterate", "average-iterate"], processes=processes, cache=cache)
    return {
        "spp": _spp([_solved(row) for row in rows if row.name == "spp"]),
        "last": _runs([_solved(row) for row in rows if row.name == "last-iterate"]),
        "average": _runs([_solved(row) for row in rows if row.name == "average-iterate"]),
    }


def draw(data: Data) -> Figure:
    """Draw the three panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _draw_spp(left, data["spp"])
    _draw_runs(middle, data["last"], r"Last iterate: $f(x_T) - f_\star$ and $\Omega_{last}$")
    _draw_runs(right, data["average"], r"Average iterate: $f(\bar x) - f_\star$ and $\Omega_{avg}$")
    return figure


def _solved(row: pep.Row) -> pep.Verification:
    if row.result is None:
        raise pep.SolverError(f"{row.name} {dict(row.parameters)}: {row.error}")
    return row.result


def _spp(results: list[pep.Verification]) -> Data:
    axes = [np.unique([float(result.parameters[name]) for result in results]) for name in ("lipschitz", "lr")]
    shape = tuple(axis.size for axis in axes)
    return {
        "lipschitz": axes[0],
        "lr": axes[1],
        "worst": np.reshape([result.worst_case for result in results], shape),
        "exact": np.reshape([result.exact for result in results], shape),
        "gap": np.reshape([result.instance["gap"] for result in results], shape),
        "bound": np.reshape([result.theory for result in results], shape),
    }


def _runs(results: list[pep.Verification]) -> Data:
    steps = list(dict.fromkeys(int(result.parameters["steps"]) for result in results))
    names = list(dict.fromkeys(str(result.parameters["schedule"]) for result in results))
    shape = (len(steps), len(names), -1)
    factors = [float(result.parameters["lr"]) * int(result.parameters["steps"]) ** 0.5 for result in results]
    return {
        "steps": np.array(steps),
        "schedule": np.array(names),
        "factor": np.reshape(factors, shape)[0, 0],
        "worst": np.reshape([result.worst_case for result in results], shape),
        "bound": np.reshape([result.theory for result in results], shape),
    }


def _draw_spp(axes: Axes, found: Data) -> None:
    rates = found["lr"]
    dense = np.geomspace(rates[0], rates[-1], 400)
    for index, (lipschitz, shade) in enumerate(zip(found["lipschitz"], _SHADES, strict=True)):
        first = index == len(_SHADES) - 1
        label = {
            "sgd": r"$\delta^{SGD} = \frac{1}{2}\alpha G^2$",
            "gap": r"$f(x) - \inf f$",
            "worst": r"$\Lambda(\alpha)$",
        }
        axes.plot(dense, 0.5 * dense * lipschitz**2, color=_PAPER["sgd"], alpha=shade, lw=1.2, zorder=1,
                  label=label["sgd"] if first else None)  # fmt: skip
        axes.plot(rates, found["gap"][index], color=_PAPER["gap"], alpha=shade, lw=1.2, ls="--", zorder=2,
                  label=label["gap"] if first else None)  # fmt: skip
        axes.plot(dense, proximal.worst_delta(1.0, lipschitz**2, dense), color="black", alpha=shade, lw=1.0, zorder=3,
                  label="exact formula" if first else None)  # fmt: skip
        axes.plot(rates, found["worst"][index], "o", color=_PAPER["worst"], alpha=shade, ms=4, zorder=4,
                  label=label["worst"] + " (PEP)" if first else None)  # fmt: skip
        axes.annotate(f"G = {lipschitz:g}", (rates[5], found["worst"][index, 5]), xytext=(5, -9),
                      textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel=r"$\alpha$", ylim=(8e-4, 3), title=r"Index of SPP, worst case")
    axes.legend(fontsize=8, loc="lower right")


def _draw_runs(axes: Axes, found: Data, title: str) -> None:
    """The longest run: bounds as lines, worst cases as markers of the same colour."""
    steps = int(found["steps"][-1])
    for index, name in enumerate(found["schedule"]):
        color = _COLORS[str(name)]
        axes.plot(found["factor"], found["bound"][-1, index], color=color, lw=1.2, ls="--")
        axes.plot(found["factor"], found["worst"][-1, index], "o-", color=color, ms=4, lw=1.2,
                  label=str(name).replace("_", " "))  # fmt: skip
    axes.plot([], [], color="0.3", lw=1.2, ls="--", label=r"bound $\Omega$")
    axes.plot([], [], "o-", color="0.3", ms=4, lw=1.2, label="worst case (PEP)")
    axes.set(xscale="log", yscale="log", xlabel=r"$\alpha \cdot G\sqrt{T}/D$", title=f"{title}, T = {steps}")
    axes.set_xticks(found["factor"], [f"{factor:g}" for factor in found["factor"]])
    axes.minorticks_off()
    axes.legend(fontsize=8)
