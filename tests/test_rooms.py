"""The order of the rooms: an arrow goes down the list only, and private names stay where they are."""

import ast
from pathlib import Path

import surefoot

ROOT = Path(surefoot.__file__).parent
ORDER = (
    "theory", "data", "problems", "optim", "rules", "monitor", "runs", "study", "search", "forecast", "pep", "figures",
    "claims", "report", "integrations", "testing", "cli",
)  # fmt: skip

UP = {("study", "report")}
"""``result.report`` is a method of a study's result."""

PRIVATE = {
    ("problems", "theory._names"),
    ("runs", "theory._names"),
    ("study", "theory._names"),
    ("monitor", "theory._names"),
    ("forecast", "theory._names"),
    ("pep", "theory._names"),
    ("figures", "theory._names"),
    ("claims", "theory._names"),
    ("cli", "theory._names"),
    ("runs", "theory._arrays"),
    ("runs", "problems._inputs"),
    ("runs", "problems._problem"),
    ("runs", "problems._starts"),
    ("runs", "problems._threads"),
    ("study", "problems._threads"),
    ("runs", "optim._rows"),
    ("runs", "optim._scalars"),
    ("monitor", "optim._arithmetic"),
    ("monitor", "optim._scalars"),
    ("figures", "study._plot"),
    ("figures", "study._result"),
    ("figures", "study._sensitivity"),
    ("claims", "figures._curves"),
    ("cli", "figures._curves"),
    ("report", "figures._style"),
    ("report", "study._export"),
    ("report", "study._plot"),
}
"""Private modules that other rooms still use. This list gets shorter, never longer."""


def imports():
    """(room, imported module, its names) of every import of the package by itself."""
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "surefoot":
                names = [alias.name for alias in node.names]
                if node.module == "surefoot":
                    yield from ((room, name, ()) for name in names)
                else:
                    yield room, node.module.removeprefix("surefoot."), names
            elif isinstance(node, ast.Import):
                found = [alias.name for alias in node.names if alias.name.startswith("surefoot.")]
                yield from ((room, name.removeprefix("surefoot."), ()) for name in found)


def test_every_room_has_its_place():
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {room for room in rooms if not room.startswith("_")} == set(ORDER)


def test_arrows_go_down():
    found = set()
    for room, module, _ in imports():
        other = module.split(".")[0]
        if room in ORDER and other in ORDER and ORDER.index(other) > ORDER.index(room):
            found.add((room, other))
    assert found <= UP


def test_private_names_stay_in_their_rooms():
    found = set()
    for room, module, names in imports():
        other, *rest = module.split(".")
        if room in ORDER and other in ORDER and other != room:
            if any(part.startswith("_") for part in rest):
                found.add((room, module))
            found |= {(room, f"{module}.{name}") for name in names if name.startswith("_")}
    assert found <= PRIVATE


def test_only_runs_asks_what_kind_of_problem_it_is():
    for room in ("study", "search"):
        for path in (ROOT / room).glob("*.py"):
            assert "NetworkProblem)" not in path.read_text(encoding="utf-8"), path


def test_rules_need_no_torch():
    for path in (ROOT / "rules").glob("*.py"):
        assert "import torch" not in path.read_text(encoding="utf-8"), path
