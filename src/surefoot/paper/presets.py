"""The studies of networks in four sizes: ``paper`` (as it was run), ``medium`` and ``small`` (two cores), ``smoke``.

A sweep has several parts, one :class:`~surefoot.study.Study` each, because a study has one schedule and one grid of
rates. All parts of a sweep share a file, so that whatever was interrupted goes on where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._base.arguments import one_of
from surefoot.paper.curves import Found
from surefoot.runs import Store
from surefoot.study import Result, Study

PRESETS = ("smoke", "small", "medium", "paper")
"""From seconds to days."""
DEFAULT = "small"

Progress = Callable[[int, int], None]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """A sweep on a network: its parts, and how it is shown."""

    problem: str
    """What is trained, in words."""
    parts: Mapping[str, Settings]
    """Arguments of :class:`~surefoot.study.Study`, by the part's name."""
    reference: float | None
    """What losses are compared with: the loss of guessing, ln(classes). ResNet20 starts far above it (3.8 on its first
    batch), so that rates would look good which have learned little more than to guess. None: the loss at the start."""
    rates: tuple[float, ...]
    """Rates whose traces are drawn over time."""


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


def check(preset: str) -> None:
    """Refuse a preset that there is not."""
    one_of("preset", preset, PRESETS)


def sweep(name: str, preset: str = DEFAULT, *, device: str = "cpu", data: str | None = None) -> Sweep:
    """The settings of a sweep; nothing is loaded or run.

    Args:
        name: ``cifar10``, ``cifar10-geometries`` or ``characters``.
        preset: ``smoke``, ``small``, ``medium`` or ``paper``.
        device: Where the runs train.
        data: Folder or archive of CIFAR-10, or a text file; by default what the data folders hold.

    >>> cifar = sweep("cifar10", "paper")
    >>> {part: settings["methods"] for part, settings in cifar.parts.items()}
    {'constant': ['sgd', 'sps', 'ngn', 'log-ngn'], 'warmup': ['sgd']}
    >>> cifar.parts["warmup"]["schedule"], cifar.parts["warmup"]["epochs"], cifar.parts["warmup"]["distance"]
    ('warmup(steps=100)', 20, 50.0)
    """
    check(preset)
    return _SWEEPS[one_of("sweep", name, _SWEEPS)](preset, device, data)


def described(swept: Sweep) -> str:
    """What a sweep trains, and for how long, in words.

    >>> described(sweep("cifar10", "small"))
    'ResNet20 on 10,000 images of CIFAR-10: 5 epochs, batches of 128, 1 data order'
    """
    settings = next(iter(swept.parts.values()))
    epochs, seeds = settings["epochs"], settings["seeds"]
    orders = seeds if isinstance(seeds, int) else len(seeds)
    words = (f"{epochs} epoch{'s' * (epochs > 1)}", f"batches of {settings['batch_size']}")
    return f"{swept.problem}: {', '.join(words)}, {orders} data order{'s' * (orders > 1)}"


def studies(name: str, preset: str = DEFAULT, *, device: str = "cpu", data: str | None = None) -> dict[str, Study]:
    """The studies of a sweep by part; arguments as in :func:`sweep`."""
    parts = sweep(name, preset, device=device, data=data).parts
    return {part: Study(**settings) for part, settings in parts.items()}


def store_of(name: str, preset: str, folder: Path) -> Path:
    """The file that keeps a sweep."""
    return folder / f"{name}-{preset}.db"


def run(
    name: str,
    preset: str = DEFAULT,
    folder: Path | None = None,
    *,
    device: str = "cpu",
    data: str | None = None,
    progress: Progress | None = None,
    processes: int | None = None,
) -> dict[str, Result]:
    """The results of a sweep by part; ``name``, ``preset``, ``device`` and ``data`` are those of :func:`sweep`.

    With a folder its runs are kept there, in NAME-PRESET.db, and only missing ones are computed. ``progress`` is told
    how many runs of the whole sweep are done, and how many there are to do.
    """
    planned = studies(name, preset, device=device, data=data)
    store = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        store = store_of(name, preset, folder)
    left = [study.plan(store).todo for study in planned.values()]
    results = {}
    for place, (part, study) in enumerate(planned.items()):
        told = False if progress is None else partial(_tell, progress, sum(left[:place]), sum(left))
        results[part] = study.run(store, progress=told, processes=processes)
    return results


