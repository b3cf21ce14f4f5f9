"""Runs in every form that a forecast takes: a table, a file, rows, columns, or the result of a study."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surefoot.forecasting import _schedules
from surefoot.forecasting._schedules import Floats
from surefoot.theory import schedules

if TYPE_CHECKING:
    import pandas as pd

GROUPS = ("dataset", "model", "parameters", "batch", "sequence", "optimizer", "algorithm", "weight_decay")
"""Columns of models, data sets and settings: runs that differ in one of them are separate groups."""
FINAL = ("final_valid_loss", "final_loss", "loss", "valid_loss")
CURVE = ("valid_loss", "loss", "train_loss")
ALIASES = {
    "lr": ("learning_rate", "train/learning_rate"),
    "step": ("_step", "Step", "global_step", "train/global_step"),
    "run": ("run_id", "run_name", "name", "Name"),
    "valid_loss": ("val_loss", "eval_loss", "val/loss", "eval/loss"),
    "train_loss": ("train/loss",),
}
"""What experiment trackers and trainers call these columns."""
MOST = 500
"""Runs of a group that are fitted; of more, so many are drawn."""


class Log(NamedTuple):
    """What was logged along a run."""

    steps: Floats
    losses: Floats
    rates: Floats | None = None


@dataclass(frozen=True)
class Run:
    """One run, finished or not."""

    name: str
    """What it is called in messages."""
    group: tuple[tuple[str, Any], ...]
    """Model, data and other settings that define the run's group."""
    lr: float
    rates: Floats
    """α_t, one per step."""
    warmup: int
    weight_decay: float
    schedule: str
    loss: float
    """The loss at the end; NaN if only the curve is known, ∞ if it diverged."""
    curve: tuple[Floats, Floats]
    """Steps, rising, and the losses there; may be empty."""

    @property
    def steps(self) -> int:
        """T, the number of steps."""
        return len(self.rates)


def read(
    runs: Any, curves: Any = None, *, loss: str | None = None, groups: Sequence[str] | None = None
) -> tuple[list[Run], list[str]]:
    """The runs to fit, checked, and notes on how they were read; the arguments are those of ``forecast``."""
    table, notes = _table("runs", _rows_of(runs) if hasattr(runs, "dataset") else runs), []
    logs = None if curves is None else _logs("curves", _table("curves", curves), loss)
    if "steps" not in table and "step" in table:
        names = _names(table)
        if names.is_unique:  # one row per run
            table = table.rename(columns={"step": "steps"})
        elif logs is not None:
            raise ValueError("runs has a column 'step', as curves have: give either runs with 'steps', or only curves")
        else:
            if "run" not in table:
                notes = [f"There is no column 'run': {names.nunique()} runs, each from where 'step' begins anew."]
            table = table.assign(run=names)
            logs, table, loss = _logs("runs", table, loss), _last_steps(table), None
    _require("runs", table, "lr", "steps", *(["run"] if logs is not None else []))
    final = loss or next((name for name in FINAL if name in table), None)
    if final is None and logs is None and "losses" not in table:
        raise ValueError(f"runs must have a column of final losses ({', '.join(FINAL)}), or curves must be given")
    for argument, names_given in (("loss", [final] if final else []), ("groups", groups or ())):
        for name in names_given:
            if name not in table:
                raise ValueError(f"{argument} must name a column of runs, got {name!r}; there are {_listed(table)}")
    columns = [name for name in (GROUPS if groups is None else groups) if name in table]
    if "run" in table:
        table = table.set_axis([f"run {name}" for name in table["run"]])
    table = _checked(table, final, logs is not None or "losses" in table)
    numbered = table.reset_index().sample(frac=1, random_state=0)
    chosen = sorted(numbered.groupby(columns or (lambda row: 0), dropna=False).head(MOST).index)
    if len(chosen) < len(table):
        notes.append(f"{len(chosen)} runs are used, drawn at random; {len(table) - len(chosen)} are left out.")
        if "schedule" in table:  # an error names a bad one of those that are left out, too
            _runs(table[~table["schedule"].astype(str).duplicated()], final, logs, columns)
    found = _runs(table.iloc[chosen], final, logs, columns)
    if logs is not None and not any(len(run.curve[0]) for run in found):
        raise ValueError("curves must belong to runs: no 'run' of curves stands in runs with a loss")
    return found, notes


