"""The figure of a run, of its loss, slopes, rates and indices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from surefoot.monitor import StabilityMonitor


def watched(problem, lr=0.1, steps=40, **options):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=lr)
    with StabilityMonitor(optimizer, **{"horizon": 100, **options}) as monitor:
        problem.train(optimizer, steps, monitor)
    return monitor


def panels(figure):
    return {ax.get_title(): ax for ax in figure.axes}


def labels(figure):
    return {text.get_text() for ax in figure.axes if ax.get_legend() for text in ax.get_legend().get_texts()}


def test_the_figure_has_loss_promises_rate_and_indices(problem):
    monitor = watched(problem, distance=1.0)
    figure = monitor.plot()
    assert list(panels(figure)) == ["loss", "slope left at a step's end", "step size", "stability index δ"]
    assert {"of a batch", "NGN would take", "NGN would have", "bias of the bound"} <= labels(figure)
    low, high = monitor.verdict().lr_range
    assert f"suggested: {low:.2g} to {high:.2g}" in labels(figure)
    assert str(monitor.verdict())[:20] in figure.get_suptitle()


def test_what_is_left_of_the_slope_is_the_share_that_was_measured(problem):
    monitor = watched(problem)
    columns = monitor.numbers()
    line = panels(monitor.plot())["slope left at a step's end"].get_lines()[-1].get_ydata()
    # The mean over three of forty steps; what is left of one is measured at the next.
    expected = columns["carried"][37:40].sum() / columns["slope"][36:39].sum()
    assert line[38] == pytest.approx(np.clip(expected, -1.45, 1.45))


def test_a_run_that_is_lost_ends_where_it_was(problem):
    monitor = watched(problem, lr=1e6)
    broken = int(np.argmax(np.isinf(monitor.trace().loss.values)))
    assert 0 < broken < 40
    ax = panels(monitor.plot())["loss"]
    assert ax.get_lines()[0].get_xdata()[-1] == broken - 1
    assert ax.get_lines()[-1].get_xdata()[0] == broken


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_short_runs_are_drawn(problem, steps):
    figure = watched(problem, steps=steps).plot()
    figure.draw_without_rendering()
    drawn = [len(line.get_xdata()) for line in panels(figure)["loss"].get_lines()]
    assert max(drawn, default=0) == steps
