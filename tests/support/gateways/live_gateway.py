"""A real gateway on a loopback port: uvicorn in a thread, a fresh SQLite file, and a judge that knows the answers."""

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn

from app.cli.http_protocol import HEAD_TIMEOUT_S, http_protocol
from app.main import create_app
from app.observability.tracing import Tracing
from app.settings import Settings
from tests.support.gateways.http_client import Call
from tests.support.gateways.mock_upstream import DEADLINE_S, SEND_BUFFER, ScriptedUpstream
from tests.support.judging.scripted_judge import KnowingJudge
from tests.support.storage.database_templates import put_tables

ADMIN_TOKEN = "admin-token-for-tests-only"
UPSTREAM_KEY = "sk-upstream-key-for-tests-only"
T = TypeVar("T")


def eventually(check: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Return the first result of ``check`` that isn't None. Fails at the deadline, with a message that names
    ``what``."""
    end = time.monotonic() + deadline_s
    tick = threading.Event()
    while (found := check()) is None:
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {deadline_s} s")
        tick.wait(0.01)
    return found


class Gateway:
    """The gateway under test, its upstream and its judge."""

    def __init__(
        self,
        folder: Path,
        *,
        real_judge: bool = False,
        tracing: Tracing | None = None,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        **settings: Any,
    ) -> None:
        self.upstream = ScriptedUpstream().start()
        self.judge = KnowingJudge()
        self.database = folder / "groundlane.db"
        if not self.database.exists():
            put_tables(self.database)
        values: dict[str, Any] = {
            "upstream_base_url": self.upstream.base_url,
            "upstream_api_key": UPSTREAM_KEY,
            "database_url": f"sqlite+aiosqlite:///{self.database}",
            "admin_token": ADMIN_TOKEN,
            "judge_cache_mb": 0,
            "policy_poll_s": 0.1,
            "shutdown_grace_s": 1.0,
            "store_text": "full",
            **settings,
        }
        self.settings = Settings(_env_file=None, **values)
        app = create_app(self.settings, scorer=None if real_judge else self.judge, tracing=tracing)
        self._socket = socket.socket()
        # Buffers are small, so that a client that stops reading causes backpressure after kilobytes.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop | None = None

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            self._loop = asyncio.get_running_loop()
            await app(scope, receive, send)

        config = uvicorn.Config(
            watched,
            log_config=None,
            lifespan="on",
            timeout_graceful_shutdown=2,
            http=http_protocol(self.settings, head_timeout_s=head_timeout_s),
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="gateway", daemon=True)
        self._names = itertools.count(1)
        self.admin = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/admin/v1",
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
            timeout=DEADLINE_S,
        )

    @property
    def base_url(self) -> str:
        """The options for an SDK."""
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> "Gateway":
        self._thread.start()
        eventually(self._up, "start of the gateway")
        return self

    def _up(self) -> bool | None:
        if not self._thread.is_alive():
            raise AssertionError("the gateway did not start; its log says why")
        return self._server.started or None

    def close(self) -> None:
        self.admin.close()
        self._server.should_exit = True
        self._thread.join(DEADLINE_S)
        self._socket.close()
        self.upstream.close()
        if self._thread.is_alive():
            raise AssertionError("the gateway did not stop")

    def reset(self) -> None:
        """Release and reset the judge after the previous test."""
        self.judge.release()
        self.judge.reset()

    def tasks(self) -> int:
        """The number of tasks on the gateway's event loop."""
        return len(asyncio.all_tasks(self._loop))

    # Policies

    def policy(self, category: str, rules: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """Create a policy and wait until it is in force."""
        body = {"name": f"{category} {next(self._names)}", "category": category, "rules": rules or {}, **fields}
        response = self.admin.post("/policies", json=body)
        if response.status_code != 201:
            raise AssertionError(f"{response.status_code}: {response.text}")
        policy: dict[str, Any] = response.json()
        return policy

    def agent(self, **rules: Mapping[str, Any]) -> str:
        """Create policies for a new agent, one for each named category, and return the agent's name."""
        name = f"agent-{next(self._names)}"
        for category, values in rules.items():
            self.policy(category, values, scope={"agents": [name]})
        return name

    # Requests

    def call(
        self,
        body: Any = None,
        *,
        path: str = "/v1/chat/completions",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Call:
        """Send a request, with ``body`` as JSON unless it is bytes."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body, ensure_ascii=False).encode()
        merged = {"content-type": "application/json", "authorization": "Bearer sk-client-key", **(headers or {})}
        return Call(self.port, method, path, data, merged, **options)

    # The event log

    def trace(self, request_id: str) -> "Trace":
        """Return the event log's data on a request as soon as it is available."""

        def look() -> dict[str, Any] | None:
            response = self.admin.get(f"/requests/{request_id}")
            if response.status_code == 404:
                return None
            response.raise_for_status()
            body: dict[str, Any] = response.json()
            return body

        return Trace(eventually(look, f"row of request {request_id}"))

    def rows(self, count: int, **filters: Any) -> list[dict[str, Any]]:
        """Return the matching request rows as soon as there are at least ``count``."""

        def look() -> list[dict[str, Any]] | None:
            response = self.admin.get("/requests", params={"limit": 200, **filters})
            response.raise_for_status()
            items: list[dict[str, Any]] = response.json()["items"]
            return items if len(items) >= count else None

        return eventually(look, f"{count} request rows")


class Trace:
    """All rows of one request in the event log."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.request: dict[str, Any] = body["request"]
        self.decisions: list[dict[str, Any]] = body["decisions"]
        self.documents: list[dict[str, Any]] = body["documents"]
        self.claims: list[dict[str, Any]] = [
            {"choice": sentence["choice"], "sentence_index": sentence["index"], **claim}
            for sentence in body["sentences"]
            for claim in sentence["claims"]
        ]

    def phases(self, category: str) -> list[str]:
        """Return the phases in which policies of ``category`` decided, in order."""
        return [decision["phase"] for decision in self.decisions if decision["category"] == category]


@contextmanager
def gateways(folder: Path) -> Iterator[Callable[..., Gateway]]:
    """Yield a function that starts a gateway with given settings in a folder of its own."""
    started: list[Gateway] = []

    def start(**settings: Any) -> Gateway:
        own = folder / f"gateway-{len(started)}"
        own.mkdir()
        gateway = Gateway(own, **settings)
        started.append(gateway)
        return gateway.start()

    yield start
    for gateway in started:
        gateway.close()
