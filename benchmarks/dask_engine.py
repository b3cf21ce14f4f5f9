"""What Dask adds on one machine: the same sweep on a network, by worker processes and by a Dask cluster started here.

python benchmarks/dask_engine.py [--seconds 60] [--turns 1]

Two runs a core, each about as long as asked for; the time is that of the whole ``study.run``, starting and ending the
workers included. Both engines keep all runs in a store, and give the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from surefoot.study import Study
from surefoot.study._execute import cores

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


def timed(study: Study, engine: str, processes: int) -> tuple[float, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        result = study.run(Path(folder, "study.db"), engine=engine, processes=processes)
        seconds = time.perf_counter() - begin
        return seconds, result.dataset.loss.values.tobytes()


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
    times: dict[str, list[float]] = {"auto": [], "dask": []}
    losses = set()
    for _ in range(arguments.turns):
        for engine, taken in times.items():
            seconds, loss = timed(study, engine, cores())
            taken.append(seconds)
            losses.add(loss)
    auto, dask = (statistics.median(times[engine]) for engine in ("auto", "dask"))
    table = Table("runs", "epochs a run", "processes", "Dask", "ratio", "must", "met", "same bits")
    table.add_row(
        str(2 * cores()),
        str(epochs),
        f"{auto:.1f} s",
        f"{dask:.1f} s",
        f"{dask / auto:.3f}",
        f"≤ {LIMIT}",
        "yes" if dask / auto <= LIMIT else "no",
        "yes" if len(losses) == 1 else "no",
    )
    Console().print(table)


if __name__ == "__main__":
    main()
