"""What pages for a browser share stands once."""

from __future__ import annotations

import re

import pytest

from surefoot.plots import pages


@pytest.mark.parametrize("room", ["report", "watch"])
def test_a_room_has_only_colours_of_its_own(room):
    shared, own = (set(re.findall(r"(--[\w-]+):", pages.part(name, "page.css"))) for name in ("plots", room))
    assert shared
    assert not shared & own
    used = set(re.findall(r"var\((--[\w-]+)\)", pages.stylesheet(room)))
    assert used - own <= shared | {"--base"}  # set for each method by the script


def test_only_the_very_style_and_script_may_act():
    one, other = (pages.policy("style", script) for script in ("a()", "b()"))
    assert one.startswith("default-src 'none'; img-src 'none'")
    assert one != other
