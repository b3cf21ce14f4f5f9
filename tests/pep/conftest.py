import importlib.util

import pytest

from surefoot.pep import CACHE_VARIABLE

# Without the extra surefoot[pep] there is nothing to test here.
collect_ignore_glob = [] if importlib.util.find_spec("PEPit") else ["test_*.py"]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """Tests solve their problems, and leave the user's cache alone."""
    monkeypatch.setenv(CACHE_VARIABLE, "off")
