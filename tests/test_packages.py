"""Private names stay in their packages, and packages import only those below them."""

import ast
from pathlib import Path

import surefoot

ROOT = Path(surefoot.__file__).parent
ORDER = (
    "_base", "_identity", "theory", "data", "plots", "problems", "optim", "rules", "monitor", "runs", "study", "search",
    "forecasting", "pep", "report", "paper", "integrations", "watch", "testing", "cli",
)  # fmt: skip
"""From the lowest to the highest, as in docs/architecture.md."""
UPWARD = {("study", "report")}
"""``Result.report()`` imports the report when it is called."""


def imports():
    """(package, imported module, its names) of every import of the package by itself."""
    for path in sorted(ROOT.rglob("*.py")):
        package = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "surefoot":
                names = [alias.name for alias in node.names]
                if node.module == "surefoot":
                    yield from ((package, name, ()) for name in names)
                else:
                    yield package, node.module.removeprefix("surefoot."), names
            elif isinstance(node, ast.Import):
                found = [alias.name for alias in node.names if alias.name.startswith("surefoot.")]
                yield from ((package, name.removeprefix("surefoot."), ()) for name in found)


def test_private_names_stay_in_their_packages():
    found = set()
    for package, module, names in imports():
        other, *rest = module.split(".")
        if package in ORDER and other in ORDER and other != package and not other.startswith("_"):
            if any(part.startswith("_") for part in rest):
                found.add((package, module))
            found |= {(package, f"{module}.{name}") for name in names if name.startswith("_")}
    assert not found


def test_only_runs_asks_what_kind_of_problem_it_is():
    for package in ("study", "search"):
        for path in (ROOT / package).glob("*.py"):
            assert "NetworkProblem)" not in path.read_text(encoding="utf-8"), path


def test_rules_need_no_torch():
    for path in [ROOT / "rules.py"]:
        assert "import torch" not in path.read_text(encoding="utf-8"), path


def test_packages_import_only_those_below_them():
    found = set()
    for package, module, _ in imports():
        other = module.split(".")[0]
        if package in ORDER and other in ORDER and ORDER.index(other) > ORDER.index(package):
            found.add((package, other))
    assert found <= UPWARD
