"""Retries: which failures, how often, where and when."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from app.config import UpstreamSpec
from app.errors import GatewayError, InvalidRequestError, UnknownModelError, UpstreamConnectError, UpstreamTimeoutError
from app.settings import UpstreamApi
from app.upstream import BodyFormat, RoutedResponse, UpstreamClient, UpstreamRequest, decoded
from app.upstream.provider import Content
from app.upstream.retry import pause, retry_after

pytestmark = pytest.mark.anyio

Step = int | httpx.Response | type[httpx.RequestError]
REFUSED, LOST, SILENT = httpx.ConnectError, httpx.ReadError, httpx.ReadTimeout


@dataclass
class Network:
    """Scripted upstreams: for each host a list of steps, the last of which is repeated."""

    script: dict[str, list[Step]]
    asked: list[str] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.host.removesuffix(".test")
        self.asked.append(name)
        self.requests.append(request)
        await request.aread()
        steps = self.script[name]
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        if isinstance(step, type):
            raise step("as scripted", request=request)
        response = step if isinstance(step, httpx.Response) else httpx.Response(step)
        return httpx.Response(response.status_code, headers=response.headers, stream=_Body(self.closed, name))


class _Body(httpx.AsyncByteStream):
    def __init__(self, closed: list[str], name: str) -> None:
        self._closed, self._name = closed, name

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"{}"

    async def aclose(self) -> None:
        self._closed.append(self._name)


@dataclass
class Bench:
    network: Network
    upstreams: UpstreamClient
    pauses: list[float]
    observed: list[str]

    async def send(self, content: Content = b"{}", **fields: Any) -> RoutedResponse:
        values: dict[str, Any] = {
            "method": "POST", "path": "/chat/completions", "headers": [], "accept_encoding": "identity",
            "model": "m", "repeatable": True, "content": content, **fields,
        }  # fmt: skip
        return await self.upstreams.send(UpstreamRequest(**values))


def bench(script: dict[str, list[Step]], specs: Sequence[UpstreamSpec]) -> Bench:
    network = Network(script)
    pauses: list[float] = []
    observed: list[str] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    upstreams = UpstreamClient(specs, transport=httpx.MockTransport(network), sleep=sleep, observe=observed.append)
    return Bench(network, upstreams, pauses, observed)


def spec(name: str, **fields: Any) -> UpstreamSpec:
    return UpstreamSpec(name=name, **{"base_url": f"http://{name}.test/v1", "retries": 2, **fields})


def one(*steps: Step, **fields: Any) -> Bench:
    return bench({"a": list(steps)}, [spec("a", **fields)])


@pytest.mark.parametrize(
    "failure", [REFUSED, httpx.ConnectTimeout, LOST, httpx.RemoteProtocolError, 502, 503, 504, 529]
)
async def test_temporary_failure_is_retried(failure: Step) -> None:
    at = one(failure, failure, 200)
    assert (await at.send()).response.status_code == 200
    assert at.network.asked == ["a"] * 3
    assert len(at.observed) == 2


@pytest.mark.parametrize("status", [200, 400, 401, 404, 422, 429, 500, 501])
async def test_other_responses_are_final(status: int) -> None:
    at = one(status)
    assert (await at.send()).response.status_code == status
    assert (at.network.asked, at.pauses, at.observed) == (["a"], [], [])


async def test_last_failure_is_returned_to_the_client() -> None:
    at = one(REFUSED, LOST, 503)
    assert (await at.send()).response.status_code == 503
    assert at.observed == ["connect", "connect"]
    at = one(503, 503, REFUSED)
    with pytest.raises(UpstreamConnectError):
        await at.send()
    assert at.observed == ["status_5xx", "status_5xx"]


async def test_without_retries_there_is_one_attempt() -> None:
    at = one(503, 200, retries=0)
    assert (await at.send()).response.status_code == 503


async def test_timeout_is_not_retried() -> None:
    at = one(SILENT, 200)
    with pytest.raises(UpstreamTimeoutError):
        await at.send()
    assert at.network.asked == ["a"]


@pytest.mark.parametrize(("failure", "attempts"), [(REFUSED, 3), (LOST, 1), (503, 1), (SILENT, 1)])
async def test_non_idempotent_request_is_retried_only_if_it_was_never_sent(failure: Step, attempts: int) -> None:
    at = one(failure)
    with pytest.raises(GatewayError) if isinstance(failure, type) else capture_logs():
        await at.send(repeatable=False)
    assert at.network.asked == ["a"] * attempts


async def test_streamed_body_is_never_sent_again() -> None:
    async def upload() -> AsyncIterator[bytes]:
        yield b"data"

    at = one(REFUSED, 200)
    with pytest.raises(UpstreamConnectError):
        await at.send(upload())
    assert at.network.asked == ["a"]


async def test_429_is_final_unless_configured_as_a_failure() -> None:
    limited = httpx.Response(429, headers={"retry-after": "3"})
    at = one(limited, 200, retry_429=True)
    assert (await at.send()).response.status_code == 200
    assert at.observed == ["status_4xx"]
    assert 3.0 < at.pauses[0] <= 3.25


async def test_retry_after_beyond_the_limit_is_not_waited_for() -> None:
    limited = httpx.Response(429, headers={"retry-after": "11"})
    at = one(limited, 200, retry_429=True)
    assert (await at.send()).response.status_code == 429
    assert at.pauses == []
    at = bench({"a": [limited], "b": [200]}, [spec("a", retry_429=True, fallback=("b",)), spec("b")])
    assert (await at.send()).upstream == "b"
    assert at.network.asked == ["a", "b"]


async def test_pauses_grow_with_jitter_within_bounds() -> None:
    at = one(503, retries=10)
    await at.send()
    assert len(at.pauses) == 10
    for number, seconds in enumerate(at.pauses):
        longest = min(4.0, 0.25 * 2**number)
        assert longest / 2 <= seconds <= longest
    assert len({pause(5, 0) for _ in range(20)}) > 1


async def test_fallback_is_called_with_its_own_model() -> None:
    at = bench(
        {"a": [503], "b": [REFUSED], "c": [200]},
        [spec("a", retries=1, fallback=("b", "c")), spec("b", retries=0), spec("c", alias={"m": "c-m"})],
    )
    forms: list[BodyFormat] = []

    def body(form: BodyFormat) -> bytes:
        forms.append(form)
        return f'{{"model":"{form.model}"}}'.encode()

    sent = await at.send(body)
    assert (sent.upstream, sent.model, sent.response.status_code) == ("c", "c-m", 200)
    assert at.network.asked == ["a", "a", "b", "c"]
    assert [request.content for request in at.network.requests] == [b'{"model":"m"}'] * 3 + [b'{"model":"c-m"}']
    assert [form.renamed for form in forms] == [False, False, False, True]


async def test_timeout_uses_the_fallback() -> None:
    at = bench({"a": [SILENT], "b": [200]}, [spec("a", fallback=("b",)), spec("b")])
    assert (await at.send()).upstream == "b"
    assert at.observed == ["timeout"]


async def test_final_response_uses_no_fallback() -> None:
    at = bench({"a": [400], "b": [200]}, [spec("a", fallback=("b",)), spec("b")])
    assert (await at.send()).response.status_code == 400


async def test_abandoned_responses_are_closed_and_the_final_one_stays_open() -> None:
    at = bench({"a": [503, 502], "b": [200]}, [spec("a", retries=1, fallback=("b",)), spec("b")])
    sent = await at.send()
    assert at.network.closed == ["a", "a"]
    assert [data async for data in decoded(sent.response)] == [b"{}"]


async def test_each_failed_attempt_is_logged_with_its_upstream() -> None:
    at = bench({"a": [503, REFUSED], "b": [200]}, [spec("a", retries=1, fallback=("b",)), spec("b")])
    with capture_logs() as lines:
        await at.send()
    assert [(line["event"], line["upstream"], line["kind"], line["http_status"]) for line in lines] == [
        ("upstream_attempt_failed", "a", "status_5xx", 503),
        ("upstream_attempt_failed", "a", "connect", None),
    ]


async def test_unserved_model_is_a_404_and_nothing_is_sent() -> None:
    at = bench({"a": [200]}, [spec("a", models=("x",))])
    with pytest.raises(UnknownModelError) as caught:
        await at.send()
    body = caught.value.body()["error"]
    assert (caught.value.status, body["code"], body["param"]) == (404, "model_not_found", "model")
    assert at.network.asked == []


CALLER = [("authorization", "Bearer caller"), ("x-api-key", "caller")]


async def test_keys_of_the_caller_reach_a_keyless_upstream_but_no_fallback() -> None:
    at = bench({"a": [503], "b": [200]}, [spec("a", retries=0, fallback=("b",)), spec("b")])
    await at.send(headers=CALLER)
    first, second = at.network.requests
    assert (first.headers["authorization"], first.headers["x-api-key"]) == ("Bearer caller", "caller")
    assert "caller" not in repr(second.headers.raw)


async def test_upstream_key_replaces_every_key_of_the_caller() -> None:
    at = one(200, key=SecretStr("sk-own"))
    await at.send(headers=CALLER)
    (request,) = at.network.requests
    assert request.headers["authorization"] == "Bearer sk-own"
    assert "caller" not in repr(request.headers.raw)


async def test_user_in_the_upstream_url_is_a_key() -> None:
    at = one(200, base_url="http://us%40er:p%3Aw@a.test/v1")
    await at.send(headers=CALLER)
    (request,) = at.network.requests
    assert request.headers["authorization"] == "Basic " + b64encode(b"us@er:p:w").decode()
    assert "x-api-key" not in request.headers


async def test_malformed_target_is_a_400() -> None:
    at = one(200)
    with pytest.raises(InvalidRequestError) as caught:
        await at.send(query="x" * 70_000)
    assert (caught.value.status, at.network.asked) == (400, [])


async def test_non_ascii_headers_pass() -> None:
    at = one(200)
    await at.send(headers=[("x-name", "J\xc3\xbcrgen")])
    assert (b"x-name", "Jürgen".encode()) in at.network.requests[0].headers.raw


async def test_cancelling_ends_the_pause_between_attempts() -> None:
    network = Network({"a": [503]})
    waiting = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    at = Bench(network, UpstreamClient([spec("a")], transport=httpx.MockTransport(network), sleep=sleep), [], [])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(at.send())
        await waiting.wait()
        task.cancel()
    assert task.cancelled()
    assert (network.asked, network.closed) == (["a"], ["a"])


async def test_health_is_counted_and_described_without_secrets() -> None:
    at = bench(
        {"a": [503, REFUSED, 200]},
        [spec("a", base_url="http://user:pw@a.test/v1", key=SecretStr("sk-own"), headers={"x-token": "hush"})],
    )
    await at.send()
    (shown,) = at.upstreams.describe()
    health = shown["health"]
    assert (health["attempts"], health["failures"], health["failures_in_a_row"]) == (3, 2, 0)
    assert (health["last_failure"], health["last_failure_at"] <= health["last_success_at"]) == ("connect", True)
    assert (shown["name"], shown["base_url"], shown["has_key"]) == ("a", "http://a.test/v1", True)
    assert not [secret for secret in ("sk-own", "pw", "hush") if secret in repr(shown)]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "2"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "."}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read_in_every_format(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_may_be_a_future_date() -> None:
    due = datetime.now(UTC) + timedelta(seconds=60)
    seconds = retry_after({"retry-after": format_datetime(due, usegmt=True)})
    assert seconds is not None
    assert 55 < seconds <= 60


async def test_client_knows_whether_routing_depends_on_the_model() -> None:
    def matters(*specs: UpstreamSpec) -> bool:
        return UpstreamClient(specs, transport=httpx.MockTransport(lambda _: httpx.Response(200))).by_model

    assert not matters(spec("a"))
    assert matters(spec("a"), spec("b"))
    assert matters(spec("a", alias={"x": "y"}))
    assert matters(spec("a", models=("x",)))
    assert matters(spec("a", api=UpstreamApi.AZURE, api_version="1"))
