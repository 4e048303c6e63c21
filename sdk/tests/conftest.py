"""A live gateway, that of the end-to-end tests: a real server, a judge that knows the answers."""

import pytest
from e2e.conftest import gateway, log, shared_gateway
from e2e.gateway import Gateway
from playing import Player

__all__ = ["gateway", "log", "shared_gateway"]


@pytest.fixture(params=["sync", "async"])
def play(request: pytest.FixtureRequest, gateway: Gateway) -> Player:
    return Player(gateway, request.param)
