"""The TOML file that describes a study."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from surefoot._base import checks
from surefoot._base.arguments import unknown
from surefoot.runs import parse_methods


@dataclass(frozen=True)
class Spec:
    """A study as TOML says it; ``Study.from_spec`` runs it.

    .. code-block:: toml

        problem = "logistic-regression"        # or "module:factory" of yours
        data = "vowel"
        methods = ["sgd", "sps", "ngn", "sps(lower_bound=-2)"]
        lrs = { from = 1e-2, to = 1e2, count = 9 }   # evenly in log; or a list
        seeds = 3                              # 0, 1, 2; or a list
        epochs = 20
        batch_size = 16
        schedule = "constant"                  # or "warmup(steps=50)", …, or one factor a step
        sampling = "shuffle"                   # or "iid"
        lower_bound = 0.0                      # C of the methods that are given without one
        every = 1                              # keep every k-th step
        distance = 100.0                       # D of the bound
        version = "1"                          # a word of yours for what cannot be identified

        [problem_options]                      # whatever the problem takes: n, d, noise, ridge, start, …
        ridge = 1e-3

    A key that does not exist is an error, with the right one as a hint. A spec with ``"module:factory"`` is code: it
    imports that module and calls that function. Run only such specs whose modules you trust.
    """

    problem: str
    methods: tuple[str, ...]
    lrs: tuple[float, ...]
    epochs: int
    batch_size: int
    data: str | None = None
    problem_options: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    schedule: str | tuple[float, ...] = "constant"
    sampling: str = "shuffle"
    lower_bound: float | None = None
    every: int = 1
    distance: float | None = None
    version: str | None = None

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Spec:
        """Read and check a spec; every error names the file, the key, the value and what is allowed.

        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "study.toml")
        >>> _ = path.write_text('''problem = "toy"\\nmethods = ["sgd"]\\nlrs = [0.1]\\nepochs = 2\\nbatch_size = 1''')
        >>> Spec.from_toml(path).lrs
        (0.1,)
        """
        path = Path(path)
        try:
            # Editors of Windows put a byte order mark in front, which TOML does not know.
            table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise FileNotFoundError(f"spec {str(path)!r} does not exist") from None
        except IsADirectoryError:
            raise IsADirectoryError(f"spec {str(path)!r} is a folder, not a TOML file") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not a TOML file: {error}") from None
        return cls.from_table(table, source=str(path))

    @classmethod
    def from_table(cls, table: dict[str, Any], *, source: str = "spec") -> Spec:
        """A spec from the table that a TOML file holds; ``source`` begins every error."""
        known = {key.name: key for key in fields(cls)}
        for key in table:
            if key not in known:
                wrong = unknown("key", key, known)
                raise ValueError(f"{source}: {wrong} (what only the problem knows goes under [problem_options])")
        values, errors = {}, []
        for name, declared in known.items():
            try:
                if name in table:
                    values[name] = _CHECKS[name](table[name])
                elif declared.default is MISSING and declared.default_factory is MISSING:
                    raise ValueError(f"the key {name!r} is missing")
            except (ValueError, TypeError) as error:
                errors.append(f"{source}: {error}")
        if errors:
            raise ValueError("\n".join(errors))
        return cls(**values)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {value!r}")
    return value


def _methods(value: Any) -> tuple[str, ...]:
    parse_methods(value)
    return (value,) if isinstance(value, str) else tuple(value)


def _schedule(value: Any) -> str | tuple[float, ...]:
    if isinstance(value, list):
        return tuple(checks.number(f"schedule[{place}]", factor) for place, factor in enumerate(value))
    return _text("schedule", value)


def _options(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"problem_options must be a table, got {value!r}")
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "problem": partial(_text, "problem"),
    "methods": _methods,
    "lrs": checks.rates,
    "epochs": partial(checks.whole, "epochs", least=1),
    "batch_size": partial(checks.whole, "batch_size", least=1),
    "data": partial(_text, "data"),
    "problem_options": _options,
    "seeds": checks.seeds,
    "schedule": _schedule,
    "sampling": checks.sampling,
    "lower_bound": partial(checks.number, "lower_bound"),
    "every": partial(checks.whole, "every", least=1),
    "distance": partial(checks.number, "distance", positive=True),
    "version": partial(_text, "version"),
}
"""What each key may be: the value as a study takes it, or an error that names it."""
