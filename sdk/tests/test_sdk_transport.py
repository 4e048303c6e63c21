"""Tests requests, retries and their delays, and the handling of invalid responses."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from groundlane import (
    AsyncGroundlane,
    GatewayStatusError,
    GatewayTimeoutError,
    GatewayUnreachableError,
    Groundlane,
    GroundlaneError,
    UnexpectedAnswerError,
)

KEY = "gl-abcdefgh-secret"
GROUNDED = {"grounded": True, "claims": [], "total_claims": 0, "summary": "nothing to check"}
Answer = httpx.Response | type[httpx.TransportError]


class Server:
    """Gives scripted answers in turn, and records the requests and the client's delays."""

    def __init__(self, *answers: Answer, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = list(answers)
        self.kind = kind
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        monkeypatch.setattr("groundlane._session.time.sleep", self.slept.append)
        monkeypatch.setattr("groundlane._session.anyio.sleep", sleep)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, httpx.Response):
            return answer
        raise answer("it broke", request=request)

    def ask(self, call: Callable[[Any], Any], **options: Any) -> Any:
        """Return the result of ``call`` with a client of this server."""
        transport = httpx.MockTransport(self.handle)
        arguments = {"base_url": "http://gateway.test/v1/", "api_key": KEY, **options}
        if self.kind == "sync":
            with Groundlane(**arguments, http_client=httpx.Client(transport=transport)) as client:
                return call(client)

        async def ask() -> Any:
            async with AsyncGroundlane(**arguments, http_client=httpx.AsyncClient(transport=transport)) as client:
                return await call(client)

        return asyncio.run(ask())


@pytest.fixture(params=["sync", "async"])
def serve(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Server]:
    return lambda *answers: Server(*answers, kind=request.param, monkeypatch=monkeypatch)


def check(client: Any) -> Any:
    return client.check("It rains.", ["It rains."])


def record(client: Any) -> Any:
    """Perform a run with one record and return its error."""
    if isinstance(client, Groundlane):
        with client.run("agent") as run:
            return run.record_grounding([0.5])

    async def go() -> Any:
        async with client.run("agent") as run:
            return await run.record_grounding([0.5])

    return go()


def ok(body: Any = GROUNDED) -> httpx.Response:
    return httpx.Response(200, json=body)


def failed(status: int, **headers: str) -> httpx.Response:
    body = {"error": {"message": "no", "type": "server_error", "code": "c", "param": "p"}}
    return httpx.Response(status, json=body, headers=headers)


def test_check_request_matches_the_api(serve: Callable[..., Server]) -> None:
    server = serve(ok())
    result = server.ask(lambda client: client.check("It rains.", ["It rains."], options={"max_claims": 3}))
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("POST", "http://gateway.test/v1/grounding/check")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["user-agent"].startswith("groundlane-python/")
    assert request.read() == b'{"text":"It rains.","sources":["It rains."],"options":{"max_claims":3}}'
    assert (result.grounded, result.summary) == (True, "nothing to check")


@pytest.mark.parametrize("first", [httpx.ReadError, httpx.ReadTimeout, httpx.ConnectError, 429, 502, 503, 504])
def test_failed_check_is_retried(serve: Callable[..., Server], first: type[httpx.TransportError] | int) -> None:
    server = serve(failed(first) if isinstance(first, int) else first, ok())
    assert server.ask(check).grounded
    assert len(server.requests) == 2
    assert 0.375 <= server.slept[0] <= 0.5


def test_retry_delays_grow_and_the_last_error_is_raised(serve: Callable[..., Server]) -> None:
    server = serve(*[failed(503) for _ in range(4)])
    with pytest.raises(GatewayStatusError, match="no") as raised:
        server.ask(check, max_retries=3)
    assert (raised.value.status, raised.value.code, raised.value.param) == (503, "c", "p")
    assert [round(delay / 0.5) for delay in server.slept] in ([1, 2, 4], [1, 2, 3])


def test_retries_can_be_turned_off(serve: Callable[..., Server]) -> None:
    server = serve(failed(503))
    with pytest.raises(GatewayStatusError):
        server.ask(check, max_retries=0)
    assert server.slept == []


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 500])
def test_permanent_errors_are_not_retried(serve: Callable[..., Server], status: int) -> None:
    server = serve(failed(status))
    with pytest.raises(GatewayStatusError) as raised:
        server.ask(check)
    assert raised.value.status == status
    assert len(server.requests) == 1


def test_retry_after_of_the_gateway_is_respected(serve: Callable[..., Server]) -> None:
    server = serve(failed(429, **{"retry-after": "7"}), ok())
    assert server.ask(check).grounded
    assert server.slept == [7.0]


