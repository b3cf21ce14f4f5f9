"""The paper's sweep of ResNet20 on CIFAR-10 in five sizes, from seconds to days, and what was recorded of three.

A sweep has several parts, one :class:`~surefoot.study.Study` each, because a study has one schedule and one grid of
rates. :func:`measure` makes one data set of their results, a few numbers per run, which figures and claims take. It is
kept as cifar10-PRESET.nc (netCDF), beside the store of a sweep that was run here, or in the package (``recorded``).
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from surefoot._base.arguments import one_of
from surefoot._base.files import write_whole
from surefoot.study import Result, Study
from surefoot.theory import bounds

PRESETS = ("smoke", "start", "small", "medium", "paper")
"""From seconds to days. ``smoke`` trains a small network on digits, ``start`` takes the first 200 steps only."""
TRUSTED = ("paper", "start", "medium", "small")
"""The sizes that claims are judged by, the most trusted first. What is said of the first steps, ``start`` decides."""
EARLY = 100
"""The first steps: as many as the paper's warmup takes."""
COLUMNS = {
    "loss": "training loss at the last iterate x_T",
    "half_loss": "training loss after half the epochs",
    "end_loss": "training loss after the last step, at x_{T+1}",
    "valid_loss": "validation loss after the last step, at x_{T+1}",
    "batch_loss": "mean batch loss of the last epoch",
    "bound": "Ω_T with the sweep's D",
    "half_bound": "Ω of half the epochs",
    "noise": "part of Ω_T that does not depend on D",
    "travel": "‖x_T − x_1‖",
    "early_delta": f"largest δ_t of the first {EARLY} steps",
    "polyak": f"median of f/‖g‖² over the first {EARLY} steps",
    "least_polyak": f"smallest f/‖g‖² of the first {EARLY} steps",
    "first_polyak": "f/‖g‖² at the first step",
}
"""What is measured of every run."""
AT_THE_START = ("early_delta", "polyak", "least_polyak", "first_polyak", "delta")
"""What the first steps tell."""

Settings = dict[str, Any]


def _rates(low: float, high: float, count: int) -> list[float]:
    return [float(rate) for rate in np.logspace(low, high, count)]


_RESNET: Settings = {"problem": "resnet20", "lrs": _rates(-2, 2, 9), "seeds": 1, "epochs": 5, "batch_size": 128}
_DIGITS: Settings = {"problem": "digits-cnn", "lrs": _rates(-2, 2, 5), "seeds": 1, "epochs": 2, "batch_size": 64}
_COMMON: dict[str, Settings] = {
    "smoke": {**_DIGITS, "distance": 10.0},
    "start": {**_RESNET, "lrs": _rates(-1, 1, 3), "seeds": 3, "epochs": 1, "distance": 30.0},
    "small": {**_RESNET, "distance": 20.0},
    "medium": {**_RESNET, "lrs": _rates(-1, 1, 5), "distance": 30.0},
    "paper": {**_RESNET, "seeds": 3, "epochs": 20, "distance": 50.0},
}
_OPTIONS: dict[str, Settings] = {
    "start": {"rows": 25_600, "validation_rows": 1_000, "evaluated": 1_000},
    "small": {"rows": 10_000, "validation_rows": 2_000},
    "medium": {"validation_rows": 2_000, "evaluated": 10_000},
}


def sweep(preset: str, *, device: str = "cpu", data: str | None = None) -> dict[str, Settings]:
    """The settings of a sweep: the arguments of :class:`~surefoot.study.Study` by part; nothing is loaded or run.

    Args:
        preset: ``smoke``, ``start``, ``small``, ``medium`` or ``paper``.
        device: Where the runs train.
        data: Folder of CIFAR-10; by default it is looked for in the data folders.

    >>> parts = sweep("paper")
    >>> {part: settings["methods"] for part, settings in parts.items()}
    {'constant': ['sgd', 'sps', 'ngn', 'log-ngn'], 'warmup': ['sgd']}
    >>> parts["warmup"]["schedule"], parts["warmup"]["epochs"], parts["warmup"]["distance"]
    ('warmup(steps=100)', 20, 50.0)
    """
    options: Settings = {"device": device, **_OPTIONS.get(one_of("preset", preset, PRESETS), {})}
    if preset != "smoke":
        options["data"] = data
    common = {**_COMMON[preset], "problem_options": options}
    warmup = f"warmup(steps={10 if preset == 'smoke' else 100})"
    parts = {
        "constant": {**common, "methods": ["sgd", "sps", "ngn", "log-ngn"]},
        "warmup": {**common, "methods": ["sgd"], "schedule": warmup},
    }
    if preset in ("start", "medium"):  # what the claims need, and no more
        parts["constant"]["methods"] = ["sgd", "sps", "ngn"]
    if preset == "medium":  # half an hour per run
        parts["warmup"]["lrs"] = _rates(-0.5, 1, 4)
        parts["level"] = {**common, "methods": ["ngn(lower_bound=level)"], "lrs": _rates(0, 1, 2)}
    return parts


