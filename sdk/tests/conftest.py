"""A live gateway, as in the end-to-end tests: a real server, and a judge that knows the answers."""

import pytest
from playing import Player

from tests.support.gateways.live_gateway import Gateway
from tests.system.e2e.conftest import gateway, log, shared_gateway

__all__ = ["gateway", "log", "shared_gateway"]


@pytest.fixture(params=["sync", "async"])
def play(request: pytest.FixtureRequest, gateway: Gateway) -> Player:
    return Player(gateway, request.param)
