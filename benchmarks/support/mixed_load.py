"""The load for ``benchmarks.load_with_failures``: an upstream, clients, an administrator, and the results of their
requests.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import aiohttp

from benchmarks.soak import SENTENCES, TOKEN, frame

DOCUMENT = {"text": "The warranty covers 24 months from the date of purchase.", "relevance_score": 0.9, "age_days": 3}
STALE = {**DOCUMENT, "age_days": 4000}
ANSWER_S = 60.0
IN_FORCE_S = 10.0
"""The time limit for a change to take effect. Normally, a change takes far less time."""
WITHIN_S = 1.0
"""The time after which an administrator assumes, without confirmation, that every worker has applied a change."""


class Upstream:
    """Responds normally, and can simulate an outage by closing its port and resetting its connections."""

    def __init__(self) -> None:
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                body = json.loads(await reader.readexactly(int(length.group(1)) if length else 0))
                await (self._stream if body.get("stream") else self._whole)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for word in "".join(random.choices(SENTENCES, k=random.randint(2, 5))).split(" "):
            piece = frame({"content": f"{word} "})
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(random.random() * 0.04)
        piece = frame({}, "stop") + b"data: [DONE]\n\n"
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(piece), piece))
        await writer.drain()

    async def _whole(self, writer: asyncio.StreamWriter) -> None:
        message = {"role": "assistant", "content": "".join(random.choices(SENTENCES, k=3))}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        made = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(made)}\r\n\r\n"
        writer.write(f"{head}{made}".encode())
        await writer.drain()


@dataclass
class Seen:
    """The results of the requests. ``outage`` is the time span of the upstream's outage on the monotonic clock."""

    outcomes: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)
    without_id: int = 0
    unexpected: list[str] = field(default_factory=list)
    outage: tuple[float, float] = (float("inf"), float("-inf"))
    changes_ms: list[float] = field(default_factory=list)
    stale: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, outcome: str, began: float, *, own: bool = False) -> None:
        """Count an outcome. With ``own``, a failure is attributed to the gateway, unless it happened during the
        upstream's outage."""
        in_outage = began <= self.outage[1] and time.monotonic() >= self.outage[0]
        self.outcomes[f"{kind}: {outcome}{' in the outage' if own and in_outage else ''}"] += 1
        if own and not in_outage:
            self.unexpected.append(f"{kind}: {outcome}")


class Client:
    """Sends requests: half of them on reused connections, and each of the others on a new one."""

    def __init__(self, base: str, seen: Seen) -> None:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        self._base, self._seen = base, seen
        self._kept = aiohttp.ClientSession(timeout=timeout)
        self._fresh = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True, limit=0))

    async def aclose(self) -> None:
        await self._kept.close()
        await self._fresh.close()

    async def send(self, kind: str) -> None:
        began = time.monotonic()
        kept = random.random() < 0.5
        try:
            await self._exchange(self._kept if kept else self._fresh, kind, began)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            # An idle connection may be closed while the request is on its way; a client with reused connections retries
            # it.
            if kept and not isinstance(error, aiohttp.ClientConnectorError):
                self._seen.outcomes["idle connection was closed, request resent"] += 1
                await self._again(kind, began)
            else:
                self._seen.note(kind, f"{type(error).__name__} on a new connection", began, own=True)
        except (aiohttp.ClientError, TimeoutError) as error:
            self._seen.note(kind, type(error).__name__, began, own=True)

    async def _again(self, kind: str, began: float) -> None:
        try:
            await self._exchange(self._fresh, kind, began)
        except (aiohttp.ClientError, TimeoutError) as error:
            self._seen.note(kind, f"{type(error).__name__} on a new connection", began, own=True)

    async def _exchange(self, session: aiohttp.ClientSession, kind: str, began: float) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "stream": "stream" in kind}
        if kind == "hang-up":
            body["stream"] = True
        if not kind.startswith("passed"):
            body |= {"documents": [STALE if kind == "refused" else DOCUMENT], "grounding": {"agent": "desk"}}
        async with session.post(f"{self._base}/v1/chat/completions", json=body) as response:
            if request_id := response.headers.get("x-groundlane-request-id"):
                self._seen.ids.add(request_id)
            else:
                self._seen.without_id += 1
            if kind == "hang-up" and response.status == 200:
                await response.content.readany()
                response.close()
                self._seen.note(kind, "hung up", began)
                return
            text = await response.read()
            self._judge(kind, response.status, text, began)

    def _judge(self, kind: str, status: int, text: bytes, began: float) -> None:
        if status >= 500:
            self._seen.note(kind, str(status), began, own=True)
        elif kind == "refused":
            self._seen.note(kind, str(status), began, own=status != 400)
        elif status == 200 and "stream" in kind and (b"[DONE]" not in text or b'"error"' in text):
            self._seen.note(kind, "cut", began, own=True)
        else:
            self._seen.note(kind, str(status), began, own=status != 200)


