"""The page in a real browser: Debian's Chromium, driven by Playwright, with the network off.

Skipped where one of the two is missing (``pip install playwright``, ``apt-get install chromium``); no browser is
downloaded.
"""

import itertools

import numpy as np
import pytest
from tests.report.pages import (
    clear_picks,
    click_point,
    download,
    drawn,
    lines,
    marks,
    over_the_loss,
    settle,
    switch,
    table,
    words_at,
)

from surefoot import report
from surefoot.study import Method, Result, Study
from surefoot.theory import models


def test_losses_are_those_of_the_store(page, result):
    assert lines(page, "#loss .line.loss") == pytest.approx(result.dataset.last_loss.mean("seed").values, rel=1e-12)


@pytest.mark.parametrize("distance", [0.05, 1.0, 80.0])
def test_slider_moves_the_bound_as_the_formula_says(page, result, distance):
    before = drawn(page, "#loss .line.bound")
    page.locator("#slider").fill(f"{np.log10(distance):.2f}")
    settle(page)
    shown = float(page.input_value("#distance"))
    assert shown == pytest.approx(distance, rel=0.02)
    assert lines(page, "#loss .line.bound") == pytest.approx(over_the_loss(result, distance=shown), rel=1e-12)
    assert (drawn(page, "#loss .line.bound") == before) == (shown == 1.0)


def test_slider_is_moved_by_the_keyboard(page, result):
    page.focus("#slider")
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    settle(page)
    shown = float(page.input_value("#distance"))
    assert shown == pytest.approx(10**0.2, rel=1e-3)
    assert lines(page, "#loss .line.bound") == pytest.approx(over_the_loss(result, distance=shown), rel=1e-12)


def test_any_distance_can_be_typed(page, result):
    page.fill("#distance", "3.25")
    settle(page)
    assert lines(page, "#loss .line.bound") == pytest.approx(over_the_loss(result, distance=3.25), rel=1e-12)


def test_switches_show_the_bound_and_table_of_the_library(page, result):
    for kind, index, bias in itertools.product(("last", "average"), ("model", "safe"), ("distance", "envelope")):
        switch(page, kind=kind, index=index, bias=bias)
        options = {"kind": kind, "index": index} | ({"bias": bias} if bias == "envelope" else {"distance": 1.0})
        assert lines(page, "#loss .line.bound") == pytest.approx(over_the_loss(result, **options), rel=1e-12)
        for row, expected in zip(table(download(page, "#methods-csv")), result.sensitivity(**options), strict=True):
            assert row.pop("algorithm") == expected.algorithm
            lost = result.dataset.status.sel(algorithm=expected.algorithm) == "diverged"
            assert int(row.pop("diverged")) == int(lost.sum())
            numbers = {name: float(value) for name, value in row.items()}
            assert numbers == pytest.approx({name: getattr(expected, name) for name in numbers}, rel=1e-9, nan_ok=True)


def test_bound_can_be_hidden(page):
    page.locator("[name=bound]").uncheck(force=True)
    settle(page)
    assert drawn(page, "#loss .line.bound") == []


def test_runs_csv_equals_the_store(page, folder, tmp_path):
    Result.load(folder / "study.db").to_csv(tmp_path / "runs.csv")
    assert download(page, "#runs-csv") == (tmp_path / "runs.csv").read_bytes()


def test_headline_has_one_line_a_method(page, result):
    for row in result.sensitivity(distance=1.0):
        words = page.inner_text(f'#headline [data-method="{row.algorithm}"]').replace("\n", " ")
        assert f"holds {row.low:.3g} to {row.high:.3g} ({row.decades:.1f} decades)" in words
        assert f"at {row.best_rate:.3g}; the bound predicts {row.bound_low:.3g}" in words
    widths = [row.decades for row in result.sensitivity(distance=1.0)]
    assert page.locator("#headline li").count() == len(widths)
    assert f"({max(widths):.1f} decades)" in page.locator("#headline li").first.inner_text()


