"""A real Dask cluster for tests: a scheduler and workers, each a process of its own, on 127.0.0.1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from distributed import Client
from tests.processes import Program

SMALL = {
    "problem": "linear-regression",
    "methods": ["sgd", "sps"],
    "lrs": [0.01, 0.1],
    "seeds": 2,
    "epochs": 10,
    "batch_size": 5,
}
"""Settings of a study of a few short runs."""


@contextmanager
def cluster(folder, workers=2, **options):
    """Start a scheduler and workers with the ``dask`` command; gives what controls them."""
    started = Cluster(folder)
    try:
        for _ in range(workers):
            started.add_worker(**options)
        if workers:
            started.wait_for(workers)
        yield started
    finally:
        started.close()


class Cluster:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self._file = self.folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0",
                                     "--scheduler-file", self._file)  # fmt: skip
        self.workers = []
        deadline = time.monotonic() + 120
        while not self._file.exists() or not self._file.read_text():
            assert time.monotonic() < deadline, "the scheduler does not start"
            time.sleep(0.05)
        self.address = json.loads(self._file.read_text())["address"]

    def add_worker(self, *more, path=None):
        """A worker that is not started anew when it is killed; ``path`` comes first where it looks for modules."""
        arguments = ("worker", self.address, "--nthreads", "1", "--no-nanny", "--dashboard-address", "127.0.0.1:0",
                     *more)  # fmt: skip
        self.workers.append(self._start(*arguments, path=path))

    def wait_for(self, count):
        with Client(self.address, timeout=120, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=120)

    def kill_worker(self, place=0):
        """SIGKILL a worker, by default the one that was started first."""
        _end(self.workers.pop(place))

    def tasks_done(self):
        """How many tasks of ours were ever finished on this cluster."""
        return self.on_scheduler(
            lambda dask_scheduler: sum(
                prefix.state_counts["memory"]
                for name, prefix in dask_scheduler.task_prefixes.items()
                if name == "surefoot"
            )
        )

    def on_scheduler(self, function):
        with Client(self.address, timeout=120, set_as_default=False) as client:
            return client.run_on_scheduler(function)

    def close(self):
        for process in (*self.workers, self.scheduler):
            _end(process)

    def _start(self, *arguments, path=None):
        words = [*map(str, arguments), "--host", "127.0.0.1"]
        if path is None:
            return Program(f"import os\nos.chdir({str(self.folder)!r})\nfrom dask.__main__ import main\nmain()", *words)
        command = [sys.executable, "-m", "dask", *words]
        with (self.folder / "log").open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": str(path)}
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=environment)


def _end(process):
    with process:
        process.kill()
