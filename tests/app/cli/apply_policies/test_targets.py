"""A gateway as a target: its responses are validated."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.cli.apply_policies import ExistingPolicy, GatewayTarget, TargetError
from app.policy_admin.policy_document import parse_document
from policies.policy_warnings import RuleWarning

GATE = {"name": "gate", "category": "retrieval", "rules": {"min_chunks": 2}}
PRESENT = ExistingPolicy(id="pol_1", version=4, draft=parse_document(GATE))

Answer = httpx.Response | Exception


def asked(work: Callable[[GatewayTarget], Any], *answers: Answer) -> tuple[Any, list[httpx.Request]]:
    """The result of ``work`` if the gateway returns ``answers``, and the requests it received."""
    waiting, requests = list(answers), []

    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run() -> Any:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://gateway/at") as client:
            return await work(GatewayTarget(client))

    return asyncio.run(run()), requests


def page(*items: Any, cursor: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"items": list(items), "next_cursor": cursor})


def test_every_page_is_read() -> None:
    first = page({**GATE, "id": "pol_1", "version": 4, "created_at": "…", "new_field": 1}, cursor="abc")
    second = page({**GATE, "name": "b", "id": "pol_2", "version": 1})
    found, requests = asked(lambda target: target.list(), first, second)
    assert found[0] == PRESENT
    assert [each.draft.name for each in found] == ["gate", "b"]
    assert [request.url.params.get("cursor") for request in requests] == [None, "abc"]
    assert requests[0].url.path == "/at/admin/v1/policies"


def test_changes_send_the_version_that_was_read() -> None:
    async def work(target: GatewayTarget) -> None:
        await target.create(PRESENT.draft)
        await target.replace(PRESENT, PRESENT.draft)
        await target.delete(PRESENT)

    _, requests = asked(work, httpx.Response(201, json={}), httpx.Response(200, json={}), httpx.Response(204))
    assert [(request.method, request.url.path[-6:], request.headers.get("if-match")) for request in requests] == [
        ("POST", "licies", None), ("PUT", "/pol_1", '"4"'), ("DELETE", "/pol_1", '"4"'),
    ]  # fmt: skip
    assert parse_document(json.loads(requests[0].content)) == PRESENT.draft


WARNING = {"loc": ["rules", "stream_mode"], "msg": "…"}


def test_warnings_come_from_the_gateway() -> None:
    answer = httpx.Response(200, json={"policy": {}, "warnings": [WARNING]})
    found, (request,) = asked(lambda target: target.warnings(PRESENT.draft), answer)
    assert found == [RuleWarning(loc=("rules", "stream_mode"), msg="…")]
    assert request.url.path == "/at/admin/v1/policies/validate"
    assert parse_document(json.loads(request.content)) == PRESENT.draft


@pytest.mark.parametrize("status", [404, 405])
def test_old_gateway_without_warnings_is_supported(status: int) -> None:
    assert asked(lambda target: target.warnings(PRESENT.draft), httpx.Response(status))[0] == []


@pytest.mark.parametrize("answer", [{}, [], {"warnings": [{"loc": []}]}, {"warnings": 7}])
def test_malformed_warnings_are_reported_as_no_gateway(answer: Any) -> None:
    with pytest.raises(TargetError, match="not a Groundlane gateway"):
        asked(lambda target: target.warnings(PRESENT.draft), httpx.Response(200, json=answer))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.ConnectError("refused"), "refused"),
        (httpx.ReadTimeout(""), "ReadTimeout"),
        (httpx.Response(200, html="<h1>Welcome</h1>"), "not a Groundlane gateway"),
        (httpx.Response(200, json=[]), "not a Groundlane gateway"),
        (httpx.Response(200), "not a Groundlane gateway"),
        (httpx.Response(401, json={"detail": "The admin token is wrong."}), "The admin token is wrong"),
        (httpx.Response(500, json=[]), "HTTP status 500"),
        (page({**GATE, "rules": {"min_chunks": -1}, "id": "p", "version": 1}), "cannot read: rules.min_chunks"),
        (page({**GATE, "version": 1}), "cannot read"),
        (page(7), "cannot read"),
    ],
)
def test_unexpected_answer_is_a_one_line_error(answer: Answer, said: str) -> None:
    with pytest.raises(TargetError, match=said) as caught:
        asked(lambda target: target.list(), answer)
    assert "\n" not in str(caught.value)