# ---- tables


def _table(name: str, source: Any) -> pd.DataFrame:
    """The table that an argument is, or that can be made of it, with our names of columns, and rows with names."""
    import pandas as pd

    if isinstance(source, str | os.PathLike):
        if not Path(source).is_file():
            raise FileNotFoundError(f"{name}: there is no file {str(source)!r}")
        try:
            table = pd.read_csv(source)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(f"{name}: {str(source)!r} is not a table in CSV: {error}") from None
    elif isinstance(source, pd.DataFrame):
        table = source.reset_index() if source.index.name == "run" and "run" not in source else source
    elif isinstance(source, Mapping) or (isinstance(source, Sequence) and all(isinstance(x, Mapping) for x in source)):
        table = pd.DataFrame(source)
    else:
        raise TypeError(
            f"{name} must be a CSV file's path, a table (DataFrame, list of dicts, dict of columns) or the result of a "
            f"study, got {type(source).__name__}"
        )
    if not len(table):
        raise ValueError(f"{name} must have at least one row, got an empty table")
    for ours, others in ALIASES.items():
        there = [other for other in others if other in table and ours not in table]
        table = table.rename(columns=dict.fromkeys(there[:1], ours))
    return table.set_axis([f"row {number} of {name}" for number in range(1, len(table) + 1)])


def _require(what: str, table: pd.DataFrame, *names: str) -> None:
    for name in names:
        if name not in table:
            raise ValueError(f"{what} must have a column {name!r}, got {_listed(table)}")


def _listed(table: pd.DataFrame) -> str:
    return ", ".join(map(str, table))


def _names(table: pd.DataFrame) -> pd.Series[Any]:
    """Which run each row of a table with a column ``step`` is of; without a name, a run ends where ``step`` falls."""
    if "run" in table:
        return table["run"]
    return table.index.to_series() if "schedule" in table else (table["step"].diff() <= 0).cumsum()


def _logs(what: str, table: pd.DataFrame, loss: str | None) -> dict[Any, Log]:
    """Steps, losses and rates of every run by its name."""
    _require(what, table, "run", "step")
    column = next((name for name in (loss, *CURVE) if name in table), None)
    if column is None:
        raise ValueError(f"{what} must have a column of losses ({', '.join(CURVE)}), got {_listed(table)}")
    values = [_numbers(table, name) for name in ("step", column, "lr") if name in table]
    places = table.groupby("run", sort=False).indices  # the rows of each run, in their order
    return {run: Log(*(column[rows] for column in values)) for run, rows in places.items()}


def _last_steps(table: pd.DataFrame) -> pd.DataFrame:
    """One row per run of a table of logs: its largest rate, its last step, and what else is in its first row."""
    table = table.drop(columns=[name for name in {*CURVE, *FINAL} if name in table]).rename(columns={"step": "steps"})
    runs = table.groupby("run", sort=False)
    return runs.first().assign(**runs[[name for name in ("lr", "steps") if name in table]].max()).reset_index()


def _numbers(
    table: pd.DataFrame, name: str, allowed: str = "a number", holds: Any = None, default: float = math.nan
) -> Floats:
    """A column as numbers, the default where it is empty; the error names the first row in which one does not hold."""
    import pandas as pd

    if name not in table:
        return np.full(len(table), default)
    is_empty = table[name].isna().to_numpy()
    values = np.where(is_empty, default, pd.to_numeric(table[name], errors="coerce").to_numpy(float))
    wrong = np.isnan(values) & ~is_empty
    if holds is not None:
        wrong |= ~holds(values)
    if wrong.any():
        place = int(wrong.argmax())
        raise ValueError(f"{name} must be {allowed}, got {table[name].tolist()[place]!r} in {table.index[place]}")
    return values


