"""A result in files of other programs: netCDF, Parquet, CSV. Each is written whole or not at all."""

from __future__ import annotations

import csv
import io
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, get_args

import numpy as np

from surefoot._base.files import replacing
from surefoot._base.missing import missing

if TYPE_CHECKING:
    import xarray as xr

Table = Literal["runs", "steps", "epochs"]

_LAST: dict[str, tuple[str, ...]] = {"runs": (), "steps": ("step",), "epochs": ("epoch",)}
"""The dimensions of each table beside those of a run."""


def to_netcdf(dataset: xr.Dataset, path: Path) -> None:
    """Write the whole data set as netCDF 3 (64-bit offsets), which every reader knows and SciPy writes."""
    with _replacing(path) as file:
        file.write(dataset.to_netcdf(engine="scipy", format="NETCDF3_64BIT"))


def to_parquet(dataset: xr.Dataset, path: Path, table: Table) -> None:
    """Write one tidy table as Parquet."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise missing("writing Parquet", error, "export") from error
    columns = tidy(dataset, table)
    with _replacing(path) as file:
        parquet.write_table(arrow.table(columns), file)


def to_csv(dataset: xr.Dataset, path: Path, table: Table) -> None:
    """Write one tidy table as CSV; numbers keep all their digits, ∞ is ``inf``."""
    columns = tidy(dataset, table)
    with _replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*map(_cells, columns.values()), strict=True))
        text.detach()


def tidy(dataset: xr.Dataset, table: Table) -> dict[str, Any]:
    """Columns of equal length: algorithm, lr, seed (and step or epoch), then one for each variable over them."""
    if table not in get_args(Table):
        raise ValueError(f"table must be one of {', '.join(get_args(Table))}, got {table!r}")
    dims = ("algorithm", "lr", "seed", *_LAST[table])
    shape = tuple(dataset.sizes[dim] for dim in dims)
    axes = np.meshgrid(*(np.arange(size) for size in shape), indexing="ij")
    columns = {dim: dataset[dim].values[axis.ravel()] for dim, axis in zip(dims, axes, strict=True)}
    for name, variable in dataset.data_vars.items():
        if variable.dims == dims:
            columns[str(name)] = variable.values.ravel()
    return columns


def _cells(values: Any) -> list[Any]:
    """Values of a column; a text that a spreadsheet would take for a formula gets the apostrophe that makes it text."""
    if values.dtype.kind in "UO":
        return [
            f"'{text}" if str(text).startswith(("=", "+", "-", "@", "\t", "\r")) else text for text in values.tolist()
        ]
    return list(values.tolist())


def _replacing(path: Path) -> AbstractContextManager[BinaryIO]:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"path must be a file, {str(path)!r} is a folder")
    return replacing(path, "a result")
