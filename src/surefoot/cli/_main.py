"""The commands. Each imports what it needs when it runs, so that ``surefoot --help`` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from surefoot._version import __version__
from surefoot.cli import _data
from surefoot.cli._errors import reported

_options = {"debug": False}


class _Group(TyperGroup):
    """Commands whose errors are reported before click sees them: it would turn Ctrl-C into a bare "Aborted"."""

    def invoke(self, ctx: Any) -> Any:
        with reported(lambda: _options["debug"]):
            return super().invoke(ctx)


app = typer.Typer(
    name="surefoot",
    cls=_Group,
    help="Makes the learning rate of stochastic training visible, predictable and safe.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed on the way, 2 wrong usage, 130 interrupted.",
)
app.add_typer(_data.app, name="data")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"surefoot {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    _options["debug"] = debug


@app.command()
def reproduce(
    figures: Annotated[
        list[str] | None, typer.Argument(metavar="FIGURE", help="Names of figures; none means all.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures and tables.")] = Path("out"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no table.")] = False,
) -> None:
    """Compute the figures again and write each as PNG, PDF and CSV.

    [bold]Examples[/]

      surefoot reproduce
      surefoot reproduce toy-function universal-curves --out figures
    """
    from surefoot.cli._reproduce import reproduce as run

    run(figures or [], out, quiet)


@app.command()
def claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of claims; none means all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Folder that keeps the studies.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Check the paper's claims on real runs: the rule, the numbers, the verdict.

    A claim that fails is shown as failing; the exit code is 0 all the same, because the check itself worked.

    [bold]Examples[/]

      surefoot claims
      surefoot claims v3-lower-bound vowel-reason
      surefoot claims --json
    """
    from surefoot.cli._claims import claims as run

    run(ids or None, as_json, store, quiet)


@app.command()
def study(
    spec: Annotated[Path, typer.Argument(help="A TOML file that describes the study.")],
    store: Annotated[
        Path | None, typer.Option("--store", help="File that keeps the runs; by default beside the spec, as .db.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Run the sweep of a spec (only what its store does not hold yet) and print which rates hold.

    [bold]Examples[/]

      surefoot study SPEC.toml
      surefoot study SPEC.toml --store results.db
    """
    from surefoot.cli._study import study as run

    run(spec, store, quiet, as_json)


@app.command()
def tune(
    spec: Annotated[Path, typer.Argument(help="A TOML file, the same as for `surefoot study`.")],
    objective: Annotated[str, typer.Option("--objective", help="What is minimised: loss or bound.")] = "loss",
    store: Annotated[
        Path | None, typer.Option("--store", help="File that keeps the runs; by default beside the spec, as .db.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Find the best method and rate of a spec for the price of a few runs instead of the whole grid.

    With --objective bound the answer comes with a certificate where the theory gives one.

    [bold]Examples[/]

      surefoot tune SPEC.toml
      surefoot tune SPEC.toml --objective bound
    """
    from surefoot.cli._tune import tune as run

    run(spec, objective, store, quiet, as_json)


@app.command()
def report(
    store: Annotated[Path, typer.Argument(help="The file of a study, as `surefoot study` writes it.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="What the page is called.")] = None,
) -> None:
    """Write one self-contained, interactive HTML page that answers which rates hold.

    [bold]Examples[/]

      surefoot report spec.db
      surefoot report spec.db -o report.html --title "My network"
    """
    from surefoot.report import from_store

    typer.echo(f"report: {from_store(store, out, title=title)}")


@app.command()
def pep(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of statements; none means all.")
    ] = None,
    cases: Annotated[bool, typer.Option("--cases", help="One row a case instead of one a statement.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Verify lemmas and bounds in the worst case, by semidefinite programs (needs [bold]surefoot\\[pep][/]).

    The exit code is 1 if a case is not solved or contradicts its statement.

    [bold]Examples[/]

      surefoot pep
      surefoot pep one-step --cases
    """
    from surefoot.cli._pep import pep as run

    run(names or None, cases, as_json, quiet)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what is installed, which extras and data sets are there, and how to get what is missing.

    [bold]Example[/]

      surefoot doctor
    """
    from surefoot.cli._doctor import doctor as run

    run(as_json)


def main() -> None:
    """Entry point of the command."""
    app()
