"""Shadow policies and canaries: their decisions are logged, but have no visible effect."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.errors import PolicyBlockedError
from app.events.records import RequestEvent
from judges.llm_types import LlmVerdict
from judges.testing import Pair, ScriptedJudge, ScriptedLlm
from judges.types import Label, Probabilities
from policies.policy_selection import PolicyEngine
from policies.types import Decision, Policy
from tests.support.gateways.in_process_gateway import (
    DOCUMENTS,
    FALSE,
    TRUE,
    UNKNOWN,
    Bench,
    Policies,
    bench,
    policy,
    said,
    verdict,
    whole,
)

pytestmark = pytest.mark.anyio

STALE = [*DOCUMENTS, {"id": "old", "text": "Staff had 20 days.", "relevance_score": 0.2, "age_days": 400}]
STRICT: dict[str, Any] = {"contradiction_action": "block", "abstention_response": "Ask HR."}
REQUESTS: list[tuple[list[str], dict[str, Any]]] = [
    ([TRUE], {}),
    ([TRUE, " ", FALSE, " ", UNKNOWN], {}),
    ([UNKNOWN, " ", TRUE], {}),
    ([f"{TRUE[:-1]} [1]. {UNKNOWN[:-1]} [4]."], {}),
    (["Hello!"], {}),
    ([TRUE], {"documents": STALE}),
    ([TRUE, " ", FALSE], {"documents": STALE, "grounding": {"inject": "system"}}),
    ([TRUE], {"documents": None}),
    (
        [TRUE],
        {"grounding": {"reported": {"grounding_scores": [0.4], "citations": ["hr.pdf"], "output_confidence": 0.3}}},
    ),
]
RULES: list[Policy] = [
    policy(**STRICT),
    policy(unverifiable_action="strip", max_unverifiable_ratio=1.0),
    policy(min_citations=2, require_source_grounding=True, action_on_violation="block"),
    policy(require_valid_citations=True, max_unsupported_claims=0, min_citations=0),
    policy(score_eval_mode="average", min_grounding_score=0.9, action_on_violation="block"),
    policy(abstention_threshold=0.8, action_on_violation="block"),
    policy(score_source="reported", min_citations=0, action_on_violation="block"),
    policy("retrieval", min_relevance_score=0.5, action_on_low_relevance="block", max_source_age_days=1_000),
    policy("retrieval", action_on_stale_source="warn", min_chunks=2, action_on_chunk_violation="block"),
    policy("retrieval", require_documents=True),
]


def told(decisions: Sequence[Decision]) -> list[tuple[Any, ...]]:
    return [(d.policy_id, d.phase, d.action, d.reason, d.reason_code, dict(d.metadata)) for d in decisions]


def masked(data: bytes, event: RequestEvent) -> bytes:
    """What a client received, without the values that differ from one request to the next."""
    return data.replace(event.request.request_id.encode(), b"id")


async def answer(at: Bench, fields: dict[str, Any]) -> bytes:
    at.events.written.clear()
    try:
        data = await at.stream_bytes(**fields)
    except PolicyBlockedError as error:
        data = error.message.encode()
    return re.sub(rb'"latency_ms":[0-9.]+', b"", masked(data, at.event))


@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize("rules", RULES, ids=lambda rules: str(RULES.index(rules)))
async def test_shadow_decision_equals_the_enforced_one_and_is_invisible(rules: Policy, annotated: bool) -> None:
    """No other policy is in force, so its shadow decisions are those that it makes once it is enforced. Replies that
    pass untouched are judged for it, and still pass untouched."""
    settings = {"annotate_by_default": annotated}
    for texts, fields in REQUESTS:
        beside = await bench(said(*texts), replace(rules, mode="shadow"), settings=settings)
        in_force = await bench(said(*texts), rules, settings=settings)
        alone = await bench(said(*texts), settings=settings)
        assert await answer(beside, fields) == await answer(alone, fields)
        await answer(in_force, fields)
        shadow, enforced = told(beside.event.shadow), told(in_force.event.decisions)
        if enforced and not in_force.forwarded and in_force.event.request.documents and rules.category == "grounding":
            # In force it blocks the reply before there is one; in shadow there is one to decide about too.
            shadow, enforced = shadow[-1:], enforced[-1:]
        assert shadow == enforced
        assert beside.event.decisions == ()
        assert beside.event.request.action == "allow"
        assert in_force.event.shadow == ()


async def test_untouched_whole_reply_is_judged_for_shadow_policies() -> None:
    """Its bytes and headers are the upstream's; the findings are only in the log."""
    settings = {"annotate_by_default": False}
    beside = await bench(whole(f"{TRUE} {FALSE}"), replace(policy(**STRICT), mode="shadow"), settings=settings)
    alone = await bench(whole(f"{TRUE} {FALSE}"), settings=settings)
    replies = [await at.ask() for at in (beside, alone)]
    assert replies[0].body == replies[1].body
    assert [[header for header in reply.headers if header[0] != "x-groundlane-request-id"] for reply in replies] == [
        [header for header in replies[1].headers if header[0] != "x-groundlane-request-id"]
    ] * 2
    assert [decision.action.value for decision in beside.event.shadow] == ["allow", "block"]
    assert [claim.label for claim in beside.event.claims] == ["supported", "contradicted"]
    assert (beside.event.request.verdict, beside.event.request.sentences) == ("not_checked", 2)
    assert not alone.event.claims


