"""What the page shows of single runs, in a real browser: points that are picked, and their traces."""

import numpy as np
import pytest
from tests.report.pages import clear_picks, click_point, lines, settle, switch

from surefoot import report


def test_clicked_point_shows_its_runs(page, result):
    method, rate = result.algorithms.index("ngn"), 6
    click_point(page, method, rate)
    settle(page)
    runs = result.dataset.isel(algorithm=method, lr=rate)
    for name, panel in (("delta", "#delta"), ("distance", "#travel")):
        found = lines(page, f'{panel} [data-run^="{method},{rate},"]:not([data-run$="safe"])')
        expected = np.vstack([runs[name].mean("seed").values, runs[name].values])
        assert found == pytest.approx(expected, rel=2e-3)
    assert f"α = {float(f'{result.lrs[rate]:.3g}'):g}" in page.inner_text("#picks")


def test_clicking_again_leaves_the_runs_out(page):
    before = page.locator("#picks .chip").count()
    for _ in range(2):
        click_point(page, 2, 9)
        settle(page)
    assert page.locator("#picks .chip").count() == before
    assert page.locator('#delta [data-run^="2,9,"]').count() == 0


def test_clicks_go_round_points_that_lie_upon_each_other(page):
    clear_picks(page)
    settle(page)
    for _ in range(4):  # at the smallest rate all methods are the same
        click_point(page, 0, 0)
        settle(page)
    assert page.locator('#delta [data-run$=",0,mean"]').count() == 4


def test_index_switch_shows_the_safe_index_of_the_runs(page, result):
    method, rate = result.algorithms.index("ngn"), 6
    click_point(page, method, rate)
    switch(page, index="safe")
    expected = result.deltas("safe").isel(algorithm=method, lr=rate).mean("seed").values
    assert lines(page, f'#delta [data-run="{method},{rate},mean"]')[0] == pytest.approx(expected, rel=2e-3)


def test_one_seed_can_be_shown_alone(page, result):
    click_point(page, 1, 6)
    page.select_option("#lines", "2")
    settle(page)
    assert page.locator('#delta [data-run^="1,6,"]').count() == 1
    expected = result.dataset.delta.values[1, 6, 2]
    assert lines(page, '#delta [data-run="1,6,2"]')[0] == pytest.approx(expected, rel=2e-3)


def test_points_are_picked_by_the_keyboard(page, result):
    page.focus("#loss svg")
    page.keyboard.press("ArrowDown")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert result.algorithms[1].upper() in page.inner_text("#live") + page.inner_text("#loss .tip")
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator('#delta [data-run="1,3,mean"]').count() == 1
    assert page.evaluate("() => document.activeElement === document.querySelector('#loss svg')")


def test_steps_lie_on_the_curve_of_their_model(page):
    click_point(page, 1, 8)
    settle(page)
    assert page.locator("#curve .cloud").count() > 20
    assert page.locator("#curve .line.curve").count() == 3  # the exact model has no curve


def test_thinned_traces_keep_their_extremes(opened, validated, folder):
    with opened(report.write(validated, folder / "thinned.html")) as page:
        clear_picks(page)
        click_point(page, 1, 2)
        settle(page)
        shown = lines(page, '#delta [data-run="1,2,mean"]')[0]
        whole = validated.dataset.delta.values[1, 2].mean(axis=0)
        assert len(shown) < len(whole)
        assert (shown.min(), shown.max()) == pytest.approx((whole.min(), whole.max()), rel=2e-3)
