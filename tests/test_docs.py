"""The code of README and docs runs as it stands and prints what is shown; links lead somewhere; the site builds."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import NamedTuple

import matplotlib
import pytest
from typer.testing import CliRunner

from surefoot.cli import app as command

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]

SLOW = ("dask.md", "forecast.md", "own-network.md", "pep.md", "quick-start.md", "tune.md", "when-a-run-diverges.md")
SLOW += ("your-script.md",)
"""Pages whose code takes more than a few seconds."""

EXACT = ("extending.md", "theory.md")
"""Pages whose shown numbers do not depend on the machine: short float64 computations."""

NOT_HERE = {"dist.init_process_group": "needs several processes: tests/optim/test_sharded.py starts them"}
"""Text in a block that is not run here, and why."""

EXTRAS = {
    "import jax": "jax",
    "import pep": "PEPit",
    "dask": "distributed",
    "from transformers": "transformers",
    "import Accelerator": "accelerate",
    "import lightning": "lightning",
}
"""Text in code that needs an extra, and a package of it."""

_FOREIGN = ("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
WARNINGS = {"your-framework.md": _FOREIGN, "your-script.md": _FOREIGN}
"""Warnings of other packages on a page."""


class Block(NamedTuple):
    """A block of code, with what the page says that it prints."""

    language: str
    code: str
    shown: str


def blocks(page: Path) -> list[Block]:
    """The blocks that can be run, or saved; each may be followed by one of text, which is its output."""
    pattern = r"^```(python|bash|toml)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?"
    return [Block(*found) for found in re.findall(pattern, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def without_numbers(text: str) -> list[str]:
    """The words: the numbers of a training depend on the machine in their last digits, and a table on its width."""
    return re.sub(r"[-\d.e]*\d[\d.%]*", "#", re.sub("[─-╿]", " ", text)).split()


def run_shell(code: str) -> str:
    """The output of the lines that call the command."""
    printed = ""
    for line in code.splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["surefoot", "watch"]:  # it takes a process of its own
            arguments = [sys.executable, "-m", *words]
            environment = {**os.environ, "COLUMNS": "100"}
            run = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=300)
            assert run.returncode == 0, f"{line}\n{run.stderr}"
            printed += run.stdout
        elif words[:1] == ["surefoot"]:
            found = CliRunner().invoke(command, words[1:], env={"COLUMNS": "100"})
            assert found.exit_code == 0, f"{line}\n{found.stderr}"
            printed += found.stdout
    return printed


def run_python(code: str, names: dict[str, object], where: str) -> str:
    """What a block prints; one of ``>>>`` is compared with itself."""
    if code.startswith(">>>"):
        runner = doctest.DocTestRunner()
        runner.run(doctest.DocTestParser().get_doctest(code, names, where, None, 0), clear_globs=False)
        assert runner.failures == 0
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), names)
    return printed.getvalue()


PAGES_WITH_CODE = [
    pytest.param(
        page,
        marks=[
            *([pytest.mark.slow] if page.name in SLOW else []),
            *map(pytest.mark.filterwarnings, WARNINGS.get(page.name, ())),
        ],
        id=name_of(page),
    )
    for page in PAGES
    if blocks(page)
]


@pytest.mark.parametrize("page", PAGES_WITH_CODE)
def test_code_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    for part, package in EXTRAS.items():
        if any(part in block.code for block in blocks(page)):
            pytest.importorskip(package)
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page), 1):
        if any(part in block.code for part in NOT_HERE):
            continue
        where = f"{page.name}, block {number}"
        if block.language == "toml":
            Path("SPEC.toml").write_text(block.code, encoding="utf-8")
            continue
        printed = run_shell(block.code) if block.language == "bash" else run_python(block.code, names, where)
        if block.shown:
            assert without_numbers(printed) == without_numbers(block.shown), where
            assert page.name not in EXACT or printed == block.shown, where


def anchor(heading: str) -> str:
    """What the site calls a heading."""
    plain = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading)
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def headings(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {anchor(line) for line in re.findall(r"^#+ (.*)", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES + OTHERS, ids=name_of)
def test_links_inside_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        file, _, part = target.partition("#")
        if ":" in file:
            continue
        found = page.parent / file if file else page
        assert found.exists(), target
        if part:
            assert part in headings(found), target


RECORDED = [
    (page, command)
    for page in PAGES
    for command in re.findall(r"<!-- (python benchmarks/\S+\.py .*?) -->", page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("page", "command"), RECORDED, ids=lambda value: getattr(value, "name", value))
def test_tables_are_printed_from_recorded_results(page, command):
    """A table below a comment with a command has no row that the command does not print."""
    _, _, below = page.read_text(encoding="utf-8").partition(f"<!-- {command} -->\n\n")
    table = below.partition("\n\n")[0].splitlines()
    rows = [line.strip() for line in table if line.startswith("|")]
    assert len(rows) > 2, "no table follows the comment"
    run = subprocess.run(
        [sys.executable, *shlex.split(command)[1:]], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert [row for row in rows if row not in run.stdout] == []


def test_page_on_the_command_names_all_of_them():
    text = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    for registered in command.registered_commands:
        assert f"`surefoot {registered.callback.__name__}" in text


def test_docstrings_become_markdown():
    pytest.importorskip("griffe")
    from scripts.docstring_markdown import markdown

    docstring = (
        "A :class:`~surefoot.Study`.\n\n====  ====\na     b\n====  ====\n1     2\n====  ====\n\n"
        ".. code-block:: toml\n\n    seeds = 3\n\n>>> 1 + 1\n2\n\nThe end."
    )
    assert markdown(docstring) == (
        "A `Study`.\n\n```text\n====  ====\na     b\n====  ====\n1     2\n====  ====\n```\n\n"
        "```toml\nseeds = 3\n```\n```pycon\n>>> 1 + 1\n2\n```\n\nThe end."
    )


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml")
    import markdown
    from scripts.markdown_math import MathExtension

    made = markdown.markdown("A $x_1$ for 5 $ and 6 $.\n\n$$\\frac{1}{2}$$\n\n`$y$`", extensions=[MathExtension()])
    assert made.count("<math") == 2
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in made
    assert '<div class="formula"><math' in made
    assert "5 $ and 6 $" in made
    assert "<code>$y$</code>" in made
