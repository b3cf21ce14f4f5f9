"""The commands. Each imports what it needs when it runs, so that ``surefoot --help`` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from surefoot._text import visible
from surefoot.cli import _completion, _data
from surefoot.cli._app import Handover, app
from surefoot.cli._flags import Address, Cpus, Engine, Gpus, Json, Quiet, Silent, Store

__all__ = ["Handover", "app"]

_OWN = "Your own training"
_PAPER = "The paper, computed again"
_MACHINE = "This installation"


@app.command(rich_help_panel=_OWN)
def init(
    spec: Annotated[Path, Argument(metavar="SPEC.toml", help="The file to write.")] = Path("SPEC.toml"),
    problem: Annotated[
        str,
        Option(
            "--problem",
            "-p",
            metavar="NAME",
            help="What to start from: logistic-regression, linear-regression, digits-mlp, digits-cnn, resnet20, "
            "characters; or MODULE:FACTORY of yours.",
            autocompletion=_completion.problems,
        ),
    ] = "logistic-regression",
    force: Annotated[bool, Option("--force", "-f", help="Overwrite the file if it exists.")] = False,
    quiet: Silent = False,
) -> None:
    """Write a commented spec, which study and tune run as it is.

    For a problem MODULE:FACTORY it also writes MODULE.py beside the spec, unless it is there: a network to replace.

    [bold]Examples[/]

      surefoot init
      surefoot init digits.toml --problem digits-mlp
      surefoot init mine.toml --problem my_network:make
    """
    from surefoot.cli._init import init as run

    written = run(spec, problem, force)
    if not quiet:
        typer.echo(f"written: {', '.join(map(str, written))}; next: surefoot study {spec}")


@app.command(rich_help_panel=_PAPER)
def reproduce(
    figures: Annotated[
        list[str] | None,
        Argument(
            metavar="FIGURE",
            help="Names of figures, or the paper's numbers (figure1 … figure12); none means all but networks.",
            autocompletion=_completion.figures,
        ),
    ] = None,
    out: Annotated[Path, Option("--out", "-o", help="Folder for pictures and tables.")] = Path("out"),
    preset: Annotated[
        str,
        Option(
            "--preset",
            help="Size of network studies: smoke (seconds), small (hours), medium (half a day) or paper (days).",
            autocompletion=_completion.presets,
        ),
    ] = "small",
    device: Annotated[str, Option("--device", help="Where networks train: cpu, cuda, …")] = "cpu",
    data: Annotated[
        str | None,
        Option("--data", help="CIFAR-10's folder or archive, or a text file; else what the data folders hold."),
    ] = None,
    finished: Annotated[
        bool, Option("--finished", help="Draw networks from the runs that are there; train no more.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress bar and no table.")] = False,
) -> None:
    """Compute the figures again and write each as PNG, PDF and CSV.

    Without names: all figures but those of networks, then a summary of the claims and OUT/report.html.

    Figures of networks are made only by name: [bold]cifar10[/] (all figures of that sweep), cifar10-geometries,
    characters. Their runs are kept in OUT/studies, and an interrupted sweep goes on where it stopped.

    [bold]Examples[/]

      surefoot reproduce
      surefoot reproduce figure1 universal-curves --out figures
      surefoot reproduce cifar10 --preset smoke
    """
    from surefoot.cli._reproduce import reproduce as run

    run(figures or [], out, quiet, preset, device, data, finished)


@app.command(rich_help_panel=_PAPER)
def claims(
    ids: Annotated[
        list[str] | None,
        Argument(metavar="ID", help="Ids of claims; none means all.", autocompletion=_completion.claims),
    ] = None,
    as_json: Json = False,
    store: Annotated[Path | None, Option("--store", help="Folder that keeps the runs, such as out/studies.")] = None,
    quiet: Quiet = False,
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


@app.command(rich_help_panel=_OWN)
def study(
    spec: Annotated[Path, Argument(metavar="SPEC.toml", help="What to run; `surefoot init` writes one.")],
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

    [bold]Examples[/]

      surefoot study SPEC.toml
      surefoot study SPEC.toml --store results.db
      surefoot study SPEC.toml --engine dask --address tcp://10.0.0.1:8786
    """
    from surefoot.cli._study import study as run

    run(spec, store, quiet, as_json, engine=engine, address=address, cpus=cpus, gpus=gpus)


