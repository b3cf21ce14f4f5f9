import pytest
from tests.forecasting.forecast_cases import make


@pytest.fixture
def rows():
    return make()
