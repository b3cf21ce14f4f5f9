"""Add the runs of a store to the numbers of a sweep on a network that come with the package.

    python scripts/record.py OUT/studies/cifar10-medium.db cifar10 medium [-o FILE.csv]

One row per run: algorithm, rate and seed, then what is measured of every run. Every study of the store is taken, so
that a sweep can be run in parts and on several machines; runs that are recorded already are replaced.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surefoot.paper import networks
from surefoot.study import Result


def results_of(store: Path) -> list[Result]:
    """The results of all studies of a store."""
    found: list[Result] = []
    while True:
        try:
            found.append(Result.load(store, study=len(found)))
        except (ValueError, LookupError):
            return found


def main() -> None:
    """Read, measure, join, write."""
    parser = argparse.ArgumentParser(description="Add the runs of a store to the numbers of a sweep.")
    parser.add_argument("store", type=Path, help="the file of one or more studies")
    parser.add_argument("sweep", help="cifar10, cifar10-geometries or characters")
    parser.add_argument("preset", help="smoke, small, medium or paper")
    parser.add_argument("-o", "--out", type=Path, help="by default where the package has its records")
    arguments = parser.parse_args()
    name = f"{arguments.sweep}-{arguments.preset}.csv"
    out = arguments.out or Path(__file__).resolve().parents[1] / "src/surefoot/paper/recorded" / name
    data = networks.read(out, arguments.sweep, arguments.preset) if out.exists() else None
    for result in results_of(arguments.store):
        warms_up = str(result.dataset.attrs["schedule"]).startswith("warmup")
        found = networks.measure(arguments.sweep, arguments.preset, {"warmup" if warms_up else "constant": result})
        found = found[list(networks.COLUMNS)].reset_coords(drop=True)
        data = found if data is None else found.combine_first(data)
    if data is None:
        raise SystemExit(f"{arguments.store} has no runs")
    networks.write(data, out)
    print(f"wrote {out}: {int(data.loss.notnull().sum())} runs")


if __name__ == "__main__":
    main()