def _checked(table: pd.DataFrame, final: str | None, may_lack: bool) -> pd.DataFrame:
    """The table with numbers in the columns that want some."""
    steps = _numbers(table, "steps", "a whole number of at least 1", lambda x: (x >= 1) & (x % 1 == 0))
    columns = {
        "lr": _numbers(table, "lr", "a positive number", lambda x: (x > 0) & (x < math.inf)),
        "steps": steps,
        "warmup": _numbers(table, "warmup", "at least 0, and less than the steps", lambda x: (x >= 0) & (x < steps), 0),
        "weight_decay": _numbers(table, "weight_decay", "at least 0", lambda x: (x >= 0) & (x < math.inf), 0),
    }
    for name in ("cooldown", "decay_fraction", "end"):
        _numbers(table, name, "from 0 to 1", lambda x: ~((x < 0) | (x > 1)))
    if final is not None:
        columns[final] = _numbers(table, final, "a number (∞ if the run diverged)", lambda x: may_lack | ~np.isnan(x))
    return table.assign(**columns)


# ---- runs


def _runs(table: pd.DataFrame, final: str | None, logs: dict[Any, Log] | None, columns: list[str]) -> list[Run]:
    """The runs of the rows; ``columns`` tell the groups."""
    found = []
    for name, record in zip(table.index, table.to_dict("records"), strict=True):
        row = {str(key): value for key, value in record.items()}
        log = _log(row.get("losses")) if logs is None else logs.get(row["run"])
        try:
            rates, label = _rates(row, log)
            curve, is_lost = _cleaned(log, len(rates))
            last = math.nan if final is None else float(row[final])
            last = math.inf if is_lost and math.isnan(last) else last
            if math.isnan(last) and not len(curve[0]):
                raise ValueError(f"{final or 'the loss'} must be a number (∞ if the run diverged) without a curve")
        except (ValueError, TypeError) as error:
            raise type(error)(f"{error} in {name}") from None
        group = tuple((key, _plain(row[key])) for key in columns)
        found.append(Run(name, group, row["lr"], rates, int(row["warmup"]), row["weight_decay"], label, last, curve))
    return found


def _rates(row: dict[str, Any], log: Log | None) -> tuple[Floats, str]:
    """The rates of a run, from its schedule and from its log, and what the schedule is called."""
    schedule: Any = row.get("schedule")
    steps, warmup, logged = int(row["steps"]), int(row["warmup"]), None
    if log is not None and log.rates is not None:
        usable = ~np.isnan(log.rates) & (log.steps <= steps)
        if usable.sum() > 1:
            logged = log.steps[usable], log.rates[usable]
    is_absent = schedule is None or (isinstance(schedule, float) and math.isnan(schedule))
    if is_absent or (isinstance(schedule, str) and not _is_known(schedule)):
        if logged is None:
            given = "no schedule" if is_absent else f"the schedule {schedule!r}"
            raise ValueError(
                f"schedule must be one of {', '.join(schedules.SCHEDULES)}, or the curve must have the rates ('lr'), "
                f"got {given} and no logged rates"
            )
        label, schedule = "logged" if is_absent else schedule, f"constant(warmup={warmup})"
    elif isinstance(schedule, str):
        label = schedule = _schedules.in_full(schedule, **_options(schedule, row, warmup))
    else:
        label = getattr(schedule, "__name__", "factors")
    rates = row["lr"] * _schedules.factors(schedule, steps)
    if logged is not None:
        rates = from_log(rates, *logged)
    if not ((rates >= 0).all() and (rates < math.inf).all() and rates.max() > 0):
        raise ValueError("rates must be finite, at least 0 and not all 0, which they are not")
    return rates, label


