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
MOST = 500
"""Runs of a group that are fitted; of more, these are spread over rates, lengths and schedules."""


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
    runs: Any,
    curves: Any = None,
    *,
    loss: str | None = None,
    curve_loss: str | None = None,
    groups: Sequence[str] | None = None,
) -> list[Run]:
    """The runs to fit, checked; the arguments are those of :func:`surefoot.forecasting.forecast`."""
    return read_all(runs, curves, loss=loss, curve_loss=curve_loss, groups=groups)[0]


def read_all(
    runs: Any,
    curves: Any = None,
    *,
    loss: str | None = None,
    curve_loss: str | None = None,
    groups: Sequence[str] | None = None,
) -> tuple[list[Run], int]:
    """The runs to fit, and how many more there are: of very many, those that say little new are left out."""
    import pandas as pd

    if hasattr(runs, "dataset") and hasattr(runs, "algorithms") and hasattr(runs, "rates"):
        for name, value in {"curves": curves, "loss": loss, "curve_loss": curve_loss, "groups": groups}.items():
            if value is not None:
                raise ValueError(f"{name} must be left out for the result of a study, got {value!r}")
        return _of_result(runs), 0
    table = _table("runs", runs, pd)
    if not len(table):
        raise ValueError("runs must have at least one run, got an empty table")
    logs = None if curves is None else _curves(_table("curves", curves, pd), curve_loss)
    if "steps" not in table and "step" in table:  # losses along the way only
        if logs is not None:
            raise ValueError("runs has a column 'step', as curves have: give either runs with 'steps', or only curves")
        logs = _curves(table, curve_loss or loss, "runs")
        rest = [name for name in table if name not in ("step", "lr", "grad_norm", *CURVE, *FINAL)]
        table = table[rest].groupby("run", sort=False).first().reset_index()
        own = [logs[name] for name in table["run"]]
        table["lr"] = [math.nan if log.rates is None else np.fmax.reduce(log.rates) for log in own]
        table["steps"] = [int(log.steps.max()) for log in own]
    _require("runs", table, "lr", "steps", *(["run"] if logs is not None else []))
    final = loss or next((name for name in FINAL if name in table), None)
    if final is not None and final not in table:
        raise ValueError(f"loss must name a column of runs, got {loss!r}; there are {', '.join(map(str, table))}")
    if final is None and logs is None and "losses" not in table:
        raise ValueError(f"runs must have a column of final losses ({', '.join(FINAL)}), or curves must be given")
    columns = [name for name in (GROUPS if groups is None else groups) if name in table]
    for name in groups or ():
        if name not in table:
            raise ValueError(f"groups must name columns of runs, got {name!r}; there are {', '.join(map(str, table))}")

    def checked_rows(places: Any) -> list[Run]:
        found = []
        for place, record in zip(places, table.iloc[places].to_dict("records"), strict=True):
            row = {str(key): value for key, value in record.items()}
            name = f"run {row['run']}" if "run" in row else f"row {place + 1}"
            try:
                found.append(_of_row(name, row, final, logs, columns))
            except (ValueError, TypeError) as error:
                raise type(error)(f"{error} in {name}") from None
        return found

    checked_rows(_doubtful(table, final if logs is None and "losses" not in table else None, pd))
    checked = checked_rows(_enough(table, columns))
    if logs is not None and not any(len(run.curve[0]) for run in checked):
        raise ValueError("curves must belong to runs: no 'run' of curves stands in runs with a loss")
    return checked, len(table) - len(checked)