def run(
    preset: str,
    folder: Path,
    *,
    device: str = "cpu",
    data: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    processes: int | None = None,
) -> dict[str, Result]:
    """The results of a sweep by part; ``preset``, ``device`` and ``data`` are those of :func:`sweep`.

    Runs are kept in cifar10-PRESET.db in the folder, and only missing ones are computed. ``progress`` receives how many
    runs of the whole sweep are done, and how many there are to do.
    """
    planned = {part: Study(**settings) for part, settings in sweep(preset, device=device, data=data).items()}
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / f"cifar10-{preset}.db"
    todo = [study.plan(store).todo for study in planned.values()]
    results = {}
    for place, (part, study) in enumerate(planned.items()):

        def count(done: int, _: int, before: int = sum(todo[:place])) -> None:
            if progress is not None:
                progress(before + done, sum(todo))

        results[part] = study.run(store, progress=count, processes=processes)
    return results


def measure(preset: str, results: Mapping[str, Result]) -> xr.Dataset:
    """One number per run, over algorithm (``sgd+warmup`` with a warmup), lr and seed, for each of :data:`COLUMNS`.

    Traces that are drawn over time come along: ``delta`` over algorithm, rate, seed and step. NaN stands for what was
    not run. The attributes say what the runs are: a title, D, the epochs, and the loss that others
    are compared with. That is the loss of guessing, ln 10: ResNet20 starts far above it (3.8 on its first batch), so
    that rates would look good which have learned little more than to guess.
    """
    settings = sweep(preset)["constant"]
    measured = []
    for part, result in results.items():
        names = [f"{name}+warmup" if part == "warmup" else name for name in result.algorithms]
        measured.append(_numbers(result, settings["distance"]).assign_coords(algorithm=names))
    data = xr.concat(measured, "algorithm", join="outer")
    if preset == "start":
        data = data[list(AT_THE_START)]
    rows, epochs = settings["problem_options"].get("rows"), settings["epochs"]
    images = "digits" if preset == "smoke" else "all of CIFAR-10" if rows is None else f"{rows:,} images of CIFAR-10"
    title = "the first 200 steps" if preset == "start" else f"{images}, {epochs} epochs"
    about = {"title": title, "distance": settings["distance"], "epochs": epochs, "reference": math.log(10)}
    return data.assign_attrs(about)


def _numbers(result: Result, distance: float) -> xr.Dataset:
    data = result.dataset
    epochs, steps = data.sizes["epoch"] - 1, data.sizes["step"]
    per_epoch, half = steps // epochs, epochs // 2
    dims = ("algorithm", "seed", "lr")
    is_there = data.status != "missing"
    deltas = data.delta.where(is_there, 0.0).transpose(*dims, "step").values
    omega = bounds.last_iterate(result.rates, deltas, distance)
    # After half the epochs the loss is known at the iterate that follows them.
    early = half * per_epoch + 1
    half_omega = bounds.last_iterate(result.rates[:, :early], deltas[..., :early], distance)
    with np.errstate(all="ignore"):
        polyak = (data.loss / data.grad_sq).isel(step=slice(EARLY))
        polyak = polyak.where(np.isfinite(polyak))
        decades = np.log10(data.lr.values)
        drawn = data.lr.values[(abs(decades) < 1.1) & (abs(decades - np.round(decades)) < 0.01)]
        numbers = xr.Dataset(
            {
                "loss": data.last_loss,
                "half_loss": data.train_loss.sel(epoch=half, drop=True),
                "end_loss": data.train_loss.sel(epoch=epochs, drop=True),
                "valid_loss": data.valid_loss.sel(epoch=epochs, drop=True),
                "batch_loss": data.loss.isel(step=slice(-per_epoch, None)).mean("step"),
                "bound": (dims, omega.bias + omega.noise),
                "half_bound": (dims, half_omega.bias + half_omega.noise),
                "noise": (dims, omega.noise),
                "travel": data.distance.isel(step=-1, drop=True),
                "early_delta": data.delta.isel(step=slice(EARLY)).max("step"),
                "polyak": polyak.median("step"),
                "least_polyak": polyak.min("step"),
                "first_polyak": polyak.isel(step=0, drop=True),
            }
        ).where(is_there)
    return numbers.assign(delta=data.delta.sel(lr=drawn).rename(lr="rate"))


def write(data: xr.Dataset, path: Path) -> None:
    """Write the numbers of a sweep as netCDF; the file appears whole or not at all."""
    write_whole(path, bytes(data.to_netcdf(engine="scipy", format="NETCDF3_64BIT")), "the numbers of a sweep")


def read(path: Path | Traversable) -> xr.Dataset:
    """Read what :func:`write` wrote."""
    return xr.load_dataset(io.BytesIO(path.read_bytes()), engine="scipy")


def recorded(folder: Path | None = None, presets: Sequence[str] = TRUSTED) -> dict[str, xr.Dataset]:
    """The numbers of the sweep in every size that was run, in the folder or for the package, by preset.

    >>> recorded()["small"].algorithm.values.tolist()
    ['sgd', 'sps', 'ngn', 'log-ngn', 'sgd+warmup']
    """
    package = resources.files("surefoot.paper").joinpath("recorded")
    found = {}
    for preset in presets:
        for place in (package,) if folder is None else (folder, package):
            file = place.joinpath(f"cifar10-{preset}.nc")
            if file.is_file():
                found[preset] = read(file)
                break
    return found
