"""What pages for a browser share stands once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surefoot.plots import pages


@pytest.mark.parametrize("package", ["report", "watch"])
def test_a_package_has_no_colours_of_its_own(package):
    own = pages.part(package, "page.css")
    assert not re.search(r"#[0-9a-f]{3,6}\b", own)
    used = set(re.findall(r"var\(--([\w-]+)\)", pages.stylesheet(package)))
    assert used - set(re.findall(r"--([\w-]+):", own)) <= {*pages.COLOURS, "base"}  # set for each method by the script


def test_there_is_one_palette():
    """Colours are written down where methods, and where pages have them; what is neither is a picture of its own."""
    root = Path(pages.__file__).parents[1]
    files = [path for path in root.rglob("*") if path.suffix in (".py", ".js", ".css", ".html")]
    found = {path.relative_to(root).as_posix() for path in files if re.search(r"#[0-9a-fA-F]{6}\b", path.read_text())}
    assert found == {"plots/methods.py", "plots/pages.py"}


def test_only_the_very_style_and_script_may_act():
    one, other = (pages.policy("style", script) for script in ("a()", "b()"))
    assert one.startswith("default-src 'none'; img-src 'none'")
    assert one != other