def test_safe_index_stands_beside_the_models_where_they_differ(page, result):
    place = result.algorithms.index("ngn")
    expected = result.bound(distance=1.0, index="safe").total.values[place] + result.optimum().value
    found = lines(page, "#loss .line.safe")
    assert found.shape[0] == 1
    assert found[0] == pytest.approx(expected, rel=1e-12)
    assert page.locator("#delta .line.safe").count() > 0
    switch(page, index="safe")
    assert page.locator("#loss .line.safe").count() == 0


def test_tip_names_its_numbers(page, result):
    method, rate = result.algorithms.index("sps"), 6
    total = result.bound(distance=1.0).isel(algorithm=method, lr=rate)
    least = result.optimum().value
    expected = f"bound {float(total.total) + least:.3g} = f⋆ {least:.3g} + bias {float(total.bias):.3g}"
    assert f"{expected} + noise {float(total.noise):.3g}" in words_at(page, method, rate)


def test_axis_follows_the_bound_when_the_distance_grows(page, result):
    page.fill("#distance", "300")
    settle(page)
    box = page.evaluate(
        "() => { const b = document.querySelector('#clip-loss rect').getBBox(); return [b.y, b.y + b.height] }"
    )
    for path in drawn(page, "#loss .line.bound"):
        heights = [float(point.split(",")[1]) for point in path[1:].replace("M", "L").split("L")]
        assert any(box[0] <= height <= box[1] for height in heights)
    assert not page.is_visible("#off")


def test_bound_beyond_the_axis_is_told(page, result):
    page.fill("#distance", "1e9")
    settle(page)
    assert "The bound of SPS lies above this axis: at least" in page.inner_text("#off")
    page.click("#reset")
    settle(page)
    assert not page.is_visible("#off")


def test_diverged_and_off_scale_have_different_marks(page, result):
    losses = result.dataset.last_loss.mean("seed").values[0]
    kinds = [page.get_attribute(f'[data-point="0,{rate}"]', "class") for rate in range(len(losses))]
    for loss, kind in zip(losses, kinds, strict=True):
        assert ("lost" in kind) == (loss == np.inf)
        assert ("edge" in kind) == (10 * result.initial_loss < loss < np.inf)
    assert {"mark m", "mark lost m", "mark edge m"} == set(kinds)


def test_state_is_in_the_address(opened, result, validated, folder):
    path = report.write_many({"one": result, "two & three": validated}, folder / "address.html")
    with opened(path) as page:
        page.click("[role=tab]:nth-child(1)")
        switch(page, index="safe", kind="average")
        page.fill("#distance", "2.5")
        clear_picks(page)
        click_point(page, 1, 9)
        page.click('#headline [data-method="sgd"] button')
        page.wait_for_function("() => location.hash.includes('hide=sgd')")
        address = page.url
        expected = lines(page, "#loss .line.bound")
    fragment = address.partition("#")[2]
    assert "study=one" in fragment
    assert "D=2.5" in fragment
    with opened(path, fragment) as page:
        assert lines(page, "#loss .line.bound") == pytest.approx(expected)
        assert page.input_value("#distance") == "2.5"
        assert page.locator("[name=index][value=safe]").is_checked()
        assert page.locator('#delta [data-run$=",mean"]').count() == 1
        assert page.locator('#delta [data-run="1,9,mean"]').count() == 1
        assert page.locator("#loss .line.loss").count() == 3


@pytest.mark.parametrize("fragment", ["study=none&D=-1&index=best&pick=x@1&pick=sgd@7&hide=x", "%", "study&D=inf&=&&"])
def test_addresses_that_mean_nothing_are_ignored(opened, result, folder, fragment):
    with opened(report.write(result, folder / "wrong.html"), fragment) as page:
        assert lines(page, "#loss .line.bound") == pytest.approx(over_the_loss(result, distance=1.0))


