import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from app.observability import configure_logging
from tests.support.gateways.live_gateway import Gateway, gateways
from tests.support.gateways.mock_upstream import ScriptedUpstream


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """The logs of these gateways, as in production."""
    root = logging.getLogger()
    handlers, level, configuration = root.handlers, root.level, structlog.get_config()
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    yield stream
    structlog.configure(**configuration)
    root.handlers, root.level = handlers, level


@pytest.fixture
def scripted() -> Iterator[ScriptedUpstream]:
    """An upstream alone."""
    upstream = ScriptedUpstream().start()
    yield upstream
    upstream.close()


@pytest.fixture(scope="session")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("gateway")).start()
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Iterator[Gateway]:
    """The gateway that most tests share, with its judge reset. A test's policies only apply to its own agent."""
    shared_gateway.reset()
    yield shared_gateway
    shared_gateway.judge.release()


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Starts a separate gateway with other settings."""
    with gateways(tmp_path) as start:
        yield start
