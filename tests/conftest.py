"""Test-wide settings: property tests are repeatable by default, thorough with HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=3000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# pytest runs one process a core: several threads in each would spin and wait for each other. Read when NumPy and torch
# are first imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


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
