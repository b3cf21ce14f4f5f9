"""The sweeps on networks in four sizes, from seconds to days, and the numbers of those that come with the package.

A sweep has several parts, one :class:`~surefoot.study.Study` each, because a study has one schedule and one grid of
rates. :func:`measure` puts the parts together as one data set: a few numbers per run, which figures and claims take.
They are kept as NAME-PRESET.csv, beside the store of a sweep that was run here, or in the package (``recorded``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from surefoot._base.arguments import one_of
from surefoot._base.files import write_whole
from surefoot._base.text import csv_text
from surefoot.study import Result, Study
from surefoot.theory import bounds, schedules

PRESETS = ("smoke", "small", "medium", "paper")
"""From seconds to days."""
TRUSTED = ("paper", "medium", "small")
"""The sizes whose runs are looked for if none is named, the most trusted first."""
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

TRAINED = {"characters": "A character model", "resnet20": "ResNet20 on {}", "digits-cnn": "A small network on digits"}
"""The problems of the sweeps in words."""

Settings = dict[str, Any]
Progress = Callable[[int, int], None]


def _rates(low: float, high: float, count: int) -> list[float]:
    return [float(rate) for rate in np.logspace(low, high, count)]


_RESNET: Settings = {"problem": "resnet20", "lrs": _rates(-2, 2, 9), "seeds": 1, "epochs": 5, "batch_size": 128}
_DIGITS: Settings = {"problem": "digits-cnn", "lrs": _rates(-2, 2, 5), "seeds": 1, "epochs": 2, "batch_size": 64}
_IMAGES: dict[str, Settings] = {
    "smoke": {**_DIGITS, "distance": 10.0},
    "small": {**_RESNET, "distance": 20.0},
    "medium": {**_RESNET, "lrs": _rates(-1, 1, 5), "distance": 30.0},
    "paper": {**_RESNET, "seeds": 3, "epochs": 20, "distance": 50.0},
}
_OPTIONS: dict[str, Settings] = {
    "small": {"rows": 10_000, "validation_rows": 2_000, "channels_last": True},
    "medium": {"validation_rows": 2_000, "evaluated": 10_000},
}


def sweep(name: str, preset: str, *, device: str = "cpu", data: str | None = None) -> dict[str, Settings]:
    """The settings of a sweep: the arguments of :class:`~surefoot.study.Study` by part; nothing is loaded or run.

    Args:
        name: ``cifar10``, ``cifar10-geometries`` or ``characters``.
        preset: ``smoke``, ``small``, ``medium`` or ``paper``.
        device: Where the runs train.
        data: Folder of CIFAR-10, or a text file; by default what the data folders hold.

    >>> cifar = sweep("cifar10", "paper")
    >>> {part: settings["methods"] for part, settings in cifar.items()}
    {'constant': ['sgd', 'sps', 'ngn', 'log-ngn'], 'warmup': ['sgd']}
    >>> cifar["warmup"]["schedule"], cifar["warmup"]["epochs"], cifar["warmup"]["distance"]
    ('warmup(steps=100)', 20, 50.0)
    """
    one_of("preset", preset, PRESETS)
    return SWEEPS[one_of("sweep", name, SWEEPS)](preset, device, data)


def _images(preset: str, device: str, data: str | None) -> Settings:
    """What the parts of a sweep on images share."""
    options: Settings = {"device": device}
    if preset != "smoke":
        options |= {"data": data, **_OPTIONS.get(preset, {})}
    if preset == "small":
        # In bfloat16 a step takes longer than in float32 on processors that know it, and some end the program.
        options["autocast"] = None if device.startswith("cpu") else "bfloat16"
    return {**_IMAGES[preset], "problem_options": options}


def _cifar10(preset: str, device: str, data: str | None) -> dict[str, Settings]:
    common = _images(preset, device, data)
    warmup = f"warmup(steps={10 if preset == 'smoke' else 100})"
    parts = {
        "constant": {**common, "methods": ["sgd", "sps", "ngn", "log-ngn"]},
        "warmup": {**common, "methods": ["sgd"], "schedule": warmup},
    }
    if preset == "medium":  # half an hour per run: what the claims need, and no more
        parts["constant"]["methods"] = ["sgd", "sps", "ngn"]
        parts["warmup"]["lrs"] = _rates(-0.5, 0.5, 3)
        parts["level"] = {**common, "methods": ["ngn(lower_bound=level)"], "lrs": _rates(0, 1, 2)}
    return parts


def _geometries(preset: str, device: str, data: str | None) -> dict[str, Settings]:
    common = _images(preset, device, data)
    if preset == "small":  # 25 runs of 156 steps: a quarter of an hour on two cores
        fewer = {"rows": 5_000, "evaluated": 1_000, "validation_rows": 1_000}
        common |= {"epochs": 2, "batch_size": 64, "problem_options": common["problem_options"] | fewer}
    return _beside_surefoot(preset, common, averaged=["sgd-momentum", "momo", "ngn-momentum"])


def _characters(preset: str, device: str, data: str | None) -> dict[str, Settings]:
    seeds, epochs = {"smoke": (1, 1), "small": (1, 5), "medium": (1, 10), "paper": (3, 20)}[preset]
    options = {"device": device, "data": data, **({"d": 24} if preset == "smoke" else {})}
    common = {"problem": "characters", "problem_options": options, "batch_size": 16, "seeds": seeds, "epochs": epochs}
    return _beside_surefoot(preset, common, plain=["sgd"])


def _beside_surefoot(preset: str, common: Settings, **plain: list[str]) -> dict[str, Settings]:
    """Parts with grids of their own: given methods, optimizers in Adam's metric, and Surefoot, which needs no rate."""
    methods = {**plain, "adam": ["adamw", "momo-adam", "ngn-adam"], "surefoot": ["surefoot"]}
    if preset in ("small", "medium"):  # the first and the last: what there was before, and ours
        methods = {name: list(dict.fromkeys([every[0], every[-1]])) for name, every in methods.items()}
    count = 3 if preset == "smoke" else 5
    usual, grids = _rates(-2, 2, count), {"adam": _rates(-4, 0, count), "surefoot": [1.0]}
    return {name: {**common, "methods": every, "lrs": grids.get(name, usual)} for name, every in methods.items()}


