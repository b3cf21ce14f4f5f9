"""Write the summary of a sweep on a network from its store, as it comes with the package.

    python scripts/record.py OUT/studies/cifar10-medium.db [-o src/surefoot/paper/recorded/cifar10-medium.csv]

One row a method and rate. Of a sweep that is not finished, every method has the rates all of whose runs are there.
Rows that are recorded already and that the store lacks are kept, so that a sweep can be run in parts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from surefoot.paper import presets, summary


def main() -> None:
    """Read, summarise, write."""
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description="Write the summary of a sweep from its store.")
    parser.add_argument("store", type=Path, help="NAME-PRESET.db, as `surefoot reproduce` keeps it")
    parser.add_argument("-o", "--out", type=Path, help="by default where the package has its records")
    arguments = parser.parse_args()
    name, _, preset = arguments.store.stem.rpartition("-")
    results = presets.stored(name, preset, arguments.store.parent)
    runs: dict[str, summary.Summary] = {}
    for part, result in (results or {}).items():
        for method in result.settings["methods"]:
            alone = result.of([method], result.settings["lrs"]).finished()
            if alone is not None:
                runs |= summary.summarise({part: alone})
    if not runs:
        sys.exit(f"{arguments.store} has no finished runs of {name} ({preset})")
    out = arguments.out or root / f"src/surefoot/paper/recorded/{name}-{preset}.csv"
    if out.exists():
        runs = summary.joined(summary.read(out), runs)
    summary.write(runs, out)
    print(f"wrote {out}: {', '.join(f'{label} at {len(found.lrs)} rates' for label, found in runs.items())}")


if __name__ == "__main__":
    main()
