"""``surefoot forecast``: how long, how high, how to cool down, from a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from surefoot.cli._app import OWN, Json, app, print_json, print_table, say

if TYPE_CHECKING:
    from surefoot.forecasting import Choice, Forecast

_COLUMNS = (
    "One line per run: lr, steps, schedule, final_loss; optional are run, warmup, decay_fraction, decay_shape, "
    "weight_decay, and what tells models and data apart, such as model and dataset. Or a log as trackers export "
    "it: run, step, learning_rate, loss."
)


@app.command(rich_help_panel=OWN)
def forecast(
    runs: Annotated[Path, Argument(metavar="RUNS.csv", help=_COLUMNS)],
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
    from surefoot.forecasting import forecast as fit
    from surefoot.plots import short

    if (lr is None) != (schedule is None):
        raise ValueError("--lr and --schedule go together: a forecast of one run needs both")
    fitted = fit(runs, curves=curves)
    which = _group(fitted, group or [])
    if which is None and len(fitted.fits) > 1:
        if steps is not None or lr is not None or picture is not None:
            fitted.parameters(None)  # raises, and says which groups there are
        if as_json:
            print_json({"groups": fitted.groups, "notes": fitted.notes})
        else:
            say(f"{fitted.summary()}\n\nForecasts are of one model and data set: name one with --group KEY=VALUE.")
        return
    longest = fitted.longest(which)
    choices = [fitted.best(T, group=which) for T in ([longest, 2 * longest] if steps is None else [steps])]
    last = choices[-1]
    answer: dict[str, Any] = {
        "groups": fitted.groups,
        "notes": fitted.notes,
        "parameters": fitted.parameters(which),
        "best": [_plain(choice) for choice in choices],
    }
    if picture is not None:
        fitted.plot(last.steps, group=which).savefig(picture, dpi=150)
    predicted = None
    if lr is not None and schedule is not None:
        predicted = fitted.predict(lr, schedule, last.steps, group=which)
        answer["forecast"] = {"lr": lr, "schedule": schedule, "steps": last.steps, **predicted._asdict()}
    if as_json:
        print_json(answer)
        return
    say(fitted.summary())
    for choice in choices:
        rows = [(r.schedule, short(r.lr), f"{r.loss:.4f}", f"{r.low:.4f} – {r.high:.4f}") for r in choice.table]
        print_table(("schedule", "best lr", "loss", "90 % interval"), rows, f"\n{choice.steps} steps")
    note = f" ({last.note})" if last.note else ""
    say(f"\nBest for {last.steps} steps: {last.schedule} with lr = {short(last.lr)}{note}")
    if predicted is not None:
        say(f"Forecast of {schedule} with lr = {short(lr)} for {last.steps} steps: {predicted}")


def _plain(choice: Choice) -> dict[str, Any]:
    """A choice without its factors, of which there is one per step."""
    plain = {key: value for key, value in vars(choice).items() if key not in ("factors", "table")}
    table = {"table": [_plain(row) for row in choice.table]} if choice.table else {}
    return {**plain, "steps": choice.steps, **table}


def _group(fitted: Forecast, texts: list[str]) -> dict[str, Any] | None:
    """The group whose values print as those on the command line."""
    if not texts:
        return None
    chosen = dict(text.partition("=")[::2] for text in texts)
    for known in (fitted.groups, [dict(group) for group in fitted.refused]):
        fits = [group for group in known if all(str(group.get(key)) == value for key, value in chosen.items())]
        if len(fits) == 1:
            return fits[0]
    groups = fitted.groups
    telling = [key for key in groups[0] if len({str(group.get(key)) for group in groups}) > 1]
    names = ", ".join(" ".join(f"{key}={group.get(key)}" for key in telling) for group in groups)
    raise ValueError(f"--group must fit one of {names}; got {' '.join(texts)!r}")
