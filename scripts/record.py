"""Add the runs of a store to the numbers of the sweep on CIFAR-10 that come with the package.

    python scripts/record.py OUT/studies/cifar10-medium.db medium [-o FILE.nc]

Every study of the store is taken, so that a sweep can be run in parts and on several machines; runs that are recorded
already are replaced.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

from surefoot.paper import cifar10
from surefoot.study import Result


def results_of(store: Path) -> Iterator[Result]:
    """The results of all studies of a store."""
    for study in itertools.count():
        try:
            yield Result.load(store, study=study)
        except (ValueError, LookupError):
            return


def main() -> None:
    """Read, measure, join, write."""
    parser = argparse.ArgumentParser(description="Add the runs of a store to the numbers of the sweep.")
    parser.add_argument("store", type=Path, help="the file of one or more studies")
    parser.add_argument("preset", choices=cifar10.PRESETS)
    parser.add_argument("-o", "--out", type=Path, help="by default where the package has its records")
    arguments = parser.parse_args()
    name = f"cifar10-{arguments.preset}.nc"
    out = arguments.out or Path(__file__).resolve().parents[1] / "src/surefoot/paper/recorded" / name
    data = cifar10.read(out) if out.exists() else None
    for result in results_of(arguments.store):
        part = "warmup" if str(result.dataset.attrs["schedule"]).startswith("warmup") else "constant"
        found = cifar10.measure(arguments.preset, {part: result})
        data = found if data is None else found.combine_first(data)
    if data is None:
        raise SystemExit(f"{arguments.store} has no runs")
    data = data.dropna("seed", how="all", subset=["early_delta"])  # seeds that were begun, and no more
    cifar10.write(data, out)
    print(f"wrote {out}: {int(data.early_delta.notnull().sum())} runs")


if __name__ == "__main__":
    main()
