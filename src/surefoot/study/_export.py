"""A result in files of other programs: netCDF, Parquet, CSV. Each is written whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from surefoot._base.files import write_whole
from surefoot._base.missing import missing

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Table = Literal["runs", "steps", "epochs"]

_LAST: dict[str, tuple[str, ...]] = {"runs": (), "steps": ("step",), "epochs": ("epoch",)}
"""The dimensions of each table beside those of a run."""


def to_netcdf(dataset: xr.Dataset, path: Path) -> None:
    """Write the whole data set as netCDF 3 (64-bit offsets), which every reader knows and SciPy writes."""
    _write(path, bytes(dataset.to_netcdf(engine="scipy", format="NETCDF3_64BIT")))


def to_parquet(dataset: xr.Dataset, path: Path, table: Table) -> None:
    """Write one tidy table as Parquet."""
    content = io.BytesIO()
    try:
        tidy(dataset, table).to_parquet(content, engine="pyarrow", index=False)
    except ImportError as error:
        raise missing("writing Parquet", error, "export") from error
    _write(path, content.getvalue())


def to_csv(dataset: xr.Dataset, path: Path, table: Table) -> None:
    """Write one tidy table as CSV; numbers keep all their digits, ∞ is ``inf``.

    A text that a spreadsheet would take for a formula gets the apostrophe that makes it text.
    """
    frame = tidy(dataset, table)
    names = frame["algorithm"].astype(str)
    formulas = names.str.startswith(("=", "+", "-", "@", "\t", "\r"))
    frame["algorithm"] = names.where(~formulas, "'" + names)
    _write(path, frame.to_csv(index=False, na_rep="nan", lineterminator="\r\n").encode())


def tidy(dataset: xr.Dataset, table: Table) -> pd.DataFrame:
    """One row per run, step or epoch: algorithm, lr, seed (and step or epoch), then a column per variable over them."""
    if table not in get_args(Table):
        raise ValueError(f"table must be one of {', '.join(get_args(Table))}, got {table!r}")
    dims = ("algorithm", "lr", "seed", *_LAST[table])
    names = [name for name, variable in dataset.data_vars.items() if variable.dims == dims]
    return dataset[names].to_dataframe(dim_order=dims).reset_index()[[*dims, *names]]


def _write(path: Path, content: bytes) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"path must be a file, {str(path)!r} is a folder")
    write_whole(path, content, "a result")