SWEEPS: dict[str, Callable[[str, str, str | None], dict[str, Settings]]] = {
    "cifar10": _cifar10,
    "cifar10-geometries": _geometries,
    "characters": _characters,
}


def run(
    name: str,
    preset: str,
    folder: Path,
    *,
    device: str = "cpu",
    data: str | None = None,
    progress: Progress | None = None,
    processes: int | None = None,
) -> dict[str, Result]:
    """The results of a sweep by part; ``name``, ``preset``, ``device`` and ``data`` are those of :func:`sweep`.

    Runs are kept in NAME-PRESET.db in the folder, and only missing ones are computed. ``progress`` receives how many
    runs of the whole sweep are done, and how many there are to do.
    """
    planned = {part: Study(**settings) for part, settings in sweep(name, preset, device=device, data=data).items()}
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / f"{name}-{preset}.db"
    todo = [study.plan(store).todo for study in planned.values()]
    results = {}
    for place, (part, study) in enumerate(planned.items()):
        count = False if progress is None else partial(_count, progress, sum(todo[:place]), sum(todo))
        results[part] = study.run(store, progress=count, processes=processes)
    return results


def _count(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    """Add the runs of one part to those of the parts before it."""
    progress(before + done, total)


def measure(name: str, preset: str, results: Mapping[str, Result]) -> xr.Dataset:
    """One number per run, over algorithm (``sgd+warmup`` with a warmup), lr and seed, for each of :data:`COLUMNS`.

    Traces that are drawn over time come along: ``delta`` over algorithm, rate and step, the mean over the seeds. NaN
    stands for what was not run or not measured.
    """
    parts = sweep(name, preset)
    measured = []
    for part, result in results.items():
        numbers = _numbers(result, parts[part].get("distance"))
        labels = [f"{method}+warmup" if part == "warmup" else method for method in numbers.algorithm.values]
        measured.append(numbers.assign_coords(algorithm=labels, part=("algorithm", [part] * len(labels))))
    first = next(iter(results.values()))
    return _described(xr.concat(measured, "algorithm", join="outer"), name, preset, first.initial_loss)


def _numbers(result: Result, distance: float | None) -> xr.Dataset:
    data = result.dataset
    epochs, steps = data.sizes["epoch"] - 1, data.sizes["step"]
    per_epoch, half = steps // epochs, epochs // 2
    dims = ("algorithm", "seed", "lr")
    rates = data.lr.values[:, None] * schedules.from_name(data.attrs["schedule"], steps)
    deltas = data.delta.transpose(*dims, "step").values
    # After half the epochs the loss is known at the iterate that follows them.
    early = half * per_epoch + 1
    omega = bounds.last_iterate(rates, deltas, distance or 0.0)
    half_omega = bounds.last_iterate(rates[:, :early], deltas[..., :early], distance or 0.0)
    known = 1.0 if distance else math.nan
    with np.errstate(all="ignore"):
        polyak = (data.loss / data.grad_sq).isel(step=slice(EARLY))
        polyak = polyak.where(np.isfinite(polyak))
        decades = np.log10(data.lr.values)
        drawn = data.lr.values[(abs(decades) < 1.1) & (abs(decades - np.round(decades)) < 0.01)]
        return xr.Dataset(
            {
                "loss": data.last_loss,
                "half_loss": data.train_loss.sel(epoch=half, drop=True),
                "end_loss": data.train_loss.sel(epoch=epochs, drop=True),
                "valid_loss": data.valid_loss.sel(epoch=epochs, drop=True),
                "batch_loss": data.loss.isel(step=slice(-per_epoch, None)).mean("step"),
                "bound": (dims, known * (omega.bias + omega.noise)),
                "half_bound": (dims, known * (half_omega.bias + half_omega.noise)),
                "noise": (dims, omega.noise),
                "travel": data.distance.isel(step=-1, drop=True),
                "early_delta": data.delta.isel(step=slice(EARLY)).max("step"),
                "polyak": polyak.median("step"),
                "least_polyak": polyak.min("step"),
                "first_polyak": polyak.isel(step=0, drop=True),
                "delta": data.delta.sel(lr=drawn).mean("seed").rename(lr="rate"),
            }
        )


def _described(data: xr.Dataset, name: str, preset: str, initial: float) -> xr.Dataset:
    """The data set with what it is about: a title, D, the epochs, and the loss that others are compared with.

    On images that is the loss of guessing, ln 10: ResNet20 starts far above it (3.8 on its first batch), so that rates
    would look good which have learned little more than to guess.
    """
    settings = next(iter(sweep(name, preset).values()))
    rows = settings["problem_options"].get("rows")
    images = "CIFAR-10" if rows is None else f"{rows:,} images of CIFAR-10"
    trained = TRAINED[settings["problem"]].format(images)
    seeds, epochs = data.sizes["seed"], settings["epochs"]
    words = f"{trained}: {epochs} epochs, batches of {settings['batch_size']}, {seeds} seed{'s' * (seeds > 1)}"
    reference = initial if name == "characters" else math.log(10)
    about = {"title": words, "preset": preset, "distance": settings.get("distance"), "epochs": epochs}
    return data.assign_attrs(about, reference=reference)


def write(data: xr.Dataset, path: Path) -> None:
    """Write the numbers of a sweep as CSV with one row per run; what was not measured is left empty."""
    frame = data.reset_coords(drop=True)[list(COLUMNS)].to_dataframe(["algorithm", "lr", "seed"]).dropna(how="all")
    rows = [
        (*run, *("" if np.isnan(value) else f"{value:.6g}" for value in numbers))
        for run, numbers in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    write_whole(path, csv_text(("algorithm", "lr", "seed", *COLUMNS), rows), "the numbers of a sweep")


def read(path: Path | Traversable, name: str, preset: str) -> xr.Dataset:
    """Read what :func:`write` wrote."""
    with path.open(encoding="utf-8") as file:
        frame = pd.read_csv(file, index_col=["algorithm", "lr", "seed"])
    labels = frame.index.unique("algorithm")
    data = frame.reindex(columns=list(COLUMNS)).to_xarray().sel(algorithm=labels)
    return _described(data, name, preset, math.nan)


def recorded(name: str, folder: Path | None = None, presets: Sequence[str] = TRUSTED) -> dict[str, xr.Dataset]:
    """The numbers of a sweep in every size that was run to its end, in the folder or for the package, by preset.

    >>> recorded("cifar10")["small"].algorithm.values.tolist()
    ['sgd', 'sps', 'ngn', 'log-ngn', 'sgd+warmup']
    """
    package = resources.files("surefoot.paper").joinpath("recorded")
    found = {}
    for preset in presets:
        file = f"{name}-{preset}.csv"
        if folder is not None and (folder / file).is_file():
            found[preset] = read(folder / file, name, preset)
        elif package.joinpath(file).is_file():
            here = read(package.joinpath(file), name, preset)
            found[preset] = here.assign_attrs(recorded="as recorded in the package")
    return found
