"""The page in a real browser: Debian's Chromium, driven by Playwright, with the network off.

Skipped where one of the two is missing (``pip install playwright``, ``apt-get install chromium``); no browser is
downloaded.
"""

import itertools

import numpy as np
import pytest
from tests.report.pages import clear_picks, click_point, download, lines, marks, settle, switch, table, words_at

from surefoot import report
from surefoot.plots import short, span
from surefoot.study import Result, Study


def over_the_loss(result, order, **options):
    """The bound as it is drawn: what bounds f − f⋆ has f⋆ added."""
    return result.bound(**options).total.values[order] + (0.0 if "bias" in options else result.optimum().value)


def test_losses_and_bounds_are_those_of_the_library(page, result, order):
    assert lines(page, "#loss .line.loss") == pytest.approx(result.dataset.last_loss.mean("seed").values[order])
    for loss, index, bias in itertools.product(("last", "average"), ("model", "safe"), ("distance", "free")):
        switch(page, loss=loss, index=index, bias=bias)
        options = {"kind": loss, "index": index} | ({"bias": "envelope"} if bias == "free" else {"distance": 1.0})
        assert lines(page, "#loss .line.bound") == pytest.approx(over_the_loss(result, order, **options), rel=1e-12)


def test_windows_and_table_are_those_of_the_library(page, result, order):
    rows = result.sensitivity(distance=1.0)
    for row in rows:
        words = page.inner_text(f'#headline [data-method="{row.algorithm}"]').replace("\n", " ")
        assert f"holds {span(row.low, row.high)} ({row.decades:.1f} decades)" in words
        assert f"at {short(row.best_rate)}; the bound predicts {span(row.bound_low, row.bound_high)}" in words
        assert page.locator(f'#windows [data-method="{row.algorithm}"] .range').count() == 2
    for row, expected in zip(table(download(page, "#methods-csv")), rows, strict=True):
        assert row.pop("algorithm") == expected.algorithm
        numbers = {name: float(value) for name, value in row.items()}
        assert numbers == {name: getattr(expected, name) for name in numbers}
    widest = max(row.decades for row in rows)
    assert f"({widest:.1f} decades)" in page.locator("#headline li").first.inner_text()
    lost = page.locator("#methods tbody tr").nth(order.index(0)).inner_text()
    assert lost.endswith(f"{int((result.dataset.status[0] == 'diverged').sum())} of 33")


def test_slider_moves_the_bound_as_the_formula_says(page, result, order):
    switch(page, index="model")
    page.focus("#slider")
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    settle(page)
    assert page.inner_text("#distance") == "10"
    assert lines(page, "#loss .line.bound") == pytest.approx(over_the_loss(result, order, distance=10.0), rel=1e-12)


def test_runs_csv_equals_that_of_the_library(page, folder, tmp_path):
    expected = Result.load(folder / "study.db").to_frame().to_csv(index=False, na_rep="nan")
    assert download(page, "#runs-csv").decode() == expected


def test_safe_bound_stands_beside_the_models_where_they_differ(page, result):
    expected = result.bound(distance=1.0, index="safe").total.sel(algorithm="ngn").values + result.optimum().value
    assert lines(page, "#loss .line.safe") == pytest.approx(expected[None], rel=1e-12)
    switch(page, index="safe")
    assert page.locator("#loss .line.safe").count() == 0


def test_tip_names_its_numbers(page, result, order):
    total = result.bound(distance=1.0).sel(algorithm="sps").isel(lr=6)
    least = result.optimum().value
    expected = f"bound {short(float(total.total) + least)} = f⋆ {short(least)} + bias {short(float(total.bias))}"
    words = words_at(page, order.index(result.algorithms.index("sps")), 6)
    assert f"{expected} + noise {short(float(total.noise))}" in words


def test_bound_beyond_the_axis_is_named(opened, folder):
    far = Study("linear-regression", methods=["sps"], lrs=[0.1], seeds=1, epochs=2, batch_size=5, distance=1e9)
    with opened(report.write(far.run(), folder / "far.html")) as page:
        assert "The bound of SPS lies above this axis: at least" in page.inner_text("#off")


