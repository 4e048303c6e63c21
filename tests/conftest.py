import pytest
from hypothesis import HealthCheck, settings

# A busy machine finds no fault: properties are held by what comes out, however long it takes.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
