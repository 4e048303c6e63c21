"""No reply ever has a value that the API's published schema forbids, in any API, streamed or whole, delivered or
blocked, with tools, reasoning or JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from judges.types import Label
from tests.support.apis.api_cases import APIS, ARGUMENTS, CALL, REASONING, REFUSAL, TEXT, ApiCase, Item, read_objects
from tests.support.apis.published_schemas import faults
from tests.support.gateways.live_gateway import Gateway

PLANS = "The basic plan costs 9 euros a month [1]. "
SUPPORT = "Support answers within two days [2]. "
LIE = "The basic plan includes a free boat. "
DOCUMENTS = [
    {"id": "plans", "text": PLANS, "source": "plans.md", "title": "Plans", "url": "https://docs.test/plans"},
    {"id": "support", "text": SUPPORT, "source": "support.md"},
]
CLOSED = {"min_citations": 0, "min_grounding_score": 0.0, "contradiction_action": "block"}
LAX: dict[str, Any] = {"min_citations": 0, "min_grounding_score": 0.0}
NO_POLICY = "no policy"
RULES: Mapping[str, Mapping[str, Any] | None] = {
    "hold": CLOSED,
    "live": {**CLOSED, "stream_mode": "live"},
    "final": {**CLOSED, "stream_mode": "final"},
    "error": {**CLOSED, "on_block": "error"},
    "strip": {**LAX, "unverifiable_action": "strip", "unjudged_action": "strip", "reasoning_action": "judge"},
    "drop": {**LAX, "reasoning_action": "drop", "tool_call_action": "drop"},
    "hold calls": {**CLOSED, "tool_call_action": "hold", "require_source_grounding": True},
    NO_POLICY: None,
}
REPLIES: Mapping[str, Sequence[Item]] = {
    "supported": [(TEXT, PLANS + SUPPORT)],
    "contradicted": [(TEXT, PLANS + LIE + SUPPORT)],
    "contradicted from the start": [(TEXT, LIE + PLANS)],
    "nothing": [],
    "a call": [(CALL, ARGUMENTS)],
    "text and a call": [(TEXT, PLANS), (CALL, ARGUMENTS)],
    "a contradiction and a call": [(TEXT, PLANS + LIE), (CALL, ARGUMENTS)],
    "reasoning and text": [(REASONING, "Let me see."), (TEXT, PLANS)],
    "reasoning, a call and a contradiction": [(REASONING, LIE), (CALL, ARGUMENTS), (TEXT, LIE)],
    "several texts": [(TEXT, PLANS), (TEXT, SUPPORT), (CALL, ARGUMENTS), (TEXT, LIE)],
    "a refusal": [(REFUSAL, "I can't say.")],
}
FORMED: Mapping[str, Sequence[Item]] = {
    "supported": [(TEXT, json.dumps({"price": PLANS, "support": [SUPPORT]}))],
    "contradicted": [(TEXT, json.dumps({"price": PLANS, "extras": LIE}))],
}


def replied(
    gateway: Gateway, case: ApiCase, items: Sequence[Item], *, stream: bool, rules: Any, **fields: Any
) -> tuple[int, list[dict[str, Any]]]:
    """The status and the JSON objects of a reply."""
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(case.reply(items, stream=stream))
    agent = None if rules is None else gateway.agent(grounding=rules)
    body = {**case.asked, "stream": stream, "documents": DOCUMENTS, "grounding": {"agent": agent}, **fields}
    with gateway.call(body, path=case.path) as call:
        return call.status, read_objects(call.read_all())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", APIS, ids=lambda case: case.api)
class TestSchemas:
    @pytest.mark.parametrize("rules", RULES)
    def test_each_reply_matches_the_published_schema(
        self, gateway: Gateway, case: ApiCase, stream: bool, rules: str
    ) -> None:
        found = {}
        for name, items in REPLIES.items():
            if {kind for kind, _ in items} <= case.kinds:
                status, objects = replied(gateway, case, items, stream=stream, rules=RULES[rules])
                if status == 200:
                    found[name] = faults(case.api, objects, streamed=stream, unknown_fields=rules == NO_POLICY)
                else:
                    assert status == 400
                    assert "grounding_policy_violation" in objects[0]["error"].values()
        assert {name: wrong for name, wrong in found.items() if wrong} == {}

    @pytest.mark.parametrize("rules", ["hold", "live", "final", "strip", NO_POLICY])
    def test_json_reply_matches_the_published_schema(
        self, gateway: Gateway, case: ApiCase, stream: bool, rules: str
    ) -> None:
        if case.form is None:
            return
        found = {}
        for name, items in FORMED.items():
            _, objects = replied(gateway, case, items, stream=stream, rules=RULES[rules], **case.form)
            found[name] = faults(case.api, objects, streamed=stream, unknown_fields=rules == NO_POLICY)
        assert {name: wrong for name, wrong in found.items() if wrong} == {}
