"""docs/architecture.md is true: its rooms are the folders, arrows go down only, and its walks lead to real code."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "surefoot"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURE, ARROWS = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
ROOMS = re.findall(r"^ (?:[├│▼─ ]*)([a-z]+) {2,}\S|^ {2}├─ ([a-z]+) ", PICTURE, re.MULTILINE)
ORDER = [first or second for first, second in ROOMS]
"""From the top to the bottom."""

UPWARD = {("study", "report"): "_result.py"}
"""What the page says points up, and the file that does it when it is asked to."""

WALKS = {
    title: re.findall(r"^\d+\. `([^`]+)`: `([^`]+)`", body, re.MULTILINE)
    for title, body in re.findall(r"^## (A .*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}


def defined(path: Path) -> set[str]:
    """Functions, classes and methods of a file, by their dotted names."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def rooms_used(path: Path) -> set[str]:
    """The rooms that a file imports; for types alone does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "surefoot"
            modules = [f"surefoot.{name.name}" for name in node.names] if whole else [node.module]
        elif isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        found |= {module.split(".")[1] for module in modules if module.startswith("surefoot.")}
    return {room for room in found if room in ORDER}


def test_the_rooms_of_the_picture_are_those_of_the_package():
    folders = {path.parent.name for path in SOURCE.glob("[a-z]*/__init__.py")}
    assert set(ORDER) == folders, "docs/architecture.md must show every room, and only rooms that exist"
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("room", ORDER)
def test_a_room_uses_rooms_below_it_only(room):
    below = set(ORDER[ORDER.index(room) :])
    for path in (SOURCE / room).rglob("*.py"):
        for used in rooms_used(path) - below:
            allowed = UPWARD.get((room, used))
            assert path.name == allowed, f"{path.relative_to(SOURCE)} uses {used}, which is above {room} in the picture"


def test_the_arrows_in_words_are_imports():
    for line in ARROWS.splitlines():
        chain = [part.split(",") for part in re.split(r" {2,}", line.strip())[0].split("→")]
        for users, used in itertools.pairwise(chain):
            for room in (name.strip() for name in users[:1]):
                imports = set().union(*(rooms_used(path) for path in (SOURCE / room).rglob("*.py")))
                missing = {name.strip() for name in used} - imports
                assert not missing, f"the page says {room} → {', '.join(missing)}, but it does not import it"


def test_there_are_three_walks_of_at_most_twelve_stops():
    assert len(WALKS) == 3
    assert all(6 <= len(stops) <= 12 for stops in WALKS.values()), {name: len(stops) for name, stops in WALKS.items()}


@pytest.mark.parametrize("walk", WALKS)
def test_every_stop_of_a_walk_is_there(walk):
    gone = []
    for number, (file, name) in enumerate(WALKS[walk], 1):
        path = SOURCE / file
        if not path.exists():
            gone.append(f"stop {number}: there is no file {file} any more")
        elif name not in defined(path):
            near = sorted(each for each in defined(path) if each.split(".")[-1] == name.split(".")[-1])
            gone.append(f"stop {number}: {file} has no {name}" + (f"; it has {', '.join(near)}" if near else ""))
    assert not gone, f"docs/architecture.md, {walk}: " + "; ".join(gone)
