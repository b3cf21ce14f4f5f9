"""Test-wide settings: property tests are repeatable by default, thorough with HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_ALWAYS: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", max_examples=50, derandomize=True, **_ALWAYS)
settings.register_profile("thorough", max_examples=3000, **_ALWAYS)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# pytest runs one process a core: several threads in each would spin and wait for each other. Read when NumPy and torch
# are first imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Some virtual machines list AMX among their instructions and do not run it: a product of bfloat16 matrices ends the
# process (SIGILL). oneDNN is told to do without, which changes nothing where it would not have used it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# A program that is started in the background ignores Ctrl-C, and so would all programs that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

from tests import processes  # noqa: E402  (it remembers the environment)


@pytest.fixture(scope="module")
def ready_workers():
    """Processes that the package spawns are forked from a ready one; tests of workers and plain scripts do without."""
    with processes.ready_when_spawned():
        yield


@pytest.fixture(scope="session")
def assert_same_bits():
    """Checks that two data sets have the same bits in every variable."""

    def check(one, other):
        assert list(one.variables) == list(other.variables)
        for name in one.variables:
            assert one[name].dims == other[name].dims
            assert one[name].values.tobytes() == other[name].values.tobytes(), name

    return check


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium with a fresh profile, driven by Playwright; no browser is downloaded.

    One a module: Playwright's event loop must not outlive the tests that use it.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    chromium = os.environ.get("SUREFOOT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    flags = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=flags)
        yield running
        running.close()
