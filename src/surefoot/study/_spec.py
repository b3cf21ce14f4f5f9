"""The TOML file that describes a study."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from surefoot import _checks
from surefoot.runs import parse_methods
from surefoot.theory.arguments import unknown


class Spec(BaseModel):
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

        [problem_options]                      # whatever the problem takes: n, d, noise, ridge, l2, start, …
        l2 = 1e-3

    A key that does not exist is an error, with the right one as a hint. A spec with ``"module:factory"`` is code: it
    imports that module and calls that function. Run only such specs whose modules you trust.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    problem: str
    methods: tuple[str, ...]
    lrs: tuple[float, ...]
    epochs: int
    batch_size: int
    data: str | None = None
    problem_options: dict[str, Any] = Field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    schedule: str | tuple[float, ...] = "constant"
    sampling: str = "shuffle"
    lower_bound: float | None = None
    every: int = 1
    distance: float | None = None
    version: str | None = None

    @field_validator("lrs", mode="before")
    @classmethod
    def _rates(cls, value: Any) -> tuple[float, ...]:
        return _checks.rates(value)

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: Any) -> tuple[int, ...]:
        return _checks.seeds(value)

    @field_validator("epochs", "batch_size", "every", mode="before")
    @classmethod
    def _counts(cls, value: Any, info: Any) -> int:
        return _checks.whole(info.field_name, value, 1)

    @field_validator("lower_bound", "distance", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: Any) -> float:
        return _checks.number(info.field_name, value, positive=info.field_name == "distance")

    @field_validator("methods", mode="before")
    @classmethod
    def _methods(cls, value: Any) -> Any:
        try:
            parse_methods(value)
        except TypeError as error:
            raise ValueError(str(error)) from None
        return (value,) if isinstance(value, str) else value

    @field_validator("sampling", mode="before")
    @classmethod
    def _sampling(cls, value: Any) -> str:
        return _checks.sampling(value)

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
        for key in table:
            if key not in cls.model_fields:
                hint = unknown("key", key, cls.model_fields)
                raise ValueError(f"{source}: {hint}. What only the problem knows goes under [problem_options]")
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            raise ValueError("\n".join(f"{source}: {_message(detail)}" for detail in error.errors())) from None


def _message(detail: Any) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return f"the key {key!r} is missing"
    text = str(detail["msg"]).removeprefix("Value error, ")
    # Our own checks name the argument and the value; pydantic's name neither.
    return text if detail["type"] == "value_error" else f"{key} is {detail['input']!r}: {text}"
