"""What Dask adds on one machine: the same sweep on a network, by worker processes and by a Dask cluster started here.

python benchmarks/dask_engine.py [--seconds 60] [--turns 1]

Two runs a core, each about as long as asked for; the time is that of the whole ``study.run``, starting and ending the
workers included. Both engines keep all runs in a store, and give the same bits. The seconds of the processors, of all
processes together, tell more than those of the clock where other work goes on beside.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from surefoot._base.processes import cores
from surefoot.study import Study

LIMIT = 1.05


def sweep(epochs: int, seeds: int) -> Study:
    return Study(
        "digits-cnn",
        methods=["ngn"],
        lrs=[0.1],
        seeds=seeds,
        epochs=epochs,
        batch_size=64,
        problem_options={"threads": 1},
    )


class Cost(NamedTuple):
    """Seconds of a sweep."""

    clock: float
    processors: float


def timed(study: Study, engine: str, processes: int) -> tuple[Cost, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        clock, processors = time.perf_counter(), _processors()
        result = study.run(Path(folder, "study.db"), engine=engine, processes=processes)
        cost = Cost(time.perf_counter() - clock, _processors() - processors)
        return cost, result.dataset.loss.values.tobytes()


def _processors() -> float:
    """Seconds that the processors have worked for this process and those that it has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def epochs_for(seconds: float) -> int:
    """Epochs that take about so long when all cores are busy."""
    begin, few = time.perf_counter(), 4
    sweep(few, 1).run(processes=1)
    return max(1, round(few * seconds / (time.perf_counter() - begin)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long a run takes")
    parser.add_argument("--turns", type=int, default=1, help="how often each engine is timed, in turn")
    arguments = parser.parse_args()
    sweep(1, 1).run(processes=1)  # what is imported and read once
    epochs = epochs_for(arguments.seconds)
    study = sweep(epochs, 2 * cores())
    costs: dict[str, list[Cost]] = {"auto": [], "dask": []}
    losses = set()
    for _ in range(arguments.turns):
        for engine, found in costs.items():
            cost, loss = timed(study, engine, cores())
            found.append(cost)
            losses.add(loss)
    table = Table(f"{2 * cores()} runs of {epochs} epochs", "processes", "Dask", "ratio", "must", "met")
    for name in Cost._fields:
        auto, dask = (statistics.median(getattr(cost, name) for cost in costs[engine]) for engine in costs)
        met = "yes" if dask / auto <= LIMIT else "NO"
        table.add_row(f"seconds, {name}", f"{auto:.1f}", f"{dask:.1f}", f"{dask / auto:.3f}", f"≤ {LIMIT}", met)
    table.add_row("same bits", "", "", "", "", "yes" if len(losses) == 1 else "NO")
    Console().print(table)


if __name__ == "__main__":
    main()
