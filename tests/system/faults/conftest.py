from collections.abc import Iterator

import pytest

from tests.app.conftest import database_url, empty_url, event, open_database, postgres_tables, sqlite_url, until
from tests.support.gateways.live_gateway import Gateway
from tests.system.e2e.conftest import gateway, log, shared_gateway, start_gateway
from tests.system.faults.support.wire import RawUpstream

__all__ = [
    "database_url",
    "empty_url",
    "event",
    "gateway",
    "log",
    "open_database",
    "postgres_tables",
    "shared_gateway",
    "sqlite_url",
    "start_gateway",
    "until",
]

_UPSTREAMS = """
[[upstreams]]
name = "hasty"
base_url = "http://127.0.0.1:{port}/v1"
models = ["hasty"]
retries = 0
timeouts = {{ connect = 0.4, first_byte = 0.4, between_bytes = 0.4 }}

[[upstreams]]
name = "patient"
base_url = "http://127.0.0.1:{port}/v1"
retries = 0
timeouts = {{ connect = 30.0, first_byte = 30.0, between_bytes = 30.0 }}
"""


@pytest.fixture(scope="session")
def raw() -> Iterator[RawUpstream]:
    """A scripted upstream."""
    upstream = RawUpstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="session")
def faulty_gateway(raw: RawUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway in front of it, with the model ``hasty`` for short timeouts."""
    folder = tmp_path_factory.mktemp("faulty")
    config = folder / "groundlane.toml"
    config.write_text(_UPSTREAMS.format(port=raw.port), "utf-8")
    gateway = Gateway(folder, config=str(config), max_reply_bytes=1_000_000).start()
    yield gateway
    gateway.close()