def test_diverged_and_off_scale_have_different_marks(page, result, order):
    losses = result.dataset.last_loss.mean("seed").values[0]
    place = order.index(0)
    kinds = [page.get_attribute(f'[data-point="{place},{rate}"]', "class") for rate in range(len(losses))]
    for loss, kind in zip(losses, kinds, strict=True):
        assert ("lost" in kind) == (loss == np.inf)
        assert ("edge" in kind) == (10 * result.initial_loss < loss < np.inf)
    assert {"mark m", "mark lost m", "mark edge m"} == set(kinds)


def test_picked_runs_are_drawn_and_left_out_again(page, result, order):
    method, rate = result.algorithms.index("ngn"), 9
    place = order.index(method)
    before = page.locator("#picks .chip").count()
    click_point(page, place, rate)
    runs = result.dataset.isel(algorithm=method, lr=rate)
    for name, panel in (("delta", "#delta"), ("distance", "#travel")):
        found = lines(page, f'{panel} [data-run="{place},{rate}"]')[0]
        assert found == pytest.approx(runs[name].mean("seed").values, rel=6e-3)
    assert f"α = {short(result.lrs[rate])}" in page.inner_text("#picks")
    click_point(page, place, rate)
    assert page.locator("#picks .chip").count() == before


def test_clicks_go_round_points_that_lie_upon_each_other(page):
    clear_picks(page)
    for _ in range(4):  # at the smallest rate all methods are the same
        click_point(page, 0, 0)
    assert page.locator('#delta [data-run$=",0"]').count() == 4


def test_points_are_picked_by_the_keyboard(page, result, order):
    page.focus("#loss svg")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert result.algorithms[order[1]].upper() in page.inner_text("#live") + page.inner_text("#loss .tip")
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator('#delta [data-run="1,3"]').count() == 1
    assert page.evaluate("() => document.activeElement === document.querySelector('#loss svg')")


def test_steps_lie_on_the_curve_of_their_model(page):
    page.click("#theory > summary")
    settle(page)
    assert page.locator("#curve .cloud").count() > 20
    assert page.locator("#curve .line.curve").count() == 3  # the exact model has no curve


def test_long_traces_share_points_and_keep_their_sum(opened, validated, folder):
    with opened(report.write(validated, folder / "long.html")) as page:
        found = lines(page, "#delta .line.trace")
        whole = validated.dataset.delta.values.mean(axis=2)
        assert found.shape[-1] == 100 < whole.shape[-1]
        means = whole.mean(axis=-1).ravel()
        assert all(np.isclose(line.mean(), means, rtol=0.03).any() for line in found)
        assert "4 steps" in page.inner_text("#traces")


def test_method_has_one_look_in_all_studies(opened, result, validated, folder):
    with opened(report.write_many({"one": result, "two": validated}, folder / "looks.html")) as page:
        first = marks(page)
        page.click("#tabs button:nth-child(2)")
        assert "logistic" in page.inner_text("#settings")
        assert page.get_attribute("#tabs button:nth-child(2)", "aria-pressed") == "true"
        second = marks(page)
        page.reload()
        assert "logistic" in page.inner_text("#settings")
    assert set(second) == {"SGD", "NGN"}
    assert all(first[label] == look for label, look in second.items())
    assert len({tuple(look) for look in first.values()}) == 4


def test_validation_loss_and_bounds_that_prove_nothing(opened, page, validated, folder):
    """NGN's own index is a proof on least squares, and none on logistic losses."""
    assert "no proof" not in page.inner_text("#caption")
    with opened(report.write(validated, folder / "validated.html")) as other:
        assert "NGN: its own δ is no proof on this loss" in other.inner_text("#caption")
        switch(other, loss="valid", index="safe")
        assert "no proof" not in other.inner_text("#caption")
        expected = validated.dataset.valid_loss.values[..., -1].mean(axis=-1)
        found = lines(other, "#loss .line.loss")
        assert sorted(found.tolist()) == sorted(expected.tolist())


@pytest.mark.parametrize(("scheme", "width", "height"), [("light", 390, 844), ("dark", 1280, 900)])
def test_page_fits_its_screen(opened, hostile, result, folder, scheme, width, height):
    path = report.write_many({"study": result, "w" * 90: hostile}, folder / f"{scheme}-{width}.html", title="w" * 120)
    with opened(path, color_scheme=scheme, viewport={"width": width, "height": height}) as page:
        box = page.locator("#loss svg").bounding_box()
        assert box["y"] + box["height"] <= height
        for row in page.locator("#headline li").all():
            assert row.bounding_box()["height"] < 36  # one line each
        for tab in range(2):
            page.locator("#tabs button").nth(tab).click()
            settle(page)
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        light = page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert light == (scheme == "light")


