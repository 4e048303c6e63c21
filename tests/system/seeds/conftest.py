from collections.abc import Iterator

import pytest

from tests.support.gateways.live_gateway import Gateway
from tests.system.e2e.conftest import gateway, log, shared_gateway, start_gateway

__all__ = ["gateway", "log", "shared_gateway", "start_gateway"]


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with the shipped judge."""
    gateway = Gateway(tmp_path_factory.mktemp("judged"), real_judge=True).start()
    yield gateway
    gateway.close()