def _table(name: str, source: Any, pd: Any) -> pd.DataFrame:
    """The table that an argument is, or that can be made of it."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(f"{name}: there is no file {str(path)!r}")
        try:
            return pd.read_csv(path)  # type: ignore[no-any-return]
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(f"{name}: {str(path)!r} is not a table in CSV: {error}") from None
    if isinstance(source, pd.DataFrame):
        is_named = source.index.name == "run" and "run" not in source
        return source.reset_index() if is_named else source  # type: ignore[no-any-return]
    if isinstance(source, Mapping):
        return pd.DataFrame(dict(source))  # type: ignore[no-any-return]
    if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in source):
        return pd.DataFrame([dict(row) for row in source])  # type: ignore[no-any-return]
    raise TypeError(
        f"{name} must be a CSV file's path, a table (DataFrame, list of dicts, dict of columns) or the result of a "
        f"study, got {type(source).__name__}"
    )


def _require(what: str, table: pd.DataFrame, *names: str) -> None:
    for name in names:
        if name not in table:
            raise ValueError(f"{what} must have a column {name!r}, got {', '.join(map(str, table))}")


def _curves(table: pd.DataFrame, column: str | None, what: str = "curves") -> dict[Any, Log]:
    """Steps, losses and rates of every run by its name."""
    _require(what, table, "run", "step")
    chosen = column or next((name for name in CURVE if name in table), None)
    if chosen is None or chosen not in table:
        raise ValueError(f"{what} must have a column of losses ({', '.join(CURVE)}), got {', '.join(map(str, table))}")
    names = ["step", chosen, *(["lr"] if "lr" in table else [])]
    of_run = table.groupby("run", sort=False).indices  # the rows of each run, in their order
    values = [_as_numbers(table, name, what) for name in names]
    return {run: Log(*(column[rows] for column in values)) for run, rows in of_run.items()}


def _as_numbers(table: pd.DataFrame, name: str, what: str) -> Floats:
    """A column as numbers, NaN where it is empty; the error names the row."""
    try:
        return table[name].to_numpy(float)
    except (TypeError, ValueError):
        for place, value in enumerate(table[name]):
            if not isinstance(value, int | float) and value is not None and math.isnan(_schedules.number(value)):
                raise ValueError(f"{name} must be a number, got {value!r} in row {place + 1} of {what}") from None
        return np.array([_schedules.number(value) for value in table[name]])


def _doubtful(table: pd.DataFrame, final: str | None, pd: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows that may be wrong, of a table that is too long to build every run: each is then checked by itself."""
    if len(table) <= MOST:
        return np.empty(0, np.int64)
    limits = dict.fromkeys(("lr", "steps", "warmup", "weight_decay"), (0.0, math.inf))
    limits |= dict.fromkeys(("cooldown", "decay_fraction", "end"), (0.0, 1.0))
    numbers = {name: pd.to_numeric(table[name], errors="coerce").to_numpy(float) for name in limits if name in table}
    wrong = ~(numbers["lr"] > 0) | ~(numbers["steps"] >= 1) | (numbers["steps"] % 1 != 0)
    for name, (low, high) in limits.items():
        if name in numbers:
            wrong |= (numbers[name] < low) | (numbers[name] > high) | (numbers[name] == math.inf)
    if "warmup" in numbers:
        wrong |= numbers["warmup"] >= numbers["steps"]
    if final is not None:
        wrong |= np.isnan(pd.to_numeric(table[final], errors="coerce").to_numpy(float))
    for name in ("schedule", "decay_shape"):
        if name in table:
            wrong |= ~table[name].astype(str).duplicated().to_numpy()
    return np.flatnonzero(wrong)


