"""Small studies that many tests look at."""

import numpy as np
import pytest

from surefoot.study import Study

SETTINGS = {
    "methods": ["sgd", "sps", "ngn", "spp"],
    "lrs": np.logspace(-3, 2, 6),
    "seeds": 3,
    "epochs": 10,
    "batch_size": 5,
}


@pytest.fixture(scope="session")
def settings():
    return dict(SETTINGS)


@pytest.fixture(scope="session")
def make():
    """Makes the study of linear regression with some settings changed."""
    return lambda **changes: Study("linear-regression", **{**SETTINGS, **changes})


@pytest.fixture(scope="session")
def study(make):
    return make()


@pytest.fixture(scope="session")
def result(study):
    """Kept in memory; SGD diverges at the largest rates."""
    return study.run()


@pytest.fixture(autouse=True, scope="module")
def _quick_workers(ready_workers):
    """Worker processes start at once."""
