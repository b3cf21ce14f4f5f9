"""Curves, charts and the page: bounded, readable, and safe whatever the script is called."""

from __future__ import annotations

import os
import re
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.watch import Script, Settings
from surefoot.watch._chart import chart
from surefoot.watch._curve import LIMIT, Curve
from surefoot.watch._files import Folder
from surefoot.watch._page import page
from surefoot.watch._session import Session
from surefoot.watch._watched import Watched

CHROMIUM = os.environ.get("SUREFOOT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@given(st.lists(st.lists(st.floats(width=32), max_size=300), max_size=12))
def test_a_curve_is_bounded_and_keeps_extremes(parts):
    curve = Curve()
    for part in parts:
        curve.add(np.array(part, float))
    values = np.array([value for part in parts for value in part], float)
    finite = values[np.isfinite(values)]
    rows = curve.drawn()
    assert len(rows) <= LIMIT
    assert curve.count == len(values)
    assert curve.bad == np.isinf(values).sum()
    if len(finite):
        assert np.nanmin(rows[:, 1]) == finite.min()
        assert np.nanmax(rows[:, 3]) == finite.max()
        known = rows[~np.isnan(rows[:, 2])]
        assert (known[:, 1] <= known[:, 2] + 1e-6 * abs(known[:, 2])).all()


@given(st.lists(st.floats(), min_size=1, max_size=40), st.one_of(st.none(), st.integers(1, 10**6)))
def test_every_chart_is_sound(values, horizon):
    curve = Curve()
    curve.add(np.array(values, float))
    figure = chart("loss <of> it", curve, horizon)
    ElementTree.fromstring(figure)  # well-formed
    for attribute in re.findall(r'(?:points|[xy][12]?|c[xy])="([^"]*)"', figure):
        numbers = [float(word) for word in re.split("[ ,]", attribute)]
        assert np.isfinite(numbers).all()


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A run of two optimizers, one of which has gone astray; it takes its exit handlers with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    monkeypatch.setattr("os.register_at_fork", lambda **_: None)
    (tmp_path / "train.py").touch()
    session = Session(Script("<b>train</b>.py", ("{{x}}", "</title>")), Settings(quiet=True))
    session.has_torch = True
    for lr in (0.1, 1e30):
        x = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([x], lr=lr)
        watched = Watched(optimizer, 400)
        watched.begin(optimizer, None)
        watched.name = "<script>alert(1)</script>"
        session.announce(watched)
        for _ in range(60):
            optimizer.zero_grad()
            x.square().sum().backward()
            optimizer.step()
        session.folder.append(watched.rows())
        watched.ask(None)
    return session


def test_the_page_escapes_what_it_shows(session):
    text = page(session)
    assert "<b>train" not in text
    assert "alert(1)</script>" not in text.replace("&lt;", "")
    assert "{{x}}" in text
    assert text.count("<script>") == 1
    assert "http://" not in text
    assert "https://" not in text


def test_the_page_in_a_browser(session):
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    session.draw()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_context(offline=True, viewport={"width": 390, "height": 800}).new_page()
        complaints = []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(session.folder.page.as_uri())
        assert tab.locator("svg").count() == 6
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert "ago" in tab.locator("#age").inner_text()
        assert tab.locator(".verdict").nth(1).inner_text().startswith("Too large")
        assert tab.locator("#state").inner_text() == "Running"
        session.status = "ended"
        session.draw()  # the page loads itself again, and then no more
        tab.get_by_text("Ended", exact=True).wait_for(timeout=60_000)
        assert tab.evaluate("document.documentElement.dataset.state") == "over"
        assert complaints == []
        browser.close()


def test_runs_never_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = Folder("train", None), Folder("train", None)
    first.append(["a,0,1,1,1"])
    second.append(["b,0,1,1,1"])
    assert (first.path.name, second.path.name) == ("train-1", "train-2")
    with pytest.raises(FileExistsError, match="without the trace of another run"):
        Folder("train", first.path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="must be a folder"):
        Folder("train", tmp_path / "file")
    assert not list(Folder("train", tmp_path / "new" / "folder").path.iterdir())
