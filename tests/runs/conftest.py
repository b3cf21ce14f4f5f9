"""Settings of all tests of runs."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_workers(ready_workers):
    """Worker processes start at once."""
