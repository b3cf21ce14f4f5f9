"""Ending worker processes at any time."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from surefoot.study._processes import _end


def test_half_a_result_does_not_keep_python_from_ending():
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    assert pool.submit(abs, -1).result() == 1
    manager = pool._executor_manager_thread
    pool._result_queue._writer._send((16).to_bytes(4, "big") + b"half")  # a worker died while it sent 16 bytes
    _end(pool)
    manager.join(timeout=30)
    assert not manager.is_alive()
