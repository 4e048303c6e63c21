"""A gateway with data, a signed-in client and a browser. Browser tests must not be async: Playwright's synchronous API
can't run in a module whose tests have an event loop."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.gateways.browser import chromium, open_page, sign_in
from tests.support.gateways.live_gateway import Gateway, gateways
from tests.support.storage.dashboard_seed import events, play, write


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The shared gateway, with 300 requests of the last hours and those of ``played``."""
    gateway = Gateway(tmp_path_factory.mktemp("dashboard")).start()
    write(gateway.database, events(300))
    yield gateway
    gateway.close()


@pytest.fixture(scope="session")
def played(gateway: Gateway) -> dict[str, str]:
    """The ids of real requests to the shared gateway: ``fine``, ``false``, ``open``, ``stale``."""
    return play(gateway)


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Starts a separate gateway with other settings."""
    with gateways(tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    """A signed-in client of the shared gateway; it doesn't follow redirects."""
    with sign_in(gateway) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; skips the test if there is none."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, gateway: Gateway, client: httpx.Client) -> Iterator[Any]:
    """A signed-in page of the shared gateway. Console errors and requests to other hosts fail the test."""
    with open_page(browser, gateway, client) as page:
        yield page
