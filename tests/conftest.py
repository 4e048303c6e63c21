import pytest
from hypothesis import HealthCheck, settings

# Properties concern results and not time, so a busy machine must not fail them.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
