"""What the self-contained pages of report and watch share: their parts, their colours, and what may act on them."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources

COLOURS = {
    "paper": ("#ffffff", "#15181d"),
    "card": ("#f5f7f9", "#1d2229"),
    "ink": ("#1b1f26", "#e9e7e2"),
    "soft": ("#59616d", "#a7aeb9"),
    "rule": ("#e2e5ea", "#2d343e"),
    "accent": ("#0b5cad", "#84bdff"),
    "on-accent": ("#ffffff", "#10151c"),
    "good": ("#2e7d32", "#7fce85"),
    "warn": ("#8f5400", "#f0b357"),
    "bad": ("#b3261e", "#ff9d94"),
}
"""What pages and verdicts are drawn in, on a light and on a dark page; methods have colours of their own."""


@cache
def part(package: str, name: str) -> str:
    """The text of a file of a package's page.

    >>> part("watch", "page.html").partition(" ")[0]
    '<!doctype'
    """
    return resources.files(f"surefoot.{package}").joinpath("page", name).read_text(encoding="utf-8")


@cache
def stylesheet(package: str) -> str:
    """The colours of all pages, then the package's own style."""
    colours = " ".join(f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in COLOURS.items())
    return f":root {{ {colours} }}\n{part('plots', 'page.css')}{part(package, 'page.css')}"


@cache
def policy(style: str, script: str, images: str = "'none'") -> str:
    """A content security policy: nothing but this style and this script may act, and nothing may be asked for."""
    allowed = f"style-src {_digest(style)}; script-src {_digest(script)}"
    return f"default-src 'none'; img-src {images}; base-uri 'none'; form-action 'none'; {allowed}"


def filled(package: str, script: str, *, images: str = "'none'", **parts: str) -> str:
    """The page of a package: its ``page.html`` with style, script and policy, and with the other parts at their places.

    It is filled in one pass: a title that looks like a place in the template stays a title.
    """
    style = stylesheet(package)
    contents = {**parts, "style": style, "script": script, "policy": policy(style, script, images)}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: contents[place[1]], part(package, "page.html"))


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
