import pytest
from tests.forecast.forecast_cases import make


@pytest.fixture
def rows():
    return make()
