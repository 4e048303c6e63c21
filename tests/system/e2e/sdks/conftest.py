"""The kinds of clients of the OpenAI SDK, and the ways to request a reply."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.gateways.live_gateway import Gateway
from tests.system.e2e.sdks.openai_calls import Ask, Seen, ask_async, ask_sync, request_of


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest) -> Callable[[Gateway, bool, dict[str, Any]], Seen]:
    return ask_sync if request.param == "sync" else ask_async


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def ask(gateway: Gateway, client: Callable[[Gateway, bool, dict[str, Any]], Seen], stream: bool) -> Ask:
    """Sends a question with documents, for an agent, with the given SDK client and method."""

    def ask(agent: str | None = None, documents: list[dict[str, Any]] | None = None, **options: Any) -> Seen:
        return client(gateway, stream, request_of(agent, documents, **options))

    return ask
