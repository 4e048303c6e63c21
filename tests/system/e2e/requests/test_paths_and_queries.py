"""Paths with a trailing slash, and query parameters that aren't listed."""

import pytest

from tests.support.apis.api_cases import APIS, TEXT, ApiCase
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway
from tests.support.gateways.mock_upstream import json_reply

LISTS = (
    "audit", "calibration", "events", "events/export", "feedback", "feedback/quality", "keys", "policies",
    "policies/schema", "policies/templates", "requests", "requests/export", "secrets", "stats", "upstreams",
)  # fmt: skip


@pytest.mark.parametrize("slashes", ["/", "//"])
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/dashboard", "/admin/v1/policies"])
def test_trailing_slash_makes_no_difference(gateway: Gateway, path: str, slashes: str) -> None:
    token = {"authorization": f"Bearer {ADMIN_TOKEN}"}
    with gateway.call(path=path, method="GET", headers=token) as plain:
        plain.read_all()
    with gateway.call(path=path + slashes, method="GET", headers=token) as slashed:
        slashed.read_all()
    assert (slashed.status, slashed.header("location")) == (plain.status, plain.header("location"))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", APIS, ids=lambda case: case.api)
def test_trailing_slash_does_not_bypass_governance(gateway: Gateway, case: ApiCase, stream: bool) -> None:
    gateway.upstream.script(case.reply([(TEXT, "It costs 9 euros.")], stream=stream))
    body = {**case.asked, "stream": stream, "documents": [{"text": "It costs 9 euros."}]}
    with gateway.call(body, path=f"{case.path}/") as call:
        assert b'"grounding"' in call.read_all()
    assert gateway.upstream.wait_exchange().path == case.path


def test_encoded_slash_is_part_of_a_name(gateway: Gateway) -> None:
    gateway.upstream.script(json_reply({"id": "owner/"}))
    with gateway.call(path="/v1/models/owner%2F", method="GET") as call:
        call.read_all()
    assert gateway.upstream.wait_exchange().path == "/v1/models/owner%2F"


@pytest.mark.parametrize("path", LISTS)
def test_unknown_query_parameter_is_named(gateway: Gateway, path: str) -> None:
    response = gateway.admin.get(f"/{path}", params={"colour": "blue"})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert [error["loc"] for error in response.json()["errors"]] == [["query", "colour"]]


def test_events_are_found_by_policy_name_and_id(gateway: Gateway) -> None:
    case = APIS[0]
    policy = gateway.policy("retrieval", {"on_missing_metadata": "warn"}, scope={"agents": ["found-by-name"]})
    gateway.upstream.script(case.reply([(TEXT, "It costs 9 euros.")], stream=False))
    body = {**case.asked, "documents": [{"text": "It costs 9 euros."}], "grounding": {"agent": "found-by-name"}}
    with gateway.call(body) as call:
        call.read_all()
    gateway.trace(call.request_id)
    for kind in ("events", "requests"):
        found = [
            gateway.admin.get(f"/{kind}", params={"policy": policy[name]}).json()["items"] for name in ("id", "name")
        ]
        assert found[0] == found[1] != []
    assert gateway.admin.get("/events", params={"policy": "no such policy"}).json()["items"] == []