def _tell(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    """Count the runs of one part to those of the parts before it."""
    progress(before + done, total)


def stored(name: str, preset: str, folder: Path) -> dict[str, Result] | None:
    """The results of a sweep that a folder holds, from its file alone, by part; None if there is none.

    Neither data nor problem are needed. Runs that are not finished yet have the status ``missing``.
    """
    path = store_of(name, preset, folder)
    if not path.exists():
        return None
    with Store.read(path) as opened:
        loaded = [Result.load(path, study=position) for position in range(len(opened.studies()))]
    found = {part: _joined(loaded, settings) for part, settings in sweep(name, preset).parts.items()}
    return {part: result for part, result in found.items() if result is not None} or None


def finished(name: str, preset: str, folder: Path) -> dict[str, Result] | None:
    """What a folder holds of a sweep that may not be complete: methods and rates all of whose runs are there.

    Parts whose rates are too few to speak of a window are left out: less than five, or none in the last decade.
    """
    found = stored(name, preset, folder) or {}
    planned = sweep(name, preset).parts
    enough: Found[Result] = Found()
    for part, result in found.items():
        complete, lrs = result.finished(), planned[part]["lrs"]
        if complete is not None and len(complete.lrs) >= min(5, len(lrs)) and 10 * complete.lrs[-1] > 0.999 * lrs[-1]:
            enough[part] = complete
    return enough or None


def _joined(loaded: list[Result], wanted: Settings) -> Result | None:
    """The study of a part that was started last, or what smaller ones, of some of its methods and rates, add up to."""
    seeds = wanted["seeds"]
    same = {
        "seeds": list(range(seeds)) if isinstance(seeds, int) else seeds,
        "schedule": wanted.get("schedule", "constant"),
        **{key: wanted[key] for key in ("epochs", "batch_size")},
    }
    parts = [
        result
        for result in loaded
        if same == {key: result.settings[key] for key in same}
        and set(result.algorithms) <= set(wanted["methods"])
        and set(result.settings["lrs"]) <= set(wanted["lrs"])
    ]
    whole = [part for part in parts if (part.algorithms, part.settings["lrs"]) == (wanted["methods"], wanted["lrs"])]
    if whole or not parts:
        return whole[-1] if whole else None
    methods = {method["name"]: method for part in parts for method in part.settings["methods"]}
    return parts[-1].of([methods[name] for name in wanted["methods"] if name in methods], wanted["lrs"])


def _image_settings(preset: str, device: str, data: str | None) -> Settings:
    """What the parts of a sweep on images share."""
    options: Settings = {"device": device}
    if preset != "smoke":
        options |= {"data": data, **_OPTIONS.get(preset, {})}
    if preset == "small":
        # In bfloat16 a step takes longer than in float32 on processors that know it, and some end the program.
        options["autocast"] = None if device.startswith("cpu") else "bfloat16"
    return {**_IMAGES[preset], "problem_options": options}


def _image_sweep(preset: str, parts: Mapping[str, Settings]) -> Sweep:
    largest = 10**0.5 if preset == "medium" else 10.0  # that all methods were run at
    rows = next(iter(parts.values()))["problem_options"].get("rows")
    images = "CIFAR-10" if rows is None else f"{rows:,} images of CIFAR-10"
    trained = "a small network on digits" if preset == "smoke" else f"ResNet20 on {images}"
    return Sweep(trained, parts, math.log(10), (1 / largest, 1.0, largest))


def _cifar10(preset: str, device: str, data: str | None) -> Sweep:
    common = _image_settings(preset, device, data)
    warmup = f"warmup(steps={10 if preset == 'smoke' else 100})"
    parts = {
        "constant": {**common, "methods": ["sgd", "sps", "ngn", "log-ngn"]},
        "warmup": {**common, "methods": ["sgd"], "schedule": warmup},
    }
    if preset == "medium":  # half an hour a run: what the claims need, and no more
        parts["constant"]["methods"] = ["sgd", "sps", "ngn"]
        parts["warmup"]["lrs"] = _rates(-0.5, 0.5, 3)
        parts["level"] = {**common, "methods": ["ngn(lower_bound=level)"], "lrs": _rates(0, 1, 2)}
    return _image_sweep(preset, parts)


def _geometries(preset: str, device: str, data: str | None) -> Sweep:
    common = _image_settings(preset, device, data)
    if preset == "small":  # 25 runs of 156 steps, which tell what rates hold: a quarter of an hour of two cores
        fewer = {"rows": 5_000, "evaluated": 1_000, "validation_rows": 1_000}
        common |= {"epochs": 2, "batch_size": 64, "problem_options": common["problem_options"] | fewer}
    averaged = ["sgd-momentum", "momo", "ngn-momentum"]
    return _image_sweep(preset, _beside_surefoot(preset, common, averaged=averaged))


def _characters(preset: str, device: str, data: str | None) -> Sweep:
    seeds, epochs = {"smoke": (1, 1), "small": (1, 5), "medium": (1, 10), "paper": (3, 20)}[preset]
    options = {"device": device, "data": data, **({"d": 24} if preset == "smoke" else {})}
    common = {"problem": "characters", "problem_options": options, "batch_size": 16, "seeds": seeds, "epochs": epochs}
    return Sweep("a character model", _beside_surefoot(preset, common, plain=["sgd"]), None, (1e-2, 1e-1, 1.0))


def _beside_surefoot(preset: str, common: Settings, **plain: list[str]) -> dict[str, Settings]:
    """Parts with grids of their own: given methods, the rows in Adam's metric, and Surefoot, whose rate is a cap."""
    methods = {**plain, "adam": ["adamw", "momo-adam", "sps-adam", "ngn-adam"], "surefoot": ["surefoot"]}
    if preset in ("small", "medium"):  # the first and the last: what there was before, and ours
        methods = {name: list(dict.fromkeys([every[0], every[-1]])) for name, every in methods.items()}
    count = 3 if preset == "smoke" else 5
    usual, grids = _rates(-2, 2, count), {"adam": _rates(-4, 0, count), "surefoot": _rates(-1, 3, count)}
    return {name: {**common, "methods": every, "lrs": grids.get(name, usual)} for name, every in methods.items()}


_SWEEPS: dict[str, Callable[[str, str, str | None], Sweep]] = {
    "cifar10": _cifar10,
    "cifar10-geometries": _geometries,
    "characters": _characters,
}
