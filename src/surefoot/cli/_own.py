"""Commands for one's own training: study, tune, watch, report."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from surefoot._base.text import visible
from surefoot.cli._app import (
    OWN,
    Address,
    Cpus,
    Engine,
    Gpus,
    Handover,
    Json,
    Quiet,
    Silent,
    Store,
    app,
    print_json,
    print_table,
    resumable,
    say,
)  # fmt: skip

if TYPE_CHECKING:
    from surefoot.study import Study


@app.command(rich_help_panel=OWN)
def study(
    spec: Annotated[Path, Argument(metavar="SPEC.toml", help="What to run.")],
    store: Store = None,
    engine: Engine = "auto",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the sweep of a spec and print which rates hold.

    Only what its store does not hold yet is computed: after Ctrl-C, or a change of the spec, the same line goes on.

    [bold]A spec[/] (docs/command.md explains every key)

      problem = "logistic-regression"     # or "module:factory" of yours
      data = "dna"
      methods = \\["sgd", "sps", "ngn"]
      lrs = { from = 1e-2, to = 1e2, count = 9 }
      seeds = 3
      epochs = 10
      batch_size = 16

    [bold]Examples[/]

      surefoot study SPEC.toml
      surefoot study SPEC.toml --store results.db
      surefoot study SPEC.toml --engine dask --address tcp://10.0.0.1:8786
    """
    from surefoot.report import prepare
    from surefoot.study import table, windows

    sweep, path = _read(spec), store or spec.with_suffix(".db")
    with resumable(f"finished runs are kept in {path}"):
        result = sweep.run(
            path, progress=not quiet and not as_json, engine=engine, address=address, cpus=cpus, gpus=gpus
        )
        prepare(result)  # so that a report can be written from the store alone
    rows = windows(result)
    if as_json:
        print_json({"store": path, "methods": [asdict(row) for row in rows]})
        return
    head, *lines = table(result, rows)
    title = f"{result.settings['problem']['name']}: rates with f(x_T) ≤ best + 0.1 (f(x_1) − f⋆)"
    print_table(head, lines, title)
    say(f"All traces are in {path}; `surefoot report {path}` makes a page of them.")


@app.command(rich_help_panel=OWN)
def tune(
    spec: Annotated[Path, Argument(metavar="SPEC.toml", help="The same as for `surefoot study`.")],
    store: Store = None,
    processes: Annotated[
        int | None,
        Option("--processes", min=1, help="Worker processes; by default one per core where it pays. 1: only this."),
    ] = None,
    engine: Engine = "auto",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find the best method and rate of a spec for the price of a few runs instead of the whole grid.

    [bold]Examples[/]

      surefoot tune SPEC.toml
      surefoot tune SPEC.toml --engine dask --address tcp://10.0.0.1:8786
    """
    from surefoot.search import tune as search

    path = store or spec.with_suffix(".db")
    with resumable(f"what has run is kept in {path} and {path}.states"):
        result = search(
            _read(spec),
            store=path,
            processes=processes,
            engine=engine,
            address=address,
            cpus=cpus,
            gpus=gpus,
            progress=not quiet and not as_json,
        )
    if as_json:
        kept = ("method", "lr", "loss", "cost", "confidence", "warnings")
        answer = {name: getattr(result, name) for name in kept}
        print_json({**answer, "table": [asdict(row) for row in result.table]})
    else:
        say(result)


@app.command(
    rich_help_panel=OWN,
    context_settings={"allow_interspersed_args": False},  # what follows the script is the script's
)
def watch(
    script: Annotated[str, Argument(metavar="SCRIPT.py", help="The script, as it is; with -m a module.")],
    arguments: Annotated[list[str] | None, Argument(metavar="ARGS", help="Arguments of the script.")] = None,
    module: Annotated[bool, Option("-m", help="Run a module, as `python -m` does.")] = False,
    horizon: Annotated[
        int | None, Option("--horizon", help="Steps of the whole run; by default what a trainer or scheduler says.")
    ] = None,
    stop: Annotated[bool, Option("--stop", help="End a hopeless run, with exit code 86.")] = False,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="Folder for page.html and trace.csv; by default surefoot-watch/SCRIPT-1, …"),
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No words; page and trace only.")] = False,
) -> None:
    """Run a training script unchanged, and say of every torch optimizer in it whether its rate is right.

    Plain loops, Lightning, Transformers and Accelerate. Output and exit code of the script stay its own; words go to
    stderr, numbers to a trace, and all of it to a page that reloads itself. Options of watch stand before the script.

    [bold]Examples[/]

      surefoot watch train.py
      surefoot watch --stop --horizon 20000 train.py --lr 0.1
      surefoot watch -m package.train --epochs 3
    """
    from surefoot.watch import Script, Settings, prepare

    raise Handover(prepare(Script(script, tuple(arguments or ()), module), Settings(horizon, stop, out, quiet)))


@app.command(rich_help_panel=OWN)
def report(
    store: Annotated[Path, Argument(metavar="STUDY.db", help="The runs, as `surefoot study` keeps them.")],
    out: Annotated[Path, Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, Option("--title", help="What the page is called.")] = None,
    quiet: Silent = False,
) -> None:
    """Write one self-contained, interactive HTML page that answers which rates hold.

    It opens in any browser, asks the network for nothing, and redraws the bound when you move D.

    [bold]Examples[/]

      surefoot report SPEC.db
      surefoot report SPEC.db -o page.html --title "My network"
    """
    from surefoot.report import from_store

    page = from_store(store, out, title=title)
    if not quiet:
        say(f"report: {page}")


def _read(spec: Path) -> Study:
    """The study of a spec; ``problem = "module:factory"`` finds modules that stand beside the file.

    Such a spec is code: reading it imports the module, and says so on stderr before.
    """
    from surefoot.study import Study

    folder = str(spec.resolve().parent)
    if folder not in sys.path:
        # At the end: a file of the user's must not hide a package that something else imports.
        sys.path.append(folder)
    module, colon, _ = Study.problem_in(spec).partition(":")
    if colon:
        try:
            found = importlib.util.find_spec(module.partition(".")[0])  # a module in a package would be imported
        except (ImportError, ValueError):  # the study says what is wrong with it
            found = None
        if found is not None:
            sys.stderr.write(f"the spec imports the module {visible(module)} from {visible(found.origin)}\n")
    return Study.from_spec(spec)
