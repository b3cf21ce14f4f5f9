"""The documentation as a reader sees it: built without a warning, and opened in a real browser from this machine."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("docs", "examples", "scripts", "src", "mkdocs.yml")
NAMES = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index")
SCREENS = [(1280, 900, "light"), (1280, 900, "dark"), (390, 844, "light"), (390, 844, "dark")]

pytestmark = pytest.mark.slow


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(arguments, capture_output=True, text=True, cwd=folder, timeout=600)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of what the site is made of, so that nothing of it lands in the project."""
    pytest.importorskip("zensical")
    pytest.importorskip("latex2mathml")
    folder = tmp_path_factory.mktemp("site")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def site(project):
    """The address of the built site."""
    found = build(project)
    assert found.returncode == 0, found.stdout + found.stderr

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=project / "site"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join(60)
    server.server_close()


def test_build_stops_at_a_link_that_leads_nowhere(project, site):
    page = project / "docs" / "command.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(text + "\n[nowhere](not-there.md)\n", encoding="utf-8")
    try:
        assert build(project).returncode != 0
    finally:
        page.write_text(text, encoding="utf-8")
        assert build(project).returncode == 0


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_pages_fit_their_screen_and_ask_nobody_else(site, browser, width, height, scheme):
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    try:
        page = context.new_page()
        complaints, asked = [], []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        for name in ["", *(f"{name}/" for name in NAMES), "api/study/"]:
            page.goto(f"{site}/{name}")
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width, name
            # What scrolls is the frame of a table, not the page.
            frames = "[...document.querySelectorAll('.md-typeset__scrollwrap')]"
            assert page.evaluate(f"() => {frames}.every((f) => f.getBoundingClientRect().right <= innerWidth)"), name
        assert complaints == []
        assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []
    finally:
        context.close()


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_mathematics_is_drawn_and_figures_are_dark_in_the_dark(site, browser, width, height, scheme):
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    try:
        page = context.new_page()
        page.goto(f"{site}/theory/")
        sizes = page.evaluate(
            "() => [...document.querySelectorAll('math')].map((m) => m.getBoundingClientRect().height)"
        )
        assert len(sizes) > 20
        assert min(sizes) > 8
        assert "$" not in re.sub(r"(?s)<code.*?</code>", "", page.inner_html("article"))
        shown = page.evaluate("() => getComputedStyle(document.querySelector('article p > img')).filter")
        assert ("invert" in shown) == (scheme == "dark")
    finally:
        context.close()


def test_navigation_is_in_the_readers_order(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(site)
    text = page.inner_text(".md-nav--primary")
    places = [text.index(title) for title in ("Train", "Tune", "Study", "The paper", "Extend")]
    assert places == sorted(places)
    page.close()


def test_gallery_shows_the_scripts(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{site}/gallery/")
    assert page.locator("details").count() == len(list((ROOT / "examples").glob("*.py")))
    assert "import surefoot" in page.locator("details").first.text_content()
    page.close()