@pytest.mark.parametrize("correction", [TRUE, "Staff of 25 days receive permanent leave."])
async def test_log_contains_only_supported_corrections(correction: str) -> None:
    llm = ScriptedLlm({UNKNOWN: LlmVerdict(label=Label.CONTRADICTED, confidence=0.9, correction=correction)})
    rules = replace(policy(contradiction_action="correct"), mode="shadow")
    at = await bench(whole(UNKNOWN), rules, settings={"annotate_by_default": False, "store_text": "full"}, llm=llm)
    await at.ask()
    (claim,) = at.event.claims
    assert claim.extra["verdict"].get("correction") == (TRUE if correction == TRUE else None)


async def test_client_disconnect_cancels_the_check() -> None:
    """The judge never answers and the client doesn't wait: the event is logged, with unjudged text as unknown."""
    gate = asyncio.Event()
    watching = replace(policy(**STRICT), mode="shadow")
    at = await bench(
        said(TRUE, " ", FALSE),
        watching,
        judge=ScriptedJudge(verdict, gate=gate),
        settings={"annotate_by_default": False},
    )
    reply = await at.ask(stream=True)
    assert reply.stream is not None
    async for part in reply.stream:
        assert part
        break
    await reply.stream.aclose()
    assert at.event.request.status == "cancelled"
    assert not at.event.claims


async def test_client_disconnect_at_the_end_is_recorded_once() -> None:
    """All of the reply has been sent except its end, which the judge is checking; the reader is cancelled there."""
    asking, gate = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedJudge):
        async def score(self, pairs: Sequence[Pair]) -> Sequence[Probabilities]:
            asking.set()
            return await super().score(pairs)

    at = await bench(
        said(TRUE, finish=None) + b"data: [DONE]\n\n",
        replace(policy(**STRICT), mode="shadow"),
        judge=Slow(verdict, gate=gate),
        settings={"annotate_by_default": False},
    )
    reply = await at.ask(stream=True)
    stream = reply.stream
    assert stream is not None

    async def read() -> None:
        async for _ in stream:
            pass

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        await asking.wait()
        reading.cancel()
    await stream.aclose()
    assert at.event.request.status in ("completed", "cancelled", "incomplete")


async def test_shadow_policy_runs_beside_enforced_ones() -> None:
    """The enforced policy ends the reply; the shadow policy decides on the text up to that point."""
    loud = replace(policy(min_grounding_score=0.5, action_on_violation="warn"), id="loud", name="loud", mode="shadow")
    at = await bench(said(TRUE, " ", FALSE, " ", UNKNOWN), policy(**STRICT), loud)
    await at.stream()
    assert [(d.policy_id, d.action.value) for d in at.event.decisions] == [
        ("pol-grounding", "allow"),
        ("pol-grounding", "block"),
    ]
    assert [(d.policy_id, d.action.value) for d in at.event.shadow] == [("loud", "allow"), ("loud", "warn")]


async def test_shadow_policy_drops_no_document() -> None:
    gate = replace(policy("retrieval", action_on_stale_source="drop"), mode="shadow")
    at = await bench(whole(TRUE), gate)
    body = await at.unary(documents=STALE, grounding={"inject": "system"})
    assert [document["id"] for document in body["grounding"]["retrieval"]["kept"]] == ["hr-7", "old"]
    assert body["grounding"]["decisions"] == []
    assert [decision.action.value for decision in at.event.shadow] == ["drop"]
    assert all(document.kept for document in at.event.documents)


async def test_each_choice_of_a_reply_has_its_shadow_decisions() -> None:
    at = await bench(whole(TRUE, FALSE), replace(policy(**STRICT), mode="shadow"))
    await at.unary(n=2)
    assert [(d.phase.value, d.action.value) for d in at.event.shadow] == [
        ("before_workflow", "allow"),
        ("mid_execution", "allow"),
        ("after_workflow", "warn"),
        ("mid_execution", "block"),
    ]


async def test_failing_shadow_policy_does_not_affect_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr("app.events.request_record.shadow_decisions", broken)
    at = await bench(said(TRUE), policy(), replace(policy(**STRICT), id="beside", mode="shadow"))
    await at.stream()
    assert at.event.request.status == "completed"
    assert at.event.shadow == ()
    assert len(at.event.decisions) == 3


async def test_canary_is_enforced_on_some_requests_and_in_shadow_on_the_others() -> None:
    at = await bench(whole(FALSE), replace(policy(**STRICT), canary_percent=40))
    for _ in range(60):
        await at.unary()
    events = at.events.written
    for event in events:
        enforced = bool(event.decisions)
        assert enforced is not bool(event.shadow)
        assert event.request.action == ("block" if enforced else "allow")
    assert {bool(event.decisions) for event in events} == {True, False}


async def test_policy_change_during_a_request_applies_to_the_next_one() -> None:
    """The policies change while the judge is checking the reply: the request ends under those it started with."""
    lenient, strict = policy(min_citations=0), replace(policy(**STRICT), version=2)
    asking, gate = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedJudge):
        async def score(self, pairs: Sequence[Pair]) -> Sequence[Probabilities]:
            asking.set()
            return await super().score(pairs)

    at = await bench(whole(FALSE), lenient, judge=Slow(verdict, gate=gate))
    source = at.gateway.policies
    assert isinstance(source, Policies)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(at.unary())
        await asking.wait()
        source.engine = PolicyEngine([strict])
        gate.set()
    assert asked.result()["grounding"]["action"] == "warn"
    assert {decision.policy_version for decision in at.event.decisions} == {1}
    at.events.written.clear()
    assert (await at.unary())["grounding"]["action"] == "block"
    assert {decision.policy_version for decision in at.event.decisions} == {2}
