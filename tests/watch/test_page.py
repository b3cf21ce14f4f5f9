"""Curves, charts and the page: bounded, readable, and safe whatever the script is called."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import surefoot.optim as sfo
from surefoot.watch import Script, Settings
from surefoot.watch._chart import POINTS, chart, points
from surefoot.watch._files import Folder
from surefoot.watch._page import page
from surefoot.watch._session import Session
from surefoot.watch._watched import Watched


@given(st.lists(st.floats(width=32), min_size=1, max_size=300), st.integers(1, 12))
def test_a_line_has_few_points_and_keeps_extremes(part, times):
    values = np.array(times * part, float)
    finite = values[np.isfinite(values)]
    rows = points(values)
    assert len(rows) <= POINTS
    if len(finite):
        assert np.nanmin(rows[:, 1]) == finite.min()
        assert np.nanmax(rows[:, 3]) == finite.max()
        known = rows[~np.isnan(rows[:, 2])]
        assert (known[:, 1] <= known[:, 2] + 1e-6 * abs(known[:, 2])).all()


@given(
    st.lists(st.floats(), min_size=1, max_size=40),
    st.one_of(st.none(), st.integers(1, 10**6)),
    st.one_of(st.none(), st.tuples(st.floats(1e-6, 1.0), st.floats(2.0, 1e3))),
)
def test_every_chart_is_sound(values, horizon, suggested):
    figure = chart("loss <of> it", np.array(8 * values, float), horizon, suggested)
    ElementTree.fromstring(figure)  # well-formed
    for attribute in re.findall(r' (?:d|[xy][12]?|width|height)="([^"]*)"', figure):
        assert np.isfinite([float(word) for word in re.split("[ ,MLVh]+", attribute) if word]).all()


def test_the_chart_of_the_rate_shows_the_suggested_range():
    figure = chart("learning rate", np.full(9, 1e-4), None, (1e-3, 1e-2))
    (box,) = re.findall(r'<rect class="suggested" [^>]*y="([\d.]+)" height="([\d.]+)"', figure)
    (line,) = re.findall(r'<path class="line" d="M[\d.]+,([\d.]+)h0L', figure)
    assert float(box[0]) + float(box[1]) < float(line)  # it lies above the rate
    assert "suggested 0.001 to 0.01" in figure


@pytest.fixture
def make_session(tmp_path, monkeypatch):
    """A session without exit handlers, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    monkeypatch.setattr("os.register_at_fork", lambda **_: None)
    return lambda name, *arguments: Session(Script(name, arguments), Settings(quiet=True))


@pytest.fixture
def session(make_session):
    """A run of two optimizers, one of which has gone astray."""
    session = make_session("<b>train</b>.py", "{{x}}", "</title>")
    session.has_torch = True
    for lr in (0.1, 1e30):
        x = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([x], lr=lr)
        watched = Watched(optimizer, 400)
        watched.begin(optimizer)
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


def test_the_page_in_a_browser(session, browser):
    session.draw()
    with browser.new_context(offline=True, viewport={"width": 390, "height": 800}) as context:
        tab = context.new_page()
        complaints = []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.clock.install()
        tab.goto(session.folder.page.as_uri())
        figures, width, age, verdict, state = tab.evaluate(  # in one go: the page loads itself again
            """() => [document.querySelectorAll("svg").length, document.documentElement.scrollWidth,
                ...["#age", "section:nth-of-type(2) .verdict", "#state"].map((x) => document.querySelector(x).innerText)
            ]"""
        )
        assert (figures, width <= 390, state) == (6, True, "Running")
        assert "ago" in age
        assert verdict.startswith("Too large")
        session.status = "ended"
        session.draw()
        tab.clock.fast_forward(5000)  # the page loads itself again, and then no more
        tab.get_by_text("Ended", exact=True).wait_for(timeout=120_000)
        assert tab.evaluate("document.documentElement.dataset.state") == "over"
        assert complaints == []


def test_a_lost_run_goes_on_in_silence_and_its_losses_are_data(session, capsys):
    assert "Too large" in page(session)
    *_, last = session.folder.trace.read_text().splitlines()
    assert last.split(",")[1:3] == ["59", "inf"]
    session.finish()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("has_torch", "built", "word"),
    [
        (False, [], "train.py has not imported torch: there was nothing to watch"),
        (True, [], "train.py has built no torch optimizer in this process: there was nothing to watch"),
        (True, ["Adam"], "train.py has built Adam, and made no step with it: there was nothing to judge"),
    ],
)
def test_nothing_to_judge_gets_a_word(make_session, has_torch, built, word):
    session = make_session("train.py")
    session.has_torch, session.built = has_torch, built
    assert session.summary() == [word]


def test_runs_never_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = Folder("train", None), Folder("train", None)
    first.append("a,0,1,1,1\n")
    second.append("b,0,1,1,1\n")
    assert (first.path.name, second.path.name) == ("train-1", "train-2")
    with pytest.raises(FileExistsError, match="without the trace of another run"):
        Folder("train", first.path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="must be a folder"):
        Folder("train", tmp_path / "file")
    assert not list(Folder("train", tmp_path / "new" / "folder").path.iterdir())
    (tmp_path / "new" / "surefoot-watch").touch()
    monkeypatch.chdir(tmp_path / "new")
    with pytest.raises(OSError, match=r"no folder '.*train-1' can be made .*: give another by --out"):
        Folder("train", None).take()


@pytest.mark.parametrize("make", [sfo.NGN, torch.optim.SGD])
def test_an_optimizer_that_is_gone_leaves_its_rows_and_its_verdict(make):
    x = torch.nn.Parameter(torch.full((8, 8), 3.0))
    optimizer = make([x], lr=0.5)
    watched = Watched(optimizer, 60)
    watched.begin(optimizer)
    for _ in range(60):
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()
    watched.ask(None)
    before = watched.verdict
    del optimizer
    assert watched.conclude().count("\n") == 60
    assert watched.trouble is None
    assert before is not None
    assert watched.verdict == before


def test_a_run_of_unknown_length_is_judged_at_50_steps_and_at_every_doubling():
    torch.manual_seed(0)
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([x], lr=0.05)
    watched = Watched(optimizer, None)
    watched.begin(optimizer)
    judged = {}
    for step in range(1, 421):
        optimizer.zero_grad()
        (x - torch.randn(3)).square().sum().backward()
        optimizer.step()
        if step >= watched.next_ask:
            watched.ask(None)
        for length in re.findall(r"ten times as long \((\d+) steps\)", str(watched.verdict)):
            judged.setdefault(int(length), step)
    assert judged == {500: 50, 1000: 100, 2000: 200, 4000: 400}