@app.command(rich_help_panel=_OWN)
def tune(
    spec: Annotated[Path, Argument(metavar="SPEC.toml", help="The same as for `surefoot study`.")],
    objective: Annotated[
        str, Option("--objective", help="What is minimised: loss or bound.", autocompletion=_completion.objectives)
    ] = "loss",
    store: Store = None,
    processes: Annotated[
        int | None,
        Option("--processes", min=1, help="Worker processes; by default one a core where it pays. 1: only this."),
    ] = None,
    engine: Engine = "auto",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find the best method and rate of a spec for the price of a few runs instead of the whole grid.

    With --objective bound the answer comes with a certificate where the theory gives one.

    [bold]Examples[/]

      surefoot tune SPEC.toml
      surefoot tune SPEC.toml --objective bound
      surefoot tune SPEC.toml --engine dask --address tcp://10.0.0.1:8786
    """
    from surefoot.cli._tune import tune as run

    who = {"processes": processes, "engine": engine, "address": address, "cpus": cpus, "gpus": gpus}
    run(spec, objective, store, quiet, as_json, **who)


@app.command(rich_help_panel=_OWN)
def forecast(
    runs: Annotated[
        Path,
        Argument(
            metavar="RUNS.csv",
            help="One row a run: lr, steps, schedule, final_loss; optional are run, warmup, decay_fraction, "
            "decay_shape, weight_decay, and what tells models and data apart, such as model and dataset.",
        ),
    ],
    curves: Annotated[
        Path | None,
        Option("--curves", help="Losses along the way, .csv or .csv.gz: run, step, valid_loss, and rates as lr."),
    ] = None,
    steps: Annotated[
        int | None, Option("--steps", help="The length to plan; by default the longest run's, and twice that.")
    ] = None,
    lr: Annotated[float | None, Option("--lr", help="Forecast one run with this rate; needs --schedule.")] = None,
    schedule: Annotated[
        str | None, Option("--schedule", help="constant, cosine, linear, 'wsd(decay_fraction=0.1)', …; needs --lr.")
    ] = None,
    group: Annotated[
        list[str] | None,
        Option("--group", metavar="KEY=VALUE", help="Which model or data set, if there are several; may repeat."),
    ] = None,
    picture: Annotated[Path | None, Option("--plot", help="Draw the fit and the forecast to this file.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Forecast the final loss of other rates, schedules and lengths from a table of finished runs.

    A handful of short runs is enough: two or more rates, schedules and lengths. Intervals say how sure it is.

    [bold]Examples[/]

      surefoot forecast RUNS.csv
      surefoot forecast RUNS.csv --curves curves.csv.gz --steps 100000
      surefoot forecast RUNS.csv --steps 50000 --lr 0.001 --schedule "wsd(decay_fraction=0.2)"
      surefoot forecast RUNS.csv --group dataset=mine --json
    """
    from surefoot.cli._forecast import run

    run(runs, curves, steps, lr, schedule, group or [], picture, quiet, as_json)


@app.command(
    rich_help_panel=_OWN,
    context_settings={"allow_interspersed_args": False},  # what follows the script is the script's
)
def watch(
    script: Annotated[str, Argument(metavar="SCRIPT.py", help="The script, as it is; with -m a module.")],
    arguments: Annotated[list[str] | None, Argument(metavar="ARGS", help="Arguments of the script.")] = None,
    module: Annotated[bool, Option("-m", help="Run a module, as `python -m` does.")] = False,
    horizon: Annotated[
        int | None, Option("--horizon", help="Steps of the whole run; by default what trainer, scheduler or loops say.")
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


@app.command(rich_help_panel=_OWN)
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
        typer.echo(f"report: {visible(page)}")


@app.command(rich_help_panel=_PAPER)
def pep(
    names: Annotated[
        list[str] | None,
        Argument(metavar="NAME", help="Names of statements; none means all.", autocompletion=_completion.statements),
    ] = None,
    cases: Annotated[bool, Option("--cases", help="One row a case instead of one a statement.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Verify lemmas and bounds in the worst case, by semidefinite programs (needs [bold]surefoot\\[pep][/]).

    The exit code is 1 if a case is not solved or contradicts its statement.

    [bold]Examples[/]

      surefoot pep
      surefoot pep one-step --cases
    """
    from surefoot.cli._pep import pep as run

    run(names or None, cases, as_json, quiet)


@app.command(rich_help_panel=_MACHINE)
def doctor(as_json: Json = False) -> None:
    """Say what is installed, which extras and data sets are there, and how to get what is missing.

    An extra is a group of packages that only some features need: pip install 'surefoot\\[pep]'.

    [bold]Example[/]

      surefoot doctor
    """
    from surefoot.cli._doctor import doctor as run

    run(as_json)


@app.command(rich_help_panel=_MACHINE)
def build(
    quiet: Silent = False,
) -> None:
    """Compile the optimizers' kernels for this machine, so that their steps on the CPU take less time.

    It needs a C compiler (cc, gcc, clang, or the one in CC), and puts one small file into the cache folder. Everything
    works without it.

    [bold]Example[/]

      surefoot build
    """
    if not quiet:
        typer.echo("compiling …", err=True)
    from surefoot.optim.native import build as run

    path = run()
    if not quiet:
        typer.echo(f"written: {path}; optimizers use it from now on")


app.add_typer(_data.app, name="data", rich_help_panel=_MACHINE)
