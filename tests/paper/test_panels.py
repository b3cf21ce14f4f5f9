"""What is drawn can be read: marks at the edge, smoothing, legends."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from surefoot.paper.figures.panels import draw_rates, draw_traces
from surefoot.plots.style import legend_below, mark_edge, new_figure, running_mean


def drawn(losses, bounds=(1.0, 1.0, 1.0, 1.0), **options):
    lrs, dims = [10.0**k for k in range(4)], ("algorithm", "lr")
    data = xr.Dataset({"loss": (dims, [losses]), "bound": (dims, [bounds])}, {"algorithm": ["sgd"], "lr": lrs})
    data["loss"] = data.loss.expand_dims(seed=[0])
    _, (ax,) = new_figure(1)
    draw_rates(ax, data, ["sgd"], 1.0, **options)
    return ax


def words(ax):
    return ax.get_legend_handles_labels()[1]


def test_a_loss_above_the_axis_and_a_diverged_one_are_told_apart():
    _, (ax,) = new_figure(1)
    mark_edge(ax, np.array([1.0, 2.0, 3.0]), np.array([0.5, 1e9, np.inf]), 10.0, "#000000")
    assert {line.get_marker(): line.get_xdata().tolist() for line in ax.lines} == {"^": [2.0], "x": [3.0]}
    both = words(drawn([0.5, 0.5, 1e9, np.inf]))
    assert "loss above the axis" in both
    assert "diverged" in both
    neither = words(drawn([0.5, 0.5, 0.5, 0.5]))
    assert "loss above the axis" not in neither
    assert "diverged" not in neither


def test_the_bound_is_drawn_for_what_it_bounds():
    ax = drawn([0.5] * 4, [0.25] * 4, lowest=0.4)
    dashed = next(line for line in ax.lines if line.get_linestyle() == "--" and len(line.get_xdata()))
    np.testing.assert_allclose(dashed.get_ydata(), 0.65)


def test_every_line_of_a_panel_is_explained():
    found = words(drawn([0.5, 0.5, 0.5, 0.5]))
    assert {"SGD", "loss", "its bound", "loss at the start"} <= set(found)


def test_traces_are_smoothed_with_every_step_behind():
    values = np.exp(np.sin(np.arange(100.0) * 3.0))
    coordinates = {"algorithm": ["sgd"], "rate": [1.0], "step": np.arange(100)}
    _, (ax,) = new_figure(1)
    draw_traces(ax, xr.DataArray(values[None, None], coordinates), ["sgd"])
    thin, thick = (line for line in ax.lines if len(line.get_xdata()))
    np.testing.assert_array_equal(thin.get_ydata(), values)
    assert np.ptp(thick.get_ydata()[10:-10]) < 0.5 * np.ptp(values)
    assert any("mean of 5" in label for label in words(ax))


@pytest.mark.parametrize("window", [1, 2, 5, 100])
def test_the_running_mean_of_a_line_is_the_line(window):
    line = np.linspace(0.0, 7.0, 40)
    inside = slice(0, 40 - window // 2) if window < 40 else slice(0, 20)
    np.testing.assert_allclose(running_mean(line, window)[inside], line[inside])


def test_legends_stand_under_the_panels_and_inside_the_figure():
    figure, axes = new_figure(2)
    for ax in axes:
        for k in range(12):
            ax.plot([1, 2], [k, k], label=f"a rather long name of line {k}")
    legend_below(figure, axes)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert len(legend.get_texts()) == 12
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert all(box.y1 <= ax.get_tightbbox().y0 for ax in axes)