def test_method_has_one_look_in_all_studies(opened, result, validated, folder):
    with opened(report.write_many({"one": result, "two": validated}, folder / "looks.html")) as page:
        first = marks(page)
        page.click("[role=tab]:nth-child(2)")
        page.wait_for_function("() => document.querySelector('#settings').textContent.includes('logistic')")
        second = marks(page)
    assert set(second) == {"SGD", "NGN"}
    assert all(first[label] == look for label, look in second.items())
    assert len({tuple(look) for look in first.values()}) == 4


def test_bound_that_proves_nothing_says_so_where_it_is_drawn(opened, page, validated, folder):
    """NGN's own index is a proof on least squares, and none on logistic losses."""
    assert "no proof" not in page.inner_text("#loss-caption")
    with opened(report.write(validated, folder / "caveat.html")) as other:
        assert "NGN: its own δ is no proof on this loss" in other.inner_text("#loss-caption")
        assert any(line.startswith("No proof:") for line in words_at(other, 1, 2))
        switch(other, index="safe")
        assert "no proof" not in other.inner_text("#loss-caption")


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_plot_is_on_the_first_screen(opened, result, validated, folder, width, height):
    path = report.write_many({"linear regression": result, "vowel": validated}, folder / "fold.html")
    with opened(path, viewport={"width": width, "height": height}) as page:
        box = page.locator("#loss svg").bounding_box()
        assert box["y"] + box["height"] <= height
        for row in page.locator("#headline li").all():
            assert row.bounding_box()["height"] < 36  # one line each


def test_rates_at_the_end_of_the_float_range(opened, folder):
    study = Study(
        "linear-regression",
        methods=["sgd", "sps"],
        lrs=[1e-300, 1e-3, 1e300],
        seeds=2,
        epochs=2,
        batch_size=5,
        distance=1.0,
    )
    with opened(report.write(study.run(), folder / "wide.html")) as page:
        assert page.locator("#loss .tick").count() > 4
        assert page.locator('[data-point="1,2"]').count() == 1
        assert "NaN" not in "".join(
            page.evaluate("() => [...document.querySelectorAll('[d]')].map((p) => p.getAttribute('d'))")
        )


