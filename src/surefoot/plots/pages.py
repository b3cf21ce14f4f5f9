"""What the self-contained pages of report and watch share: their parts, their colours, and who may act on them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources


@cache
def part(room: str, name: str) -> str:
    """A file of a room's page.

    >>> part("plots", "page.css").partition(" ")[0]
    ':root'
    """
    return resources.files(f"surefoot.{room}").joinpath("page", name).read_text(encoding="utf-8")


@cache
def stylesheet(room: str) -> str:
    """The colours of all pages, then the room's own style."""
    return part("plots", "page.css") + part(room, "page.css")


@cache
def policy(style: str, script: str, images: str = "'none'") -> str:
    """A content security policy: nothing but this style and this script may act, and nothing may be asked for."""
    allowed = f"style-src {_digest(style)}; script-src {_digest(script)}"
    return f"default-src 'none'; img-src {images}; base-uri 'none'; form-action 'none'; {allowed}"


def filled(room: str, scripts: Sequence[str], *, images: str = "'none'", **parts: str) -> str:
    """The page of a room: its ``page.html`` with style, scripts and policy, and with the other parts at their places.

    It is filled in one pass: a title that looks like a place in the template stays a title.
    """
    style, script = stylesheet(room), "\n".join(part(room, name) for name in scripts)
    every = {**parts, "style": style, "script": script, "policy": policy(style, script, images)}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: every[place[1]], part(room, "page.html"))


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