def test_long_retry_after_is_left_to_the_caller(serve: Callable[..., Server]) -> None:
    server = serve(failed(429, **{"retry-after": "3600"}))
    with pytest.raises(GatewayStatusError) as raised:
        server.ask(check)
    assert raised.value.retry_after == 3600
    assert server.slept == []


def test_starting_a_run_is_not_retried(serve: Callable[..., Server]) -> None:
    server = serve(httpx.ReadTimeout)
    with pytest.raises(GatewayTimeoutError, match=r"http://gateway\.test did not respond in time"):
        server.ask(record)
    assert len(server.requests) == 1


def test_retried_record_has_the_same_idempotency_key(serve: Callable[..., Server]) -> None:
    begun, recorded = ok({"run_id": "run_1", "decisions": []}), {"run_id": "run_1", "decisions": []}
    server = serve(httpx.ConnectError, begun, httpx.ReadError, ok(recorded), failed(503), ok(recorded))
    server.ask(record)
    assert [request.url.path.rpartition("/")[2] for request in server.requests] == ["runs"] * 2 + ["grounding"] * 2 + [
        "complete"
    ] * 2
    keys = [request.headers.get("idempotency-key") for request in server.requests]
    assert keys[:2] == [None, None]
    assert keys[2] == keys[3] != keys[4] == keys[5]
    assert None not in keys[2:]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((200, "<html>"), UnexpectedAnswerError),
        ((200, '["grounded"]'), UnexpectedAnswerError),
        ((200, '{"hello": "world"}'), UnexpectedAnswerError),
        ((404, "nothing here"), GatewayStatusError),
        ((302, ""), GatewayStatusError),
    ],
    ids=["html", "list", "other", "plain", "redirect"],
)
def test_other_servers_are_reported_as_no_gateway(
    serve: Callable[..., Server], answer: tuple[int, str], kind: type[GroundlaneError]
) -> None:
    server = serve(httpx.Response(answer[0], text=answer[1]))
    with pytest.raises(kind):
        server.ask(check)


def test_run_requires_an_id(serve: Callable[..., Server]) -> None:
    with pytest.raises(UnexpectedAnswerError, match="run id"):
        serve(ok({"run": 1})).ask(record)
    with pytest.raises(UnexpectedAnswerError, match="run id"):
        serve(ok({"run": 1})).ask(lambda client: client.get_run("run_1"))


def test_single_string_is_rejected_as_a_list_of_sources(serve: Callable[..., Server]) -> None:
    for arguments in ({"sources": "It rains."}, {"documents": "It rains."}):
        with pytest.raises(TypeError, match="must be a list"):
            serve().ask(lambda client, given=arguments: client.check("It rains.", **given))


def test_unreachable_gateway_is_named_without_its_password() -> None:
    url = "http://user:password@127.0.0.1:9/v1"
    with Groundlane(url, api_key=KEY, max_retries=0) as client:
        with pytest.raises(GatewayUnreachableError, match=r"^http://127\.0\.0\.1:9 is unreachable") as raised:
            client.check("It rains.", ["It rains."])
        shown = [repr(client), repr(raised.value), str(vars(client)["_endpoint"]), repr(client.run("agent"))]
    assert all("password" not in text and KEY not in text for text in shown)
    assert repr(client) == "Groundlane('http://127.0.0.1:9')"


def test_representation_contains_no_key() -> None:
    client = AsyncGroundlane("https://user:password@gateway.test", api_key=KEY)
    for shown in (repr(client), repr(client._endpoint), str(client._endpoint), repr(client._session)):
        assert KEY not in shown
        assert "password" not in shown


@pytest.mark.parametrize("url", ["gateway.test", "ftp://gateway.test", "http://", "//gateway.test"])
def test_invalid_base_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        Groundlane(url)


def test_negative_retries_are_rejected() -> None:
    with pytest.raises(ValueError, match="max_retries"):
        Groundlane(max_retries=-1)


def test_environment_provides_missing_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GROUNDLANE_BASE_URL", "GROUNDLANE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert (repr(Groundlane()), Groundlane()._endpoint.api_key) == ("Groundlane('http://localhost:8080')", None)
    monkeypatch.setenv("GROUNDLANE_BASE_URL", "https://gateway.test/prefix/v1")
    monkeypatch.setenv("GROUNDLANE_API_KEY", KEY)
    assert repr(Groundlane()) == "Groundlane('https://gateway.test/prefix')"
    assert Groundlane()._endpoint.api_key == KEY
    assert Groundlane("http://other.test", api_key="k")._endpoint.api_key == "k"