def from_log(base: Floats, steps: Floats, rates: Floats) -> Floats:
    """The rates as they were logged, and ``base`` before the log begins.

    A last logged rate of 0 is what many trainers write after the last step: it is replaced by where the two rates
    before it lead, which is 0 for a linear cooldown and the same rate for a constant one.

    >>> from_log(np.ones(4), np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.8, 0.6, 0.0])).round(1)
    array([1. , 0.9, 0.7, 0.5])
    """
    order = np.argsort(steps, kind="stable")
    when, logged = steps[order], rates[order]
    if len(when) > 2 and logged[-1] == 0 and when[-2] > when[-3]:
        slope = (logged[-2] - logged[-3]) / (when[-2] - when[-3])
        logged[-1] = max(0.0, logged[-2] + slope * (when[-1] - when[-2]))
    middle = np.arange(len(base)) + 0.5
    return np.where(middle >= when[0], np.interp(middle, when, logged), base)


def _is_known(name: str) -> bool:
    """Whether a schedule can be built from its name alone."""
    try:
        return bool(schedules.parse(name))
    except ValueError:
        return False


def _options(schedule: str, row: dict[str, Any], warmup: int) -> dict[str, Any]:
    """The options of a named schedule from other columns of its row; what the name says counts more."""
    name, inside = schedules.parse(schedule)
    cells = {
        "warmup": warmup or None,
        "steps": warmup or None,  # of the schedule warmup
        "cooldown": row.get("cooldown", row.get("decay_fraction")),
        "shape": row.get("decay_shape"),
        "end": row.get("end"),
    }
    free = set(schedules.options_of(name)) - set(inside)
    return {key: _plain(cell) for key, cell in cells.items() if key in free and _plain(cell) is not None}


def _log(cell: Any) -> Log | None:
    """What is in a cell of the column ``losses``, which may be empty."""
    if cell is None or isinstance(cell, float):
        return None
    try:
        pairs = np.array(list(cell.items() if isinstance(cell, Mapping) else cell), float).reshape(-1, 2)
    except (TypeError, ValueError):
        raise ValueError(f"losses must be {{step: loss}} or pairs of step and loss, got {cell!r}") from None
    return Log(pairs[:, 0], pairs[:, 1])


def _cleaned(log: Log | None, steps: int) -> tuple[tuple[Floats, Floats], bool]:
    """Finite losses at steps of the run, in order, and whether it was lost on its way.

    It was if its last loss is ∞, or NaN after losses all of which are finite: others log a loss at some steps only.
    """
    if log is None or not len(log.steps):
        return (np.empty(0), np.empty(0)), False
    order = np.argsort(log.steps, kind="stable")
    at, losses = log.steps[order], log.losses[order]
    finite = np.isfinite(losses)
    is_lost = not finite[-1] and (np.isinf(losses[-1]) or finite[: finite.sum()].all())
    kept = finite & (at >= 1) & (at <= steps)
    return (at[kept], losses[kept]), bool(is_lost)


def _rows_of(result: Any) -> list[dict[str, Any]]:
    """A row per run of a study: full training losses at the end and after each epoch."""
    data, settings = result.dataset, result.settings
    ends = data.epoch.values * settings["steps_per_epoch"]
    shared = {"steps": result.steps, "schedule": settings["factors"] or settings["schedule"]}
    rows = []
    for a, k, s in np.argwhere((data.status != "missing").values):
        method, lr, losses = result.algorithms[a], float(result.lrs[k]), data.train_loss.values[a, k, s]
        name = f"{method}, lr {lr:g}, seed {data.seed.values[s]}"
        last = math.inf if data.status.values[a, k, s] == "diverged" else float(data.last_loss.values[a, k, s])
        curve = dict(zip(ends.tolist(), losses.tolist(), strict=True))
        rows.append({"run": name, "algorithm": method, "lr": lr, **shared, "loss": last, "losses": curve})
    return rows


def _plain(value: Any) -> Any:
    """A value that compares and prints as one expects: no NumPy scalars, None for NaN."""
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, float):
        return None if math.isnan(item) else int(item) if item.is_integer() else item
    return item
