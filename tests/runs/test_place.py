"""Where runs are computed: options of a place, addresses, and clusters that are started on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from surefoot.study import ClusterError, Study

pytest.importorskip("distributed")

from tests.processes import ready, wait_until
from tests.runs.dask_cluster import SMALL


def test_a_cluster_started_here_listens_on_this_machine_only(assert_same_bits):
    hosts, here = set(), psutil.Process()
    ready()  # whose process stays
    before = here.children()

    def look(done, total):
        for process in {here, *here.children(recursive=True)} - set(before):
            hosts.update(c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN)

    result = Study(**SMALL).run(engine="dask", processes=2, progress=look)
    assert hosts == {"127.0.0.1"}
    assert_same_bits(result.dataset, Study(**SMALL).run(processes=1).dataset)
    left = [process for process in here.children() if process not in before]
    assert not [process for process in left if "resource_tracker" not in " ".join(process.cmdline())]  # Python's own


def test_an_address_where_nobody_answers(monkeypatch):
    from surefoot.runs import _dask

    monkeypatch.setattr(_dask, "_CONNECT_SECONDS", 1)
    with pytest.raises(ClusterError, match=r"no Dask scheduler can be reached at 'tcp://127\.0\.0\.1:1'"):
        Study(**SMALL).run(engine="dask", address="tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"address must be like 'tcp://10\.0\.0\.1:8786', got 'nowhere'"):
        Study(**SMALL).run(engine="dask", address="nowhere")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "ray"}, "engine must be 'auto' or 'dask', got 'ray'"),
        ({"address": "tcp://127.0.0.1:1"}, "address is for engine='dask', got 'tcp://127.0.0.1:1'"),
        ({"gpus": 1}, "gpus is for engine='dask'"),
        ({"engine": "dask", "gpus": 1}, "gpus is for an existing cluster"),
        ({"engine": "dask", "cpus": 0}, "cpus must be a whole number of at least 1, got 0"),
        ({"engine": "dask", "address": 8786}, "address must be that of a Dask scheduler, .* got 8786"),
        ({"engine": "dask", "address": "tcp://a:1", "processes": 2}, "processes is for a cluster that is started here"),
    ],
)
def test_options_are_checked_first(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Study(**SMALL).run(tmp_path / "s.db", **options)
    assert not os.listdir(tmp_path)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "surefoot.runs._dask", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'surefoot\[dask\]'"):
        Study(**SMALL).run(engine="dask")


SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import torch
from surefoot.problems import NetworkProblem
from surefoot.study import Study

class Net(torch.nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs).tanh()

problem = NetworkProblem(lambda: Net(4, 3), (torch.eye(32, 4), torch.arange(32) % 3))
study = Study(problem, methods=["sgd", "ngn"], lrs=[0.1, 1.0], seeds=2, epochs={epochs}, batch_size=4)
result = study.run(sys.argv[1], engine=sys.argv[2])
print(result.dataset.loss.values.tobytes().hex())
"""


def script(*arguments, epochs=3, **options):
    command = [sys.executable, "-c", SCRIPT.format(epochs=epochs), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.slow
def test_a_network_of_a_plain_script_goes_to_the_workers(tmp_path):
    outputs = []
    for engine in ("auto", "dask"):
        with script(tmp_path / f"{engine}.db", engine) as process:
            outputs.append(process.communicate(timeout=120))
    assert outputs[0] == outputs[1]
    assert len(outputs[0][0]) > 1000


@pytest.mark.slow
def test_ctrl_c_ends_the_cluster_that_was_started(tmp_path):
    with script(tmp_path / "s.db", "dask", epochs=100_000, start_new_session=True) as process:
        wait_until(lambda: list(tmp_path.glob("s.db.runs/*.run")), process)
        workers = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
        _, message = process.communicate(timeout=30)
    assert message.count("Traceback") == 1
    assert "StudyInterrupted: interrupted after 0 of 8 runs; finished runs are kept" in message
    assert not psutil.wait_procs(workers, timeout=5)[1]