def test_rates_at_the_end_of_the_float_range(opened, folder):
    lrs = [1e-300, 1e-3, 1e300]
    study = Study("linear-regression", methods=["sgd", "sps"], lrs=lrs, seeds=2, epochs=2, batch_size=5, distance=1.0)
    with opened(report.write(study.run(), folder / "wide.html")) as page:
        page.click("#theory > summary")
        assert page.locator("#loss .tick").count() > 4
        assert page.locator('[data-point="1,2"]').count() == 1
        paths = page.evaluate("() => [...document.querySelectorAll('[d]')].map((p) => p.getAttribute('d'))")
        assert "NaN" not in "".join(paths)


@pytest.mark.parametrize("count", [120, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_methods_do_not_hang_the_tab(opened, folder, count):
    names = [f"sps(lower_bound=-{place}e-4)" for place in range(1, count + 1)]
    study = Study("linear-regression", methods=names, lrs=[0.01, 0.1], seeds=1, epochs=1, batch_size=25, distance=1.0)
    path = report.write(study.run(), folder / "many.html")
    assert path.stat().st_size < 10_000_000
    with opened(path) as page:
        assert page.locator("#loss .line.loss").count() == 12
        assert f"100 of {count:,} methods are shown" in page.inner_text("#state")
        page.locator("#headline button").nth(50).click()
        settle(page)
        assert page.locator("#loss .line.loss").count() == 13
        assert len(table(download(page, "#methods-csv"))) == count
        # What a tab has to redraw does not grow with the study.
        assert page.evaluate("() => document.querySelectorAll('*').length") < 6000


def test_numbers_and_settings_are_listed(page, result):
    page.click("#theory > summary")
    assert "The infimum of the training loss is" in page.inner_text("#infimum")
    assert f"numpy {np.__version__}" in page.inner_text("#settings")
    page.click("#numbers summary")
    page.wait_for_selector("#numbers tbody tr")
    assert page.locator("#numbers tbody tr").count() == len(result.algorithms) * len(result.lrs)


def test_methods_can_be_hidden(page):
    page.click("#headline li:first-child button")
    settle(page)
    assert page.locator("#loss .line.loss").count() == 3
    assert page.locator("#windows .strip").count() == 3


def test_hostile_names_stay_text(opened, hostile, hostile_title, folder):
    pair = {hostile_title: hostile, "other": hostile}
    with opened(report.write_many(pair, folder / "hostile.html", title=hostile_title)) as page:
        assert page.evaluate("() => window.broken") is None
        assert hostile_title in page.inner_text("h1")
        assert "<script>window.broken = 1</script>" in page.inner_text("#methods")
        assert page.locator("img").count() == 0


def test_network_above_its_start_has_a_best_rate_and_no_average(opened, folder):
    study = Study("digits-mlp", methods=["sgd", "ngn"], lrs=[1e-9, 1e-8], seeds=[1], epochs=1, batch_size=256)
    result = study.run(processes=1)
    assert result.optimal_loss > result.initial_loss
    with opened(report.write(result, folder / "network.html")) as page:
        assert "holds" in page.inner_text("#advice")
        assert page.locator("[name=loss]").count() == 2
        assert page.locator("[name=loss][value=average]").count() == 0
        assert "a run has visited" in page.inner_text("#caption")


def test_studies_that_diverged_or_stopped_say_so(opened, exploded, interrupted, folder):
    with opened(report.from_store(folder / "exploded.db", folder / "exploded.html")) as page:
        assert "All 4 runs diverged" in page.inner_text("#state")
        assert "No rate of any method has a finite mean loss" in page.inner_text("#advice")
    with opened(report.write(interrupted, folder / "interrupted.html")) as page:
        assert "4 of 8 runs are missing" in page.inner_text("#state")


def test_paper_is_white_without_controls(page):
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.is_visible("#losses")
    page.emulate_media(media="screen", color_scheme="light")