@pytest.mark.parametrize("count", [60, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_methods_do_not_hang_the_tab(opened, folder, count):
    names = [f"sps(lower_bound=-{place}e-4)" for place in range(1, count + 1)]
    study = Study("linear-regression", methods=names, lrs=[0.01, 0.1], seeds=1, epochs=1, batch_size=25, distance=1.0)
    path = report.write(study.run(), folder / "many.html")
    assert path.stat().st_size < 10_000_000
    with opened(path) as page:
        assert page.locator("#loss .line.loss").count() == 12
        assert f"12 of {count:,} methods are drawn" in page.inner_text("#state")
        assert page.locator("#methods tbody tr").count() == 50
        page.click("#sheets button:last-child")
        assert f"page 2 of {-(-count // 50)}" in page.inner_text("#sheets")
        label = page.locator("#methods tbody tr").first.locator("button").inner_text()
        page.locator("#methods tbody tr").first.locator("button").click()
        settle(page)
        assert label in page.inner_text("#headline")
        assert page.locator("#loss .line.loss").count() == 12
        page.fill("#distance", "3")
        settle(page)
        # What a tab has to redraw does not grow with the study.
        assert page.evaluate("() => document.querySelectorAll('*').length") < 5000


def test_names_are_no_formulas_in_csv_files(opened, folder, tmp_path):
    names = ["=1+1", "+1", "-1", "@SUM(A1)"]
    methods = [Method(name, models.Truncated(lower_bound=-place)) for place, name in enumerate(names)]
    study = Study("linear-regression", methods=methods, lrs=[0.01], seeds=1, epochs=1, batch_size=25, distance=1.0)
    result = study.run()
    result.to_csv(tmp_path / "runs.csv")
    with opened(report.write(result, folder / "formula.html")) as page:
        found = download(page, "#runs-csv")
        assert found == (tmp_path / "runs.csv").read_bytes()
        for data in (found, download(page, "#methods-csv")):
            assert {row["algorithm"] for row in table(data)} == {f"'{name}" for name in names}


def test_overlap_is_told_in_words(page, result):
    row = result.sensitivity(distance=1.0)["sps"]
    words = page.inner_text('#windows [data-method="sps"]')
    assert f"({row.decades:.1f} decades)" in words
    assert "they share" in words or "they agree" in words


def test_diverged_runs_have_step_and_reason(page, result):
    words = page.inner_text("#diverged")
    first = int(result.dataset.diverged_at.where(result.dataset.status == "diverged").min())
    assert str(first) in words
    assert "overflow" in words


def test_constants_and_versions_are_told(page, result):
    assert "σ² = " in page.inner_text("#constants")
    assert f"numpy {np.__version__}" in page.inner_text("#settings")


def test_numbers_behind_the_plot_can_be_read(page, result):
    page.click("#numbers summary")
    page.wait_for_selector("#numbers tbody tr")
    assert page.locator("#numbers tbody tr").count() == len(result.algorithms) * len(result.lrs)


def test_methods_can_be_hidden(page):
    page.click("#headline li:first-child button")
    settle(page)
    assert page.locator("#loss .line.loss").count() == 3


def test_hostile_names_stay_text(opened, hostile, hostile_title, folder):
    pair = {hostile_title: hostile, "other": hostile}
    with opened(report.write_many(pair, folder / "hostile.html", title=hostile_title)) as page:
        assert page.evaluate("() => window.broken") is None
        assert hostile_title in page.inner_text("h1")
        assert "<script>window.broken = 1</script>" in page.inner_text("#methods")
        assert page.locator("img").count() == 0


def test_tabs_open_other_studies(opened, result, validated, folder):
    with opened(report.write_many({"one": result, "two": validated}, folder / "tabs.html")) as page:
        page.click("[role=tab]:nth-child(2)")
        page.wait_for_function("() => document.querySelector('#settings').textContent.includes('logistic')")
        assert page.get_attribute("[role=tab]:nth-child(2)", "aria-selected") == "true"
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("() => document.querySelector('#settings').textContent.includes('linear')")


def test_validation_loss_can_be_shown(opened, validated, folder):
    with opened(report.write(validated, folder / "validated.html")) as page:
        switch(page, data="valid")
        expected = validated.dataset.valid_loss.values[..., -1].mean(axis=-1)
        assert lines(page, "#loss .line.loss") == pytest.approx(expected, rel=1e-12)


def test_network_above_its_start_has_a_best_rate_and_no_average(opened, folder):
    study = Study("digits-mlp", methods=["sgd", "ngn"], lrs=[1e-9, 1e-8], seeds=[1], epochs=1, batch_size=256)
    result = study.run()
    assert result.optimal_loss > result.initial_loss
    with opened(report.write(result, folder / "network.html")) as page:
        assert "holds" in page.inner_text("#advice")
        average = page.locator("[name=kind][value=average]")
        assert average.is_disabled()
        assert "was not measured" in average.locator("..").get_attribute("title")


def test_study_in_which_all_diverged_says_so(opened, exploded, folder):
    with opened(report.from_store(folder / "exploded.db", folder / "exploded.html")) as page:
        assert "All 4 runs diverged" in page.inner_text("#state")


def test_unfinished_study_says_so(opened, interrupted, folder):
    with opened(report.write(interrupted, folder / "interrupted.html")) as page:
        assert "2 of 8 runs are missing" in page.inner_text("#state")
        assert "not computed" in page.inner_text("#constants")


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
def test_nothing_is_wider_than_the_screen(opened, hostile, result, folder, scheme, width):
    path = report.write_many({"study": result, "w" * 90: hostile}, folder / f"{scheme}-{width}.html", title="w" * 120)
    with opened(path, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        for tab in range(2):
            page.locator("[role=tab]").nth(tab).click()
            settle(page)
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        light = page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert light == (scheme == "light")


def test_button_switches_to_dark(page):
    page.click("#theme")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


def test_paper_is_white_without_controls(page):
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.is_visible("#controls")
    page.emulate_media(media="screen", color_scheme="light")