class Administrator:
    """Repeatedly changes a policy and a key, and checks that every worker applies the change."""

    def __init__(self, base: str, seen: Seen) -> None:
        self._base, self._seen = base, seen
        self._admin = aiohttp.ClientSession(headers={"authorization": f"Bearer {TOKEN}"})
        self._asking = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0))

    async def aclose(self) -> None:
        await self._admin.close()
        await self._asking.close()

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        async with self._admin.request(method, f"{self._base}/admin/v1/{path}", json=body) as response:
            response.raise_for_status()
            return await response.json() if response.status != 204 else None

    async def prepare(self) -> str:
        desk = {"scope": {"agents": ["desk"]}}
        grounding = {"name": "grounding", "category": "grounding", "rules": {"contradiction_action": "block"}, **desk}
        await self.call("POST", "policies", grounding)
        await self.call("POST", "policies", {"name": "retrieval", "category": "retrieval", **desk})
        gate = {"name": "gate", "category": "retrieval", "scope": {"agents": ["gated"]}}
        return str((await self.call("POST", "policies", gate))["id"])

    async def work(self, gate: str) -> None:
        """Run one round after another until cancelled."""
        refusing = True
        while True:
            await asyncio.sleep(random.uniform(2, 6))
            refusing = not refusing
            try:
                await self._change_policy(gate, refusing)
                await self._change_key()
            except (aiohttp.ClientError, TimeoutError) as error:
                status = getattr(error, "status", type(error).__name__)
                self._seen.outcomes[f"administration: {status}"] += 1

    async def _change_policy(self, gate: str, refusing: bool) -> None:
        rules = {"action_on_stale_source": "block" if refusing else "warn"}
        changed = await self.call("PATCH", f"policies/{gate}", {"rules": rules})
        deadline = time.monotonic() + IN_FORCE_S
        while not (status := await self.call("GET", f"policies/{gate}/status"))["in_force"]:
            if time.monotonic() > deadline:
                self._seen.outcomes["administration: not in force in time"] += 1
                return
            await asyncio.sleep(0.05)
        at = datetime.fromisoformat(changed["updated_at"])
        slowest = max(datetime.fromisoformat(worker["loaded_at"]) for worker in status["workers"])
        self._seen.changes_ms.append((slowest - at).total_seconds() * 1e3)
        self._seen.outcomes["administration: policy changed"] += 1
        for _ in range(4):
            body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "documents": [STALE]}
            got = await self._ask(body | {"grounding": {"agent": "gated"}}, {})
            self._seen.stale["policies"] += got is not None and got < 500 and got != (400 if refusing else 200)

    async def _change_key(self) -> None:
        made = await self.call("POST", "keys", {"name": "mixed"})
        await asyncio.sleep(WITHIN_S)
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
        bearer = {"authorization": f"Bearer {made['key']}"}
        got = [await self._ask(body, bearer) for _ in range(2)]
        await self.call("DELETE", f"keys/{made['id']}")
        await asyncio.sleep(WITHIN_S)
        got += [await self._ask(body, bearer) for _ in range(2)]
        for found, wanted in zip(got, (200, 200, 401, 401), strict=True):
            self._seen.stale["keys"] += found is not None and found < 500 and found != wanted
        self._seen.outcomes["administration: key created and revoked"] += 1

    async def _ask(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> int | None:
        began = time.monotonic()
        try:
            async with self._asking.post(f"{self._base}/v1/chat/completions", json=body, headers=headers) as response:
                await response.read()
                if request_id := response.headers.get("x-groundlane-request-id"):
                    self._seen.ids.add(request_id)
                self._seen.note("administrator's request", str(response.status), began, own=response.status >= 500)
                return response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            self._seen.note("administrator's request", type(error).__name__, began, own=True)
            return None