def _enough(table: pd.DataFrame, columns: list[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The rows that are fitted: of a group with more than ``MOST`` runs equally many of every kind."""
    if len(table) <= MOST:
        return np.arange(len(table))
    of_kind = ("lr", "steps", "schedule", "warmup", "cooldown", "decay_fraction", "decay_shape", "end", "weight_decay")
    settings = [name for name in dict.fromkeys((*of_kind, *columns)) if name in table]
    kinds = table[settings].assign(
        **{name: table[name].astype(str) for name in settings if table[name].dtype == object}
    )
    kind = kinds.groupby(settings, dropna=False).ngroup().to_numpy()
    repeat = kinds.groupby(kind).cumcount().to_numpy()
    groups: Any = kinds.groupby(columns, dropna=False).indices.values() if columns else [np.arange(len(table))]
    kept = []
    for rows in groups:
        if len(rows) > MOST:
            rows = rows[repeat[rows] < max(1, MOST // len(np.unique(kind[rows])))]
        if len(rows) > MOST:
            ordered = rows[np.lexsort((table["lr"].to_numpy(float)[rows], table["steps"].to_numpy(float)[rows]))]
            rows = ordered[np.linspace(0, len(rows) - 1, MOST).round().astype(int)]
        kept.append(rows)
    return np.sort(np.concatenate(kept))


def _of_row(name: str, row: dict[str, Any], final: str | None, logs: Any, columns: list[str]) -> Run:
    """The run of a row, with its log if there is one; ``columns`` tell its group."""
    lr, steps = _schedules.positive("lr", row["lr"]), _schedules.whole("steps", row["steps"], 1)
    log = None if logs is None else logs.get(row["run"])
    warmup = _schedules.number(row.get("warmup"), 0.0)
    if not 0 <= warmup < steps:
        raise ValueError(f"steps must be more than the warmup, got {steps} steps and a warmup of {warmup:g}")
    rates, label = _rates(row, lr, steps, int(warmup), log)
    decay = _schedules.number(row.get("weight_decay"), 0.0)
    if not 0 <= decay < math.inf:
        raise ValueError(f"weight_decay must be at least 0, got {decay!r}")
    if log is None:
        at, losses = _curve(row.get("losses"))
    else:
        at, losses = log.steps, log.losses
    curve = _cleaned(at, losses, steps)
    last = math.nan if final is None else _schedules.number(row[final])
    if math.isnan(last) and len(at) and not math.isfinite(losses[np.argmax(at)]):
        last = math.inf  # the run was lost on its way
    if math.isnan(last) and not len(curve[0]):
        raise ValueError(f"{final or 'the loss'} must be a number (∞ if the run diverged) without a curve, got NaN")
    group = tuple((key, _plain(row[key])) for key in columns)
    return Run(name, group, lr, rates, int(warmup), decay, label, last, curve)


def _rates(row: dict[str, Any], lr: float, steps: int, warmup: int, log: Any) -> tuple[Floats, str]:
    """The rates of a run, from its schedule and from its log, and what the schedule is called."""
    schedule: Any = row.get("schedule")
    logged = None
    if log is not None and log.rates is not None:
        usable = ~np.isnan(log.rates) & (log.steps <= steps)
        if usable.sum() > 1:
            logged = log.steps[usable], log.rates[usable]
    absent = schedule is None or (isinstance(schedule, float) and math.isnan(schedule))
    if absent or (isinstance(schedule, str) and not _schedules.known(schedule)):
        if logged is None:
            what = "no schedule" if absent else f"the schedule {schedule!r}"
            raise ValueError(
                f"schedule must be one of {', '.join(schedules.SCHEDULES)}, or the curve must have the rates ('lr'), "
                f"got {what} and no logged rates"
            )
        label, base = (str(schedule) if not absent else "logged"), _schedules.factors("constant", steps, warmup=warmup)
    elif isinstance(schedule, str):
        label = _schedules.in_full(schedule, **_options(schedule, row, warmup))
        base = _schedules.factors(label, steps)
    else:
        label, base = getattr(schedule, "__name__", "factors"), _schedules.factors(schedule, steps)
    rates = lr * base
    if logged is not None:
        rates = _schedules.from_log(rates, *logged)
    if not ((rates >= 0).all() and (rates < math.inf).all() and rates.max() > 0):
        raise ValueError("rates must be finite, at least 0 and not all 0, which they are not")
    return rates, label


def _options(schedule: str, row: dict[str, Any], warmup: int) -> dict[str, Any]:
    """The options of a named schedule that stand in other columns of its row; what the name says counts more."""
    name, inside = schedules.parse(schedule)
    cells = {
        "warmup": warmup or None,
        "steps": warmup or None,  # of the schedule warmup
        "cooldown": row.get("cooldown", row.get("decay_fraction")),
        "shape": row.get("decay_shape"),
        "end": row.get("end"),
    }
    given = {key: value for key, value in cells.items() if value is not None and value == value}  # NaN: an empty cell
    return {
        key: value if isinstance(value, str) else _plain(value)
        for key, value in given.items()
        if key in schedules.options_of(name) and key not in inside
    }


def _curve(cell: Any) -> tuple[Floats, Floats]:
    """Steps and losses of a cell of the column ``losses``, which may be empty."""
    if cell is None or isinstance(cell, float):
        return np.empty(0), np.empty(0)
    pairs = list(cell.items()) if isinstance(cell, Mapping) else list(cell)
    try:
        curve = np.array(pairs, float).reshape(-1, 2)
    except (TypeError, ValueError):
        raise ValueError(f"losses must be {{step: loss}} or pairs of step and loss, got {cell!r}") from None
    return curve[:, 0], curve[:, 1]


def _cleaned(steps: Floats, losses: Floats, horizon: int) -> tuple[Floats, Floats]:
    """Finite losses at steps of the run, in order."""
    kept = np.isfinite(losses) & (steps >= 1) & (steps <= horizon)
    order = np.argsort(steps[kept], kind="stable")
    return steps[kept][order], losses[kept][order]


def _of_result(result: Any) -> list[Run]:
    """The runs of a study: full training losses at the end and after each epoch, methods as groups."""
    data, runs = result.dataset, []
    schedule, per_epoch = str(result.settings["schedule"]), float(result.settings["steps_per_epoch"])
    for a, k, s in np.ndindex(*data.status.shape):
        status = str(data.status.values[a, k, s])
        if status == "missing":
            continue
        method, lr = result.algorithms[a], float(result.lrs[k])
        epochs = np.asarray(data.train_loss.values[a, k, s], float)
        last = float(data.last_loss.values[a, k, s])
        last = math.inf if status == "diverged" else float(epochs[-1]) if math.isnan(last) else last
        curve = _cleaned(np.array([per_epoch * epoch for epoch in range(len(epochs))]), epochs, result.steps)
        name = f"{method}, lr {lr:g}, seed {data.seed.values[s]}"
        rates = np.asarray(result.rates[k], float)
        runs.append(Run(name, (("algorithm", method),), lr, rates, 0, 0.0, schedule, last, curve))
    if not runs:
        raise ValueError("runs must have at least one run, and the study has none yet")
    return runs


def _plain(value: Any) -> Any:
    """A value that compares and prints as one expects: no NumPy scalars, None for NaN."""
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, float):
        return None if math.isnan(item) else int(item) if item.is_integer() else item
    return item
