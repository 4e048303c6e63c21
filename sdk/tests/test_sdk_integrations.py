"""Tests the common behavior of the integrations without a library: verdicts, streams, documents, and an unreachable
gateway."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest
from groundlane import (
    AsyncGroundlane,
    CheckResult,
    GatewayStatusError,
    GatewayUnreachableError,
    Groundlane,
    PolicyViolationError,
)
from groundlane.integrations import Guard, UngroundedError, Verdict
from groundlane.integrations._documents import document
from groundlane.integrations._gate import Gated
from groundlane.integrations._guard import repaired
from groundlane.integrations._question import last_question
from groundlane.integrations._retrieval import ablocked_documents, blocked_documents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judges.types import Label
from tests.support.gateways.live_gateway import Gateway

PLANS, SUPPORT, LIE = "The plan costs 9 euros.", "Support answers within two days.", "The plan includes a boat."
ASKED = "Does the plan include a boat?"
UNKNOWN, CODE = "The moon is blue.", "\n```\nrm -rf /\n```\n"
DOCUMENTS = [{"text": PLANS}, {"text": SUPPORT}]
WITHHELD = [
    (
        {"max_unsupported_claims": 0, "action_on_violation": "block", "min_grounding_score": 0, "min_citations": 0},
        UNKNOWN,
    ),
    ({"min_coverage": 1.0, "action_on_violation": "block", "min_citations": 0}, CODE),
    ({"unverifiable_action": "block", "max_unverifiable_ratio": 0.1}, UNKNOWN),
    ({"unverifiable_action": "strip"}, UNKNOWN),
    ({"unjudged_action": "strip"}, CODE),
    ({"unjudged_action": "block"}, CODE),
]
"""Rules, and text that they don't allow. Some of the rules are decided for each sentence, others at the end."""


def client(answer: Callable[[httpx.Request], httpx.Response]) -> Groundlane:
    return Groundlane("http://gateway", http_client=httpx.Client(transport=httpx.MockTransport(answer)), max_retries=0)


def away(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody there")


def answering(**fields: Any) -> Groundlane:
    """Create a client whose gateway gives the same result for every text."""
    body = {"grounded": True, "verdict": "supported", "total_claims": 1, **fields}
    return client(lambda _: httpx.Response(200, json=body))


@pytest.fixture
def guard_of(gateway: Gateway) -> Iterator[Callable[..., Guard]]:
    """Creates guards for the gateway, and closes them."""
    made: list[Guard] = []

    def guard_of(**options: Any) -> Guard:
        made.append(Guard(base_url=gateway.base_url, **options))
        return made[-1]

    yield guard_of
    for guard in made:
        guard.close()


def judging(bad: str = "boat") -> Guard:
    """Create a guard whose gateway contradicts each sentence that contains ``bad``."""

    def answer(request: httpx.Request) -> httpx.Response:
        text = str(json.loads(request.content)["text"])
        claims, start = [], 0
        for sentence in text.replace(". ", ".|").split("|"):
            end = start + len(sentence.rstrip())
            verdict = "contradicted" if bad in sentence else "supported"
            claims.append({"claim": sentence, "verdict": verdict, "span": {"start": start, "end": end}})
            start += len(sentence) + 1
        wrong = sum(claim["verdict"] == "contradicted" for claim in claims)
        body = {"grounded": not wrong, "claims": claims, "total_claims": len(claims), "contradicted_count": wrong}
        return httpx.Response(200, json={**body, "verdict": "has_contradictions" if wrong else "supported"})

    return Guard(client=client(answer))


# The guard


def test_guard_blocks_contradictions_without_quoting_them(gateway: Gateway, guard_of: Callable[..., Guard]) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED, "moon": Label.UNVERIFIABLE}
    guard = guard_of()
    assert guard.check(PLANS, DOCUMENTS).is_trusted
    verdict = guard.check(f"{PLANS} {LIE}", DOCUMENTS)
    assert (verdict.blocked, verdict.name, verdict.is_trusted) == (True, "has_contradictions", False)
    assert verdict.reason == "1 of 2 claims contradicted"
    assert "boat" not in str(UngroundedError(verdict))
    assert guard.check("The moon is blue.", DOCUMENTS).blocked is False
    strict = guard_of(block_on="ungrounded")
    assert strict.check("The moon is blue.", DOCUMENTS).blocked is True
    assert strict.check(PLANS, []).name == "no_sources"
    assert strict.check(PLANS, []).blocked is True
    assert guard_of(block_on="never").check(LIE, DOCUMENTS).blocked is False


@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        (ASKED, "has_contradictions"),
        (f"{ASKED} Thanks!", "has_contradictions"),
        (None, "has_unverifiable"),
        ("", "has_unverifiable"),
        (f"{'x' * 100_000} {ASKED}", "has_unverifiable"),
    ],
    ids=["known", "with thanks", "unknown", "blank", "too long"],
)
def test_short_answer_is_judged_with_its_question(
    gateway: Gateway, guard_of: Callable[..., Guard], question: str | None, verdict: str
) -> None:
    gateway.judge.labels = {"boat?": Label.CONTRADICTED}
    guard = guard_of()

    async def by_client() -> Verdict:
        async with AsyncGroundlane(gateway.base_url) as asynchronous:
            return await Guard(async_client=asynchronous).acheck("Yes.", DOCUMENTS, question=question)

    found = [
        guard.check("Yes.", DOCUMENTS, question=question),
        asyncio.run(guard.acheck("Yes.", DOCUMENTS, question=question)),
        asyncio.run(by_client()),
    ]
    assert {one.name for one in found} == {verdict}
    strict = guard_of(block_on="ungrounded", options={"max_unverifiable_ratio": 0.0})
    assert strict.check("Yes.", DOCUMENTS, question="Does the plan cost 9 euros?").is_trusted
    assert strict.check("Yes.", DOCUMENTS, question=question).blocked


@pytest.mark.parametrize("asynchronous", [False, True], ids=["push", "apush"])
def test_every_check_of_a_stream_has_the_question(asynchronous: bool) -> None:
    seen: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content).get("question"))
        return httpx.Response(200, json={"grounded": True, "verdict": "supported", "total_claims": 1})

    gated = Gated(Guard(client=client(answer)), lambda: DOCUMENTS, replacement="", question=lambda: ASKED)
    if asynchronous:
        assert asyncio.run(gated.apush(f"{PLANS} ")) + asyncio.run(gated.afinish()) == f"{PLANS} "
    else:
        assert gated.push(f"{PLANS} ") + gated.finish() == f"{PLANS} "
    assert seen == [ASKED, ASKED]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


TEXT, IMAGE = {"type": "text", "text": ASKED}, {"type": "image_url", "image_url": {"url": "http://x"}}
SYSTEM, SAID = {"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Hi."}


@pytest.mark.parametrize(
    ("messages", "question"),
    [
        ([user(ASKED)], ASKED),
        ([SYSTEM, user("Hello!"), SAID, user(ASKED)], ASKED),
        ([user(ASKED), user("Please.")], f"{ASKED}\n\nPlease."),
        ([user([TEXT])], ASKED),
        ([user([TEXT, {"type": "text", "text": "Please.", "cache_control": {}}])], f"{ASKED}\nPlease."),
        ([user([IMAGE]), SAID, user(ASKED)], ASKED),
        ([user([TEXT, IMAGE])], None),
        ([user([IMAGE]), user(ASKED)], None),
        ([user([{"type": "text", "text": None}])], None),
        ([user(None)], None),
        ([user({"text": ASKED})], None),
        ([user(ASKED), SAID], None),
        ([user(ASKED), SYSTEM], None),
        ([user(ASKED), {"role": "tool", "content": "9"}], None),
        ([user(ASKED), "a message in another form"], None),
        ([SYSTEM], None),
        ([], None),
    ],
)
def test_question_is_known_only_if_the_text_of_the_user_ends_the_request(messages: Any, question: str | None) -> None:
    assert last_question(messages) == question


def test_guard_applies_a_named_gateway_policy(gateway: Gateway, guard_of: Callable[..., Guard]) -> None:
    rules = {"min_citations": 2, "action_on_violation": "block"}
    policy = gateway.policy("grounding", rules, scope={"agents": ["nobody"]})
    verdict = guard_of(policy=policy["name"]).check(PLANS, DOCUMENTS)
    assert (verdict.blocked, verdict.reason) == (True, "GROUNDING_CITATIONS")


def test_guard_works_in_several_event_loops_in_turn(gateway: Gateway, guard_of: Callable[..., Guard]) -> None:
    guard = guard_of()
    for _ in range(2):
        assert asyncio.run(guard.acheck(PLANS, DOCUMENTS)).name == "supported"

    async def by_client() -> Verdict:
        async with AsyncGroundlane(gateway.base_url) as asynchronous:
            return await Guard(async_client=asynchronous).acheck(PLANS, DOCUMENTS)

    assert asyncio.run(by_client()).name == "supported"


def test_guard_without_a_gateway_raises_or_warns(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(GatewayUnreachableError, match="nobody there"):
        Guard(client=client(away)).check(PLANS, DOCUMENTS)
    caplog.set_level(logging.WARNING, "groundlane.integrations")
    verdict = Guard(client=client(away), on_error="open").check(PLANS, DOCUMENTS)
    assert (verdict.blocked, verdict.name, verdict.is_trusted) == (False, "not_checked", False)
    assert isinstance(verdict.error, GatewayUnreachableError)
    assert verdict.as_dict()["verdict"] == "not_checked"
    assert "nobody there" in caplog.text


@pytest.mark.parametrize("on_error", ["open", "closed"])
@pytest.mark.parametrize("status", [401, 400])
def test_caller_mistakes_always_raise(on_error: Any, status: int) -> None:
    refusing = client(lambda _: httpx.Response(status, json={"error": {"message": "no such policy"}}))
    with pytest.raises(GatewayStatusError, match="no such policy"):
        Guard(client=refusing, on_error=on_error).check(PLANS, DOCUMENTS)


def test_gateway_failures_are_ignored_if_fail_open() -> None:
    busy = client(lambda _: httpx.Response(503, json={}))
    assert Guard(client=busy, on_error="open").check(PLANS, DOCUMENTS).blocked is False


def test_gateway_without_a_judge_blocks_unless_fail_open() -> None:
    idle = client(lambda _: httpx.Response(200, json={"grounded": False, "verdict": "not_checked"}))
    assert Guard(client=idle).check(PLANS, DOCUMENTS).blocked is True
    assert Guard(client=idle, on_error="open").check(PLANS, DOCUMENTS).blocked is False


@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_policy_may_block_text_that_was_not_judged(on_error: Any) -> None:
    decision = {"action": "block", "reason": "No judge", "reason_code": "GROUNDING_NOT_CHECKED"}
    idle = answering(verdict="not_checked", grounded=False, decisions=[decision])
    verdict = Guard(client=idle, policy="p", on_error=on_error).check(PLANS, DOCUMENTS)
    assert (verdict.blocked, verdict.reason) == (True, "GROUNDING_NOT_CHECKED")


@pytest.mark.parametrize("action", ["block", "drop", "quarantine", ""])
@pytest.mark.parametrize("block_on", ["contradicted", "ungrounded", "never"])
def test_text_is_blocked_unless_the_policy_delivers_all_of_it(action: str, block_on: Any) -> None:
    decisions = [{"action": "warn", "reason": "W"}, {"action": action, "reason": "R", "reason_code": "CODE"}]
    for told in ({"decisions": decisions}, {"action": action}):
        guard = Guard(client=answering(summary="1/1 claims supported", **told), policy="p", block_on=block_on)
        assert guard.check(PLANS, DOCUMENTS).blocked is True


@pytest.mark.parametrize("action", ["allow", "warn"])
def test_warning_does_not_block(action: str) -> None:
    told = {"decisions": [{"action": action, "reason": "R"}], "action": action}
    assert Guard(client=answering(**told), policy="p").check(PLANS, DOCUMENTS).blocked is False


@pytest.mark.parametrize(("name", "value"), [("block_on", "sometimes"), ("on_error", "ajar")])
def test_bad_argument_is_named(name: str, value: str) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} must be one of .*{value!r}"):
        Guard(**options)


def test_representation_contains_no_key() -> None:
    assert "gl-secret" not in repr(Guard(api_key="gl-secret"))


# Streams


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(cuts=st.lists(st.integers(0, 90), max_size=12))
def test_chunking_does_not_change_the_output(cuts: list[int]) -> None:
    text = f"{PLANS} {SUPPORT} {LIE} {PLANS}"
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    gated = Gated(judging(), lambda: DOCUMENTS, replacement="Ask us.")
    out = "".join(gated.push(text[start:end]) for start, end in pairwise(edges))
    assert out + gated.finish() == f"{PLANS} {SUPPORT} Ask us."
    assert gated.blocked


def test_sentence_is_released_only_when_complete() -> None:
    gated = Gated(judging(), lambda: DOCUMENTS, replacement="")
    steps = [gated.push(piece) for piece in ("The plan ", "costs 9 euros. ", "Support", " answers")]
    assert steps == ["", f"{PLANS} ", "", ""]
    assert gated.finish() == "Support answers"
    assert gated.verdict is not None
    assert gated.verdict.result is not None
    assert gated.verdict.result.total_claims == 2, "the last verdict covers the whole text"


def test_nothing_is_released_before_the_documents_arrive() -> None:
    known: list[dict[str, Any]] = []
    gated = Gated(judging(), lambda: known or None, replacement="")
    assert gated.push(f"{PLANS} ") == ""
    known.extend(DOCUMENTS)
    assert gated.push(f"{SUPPORT} ") == f"{PLANS} {SUPPORT} "


def streamed(guard: Guard, text: str, size: int) -> list[str]:
    """Return the text that is delivered for each piece of ``size`` characters, and at the end."""
    gated = Gated(guard, lambda: DOCUMENTS, replacement="Ask us.")
    pieces = [gated.push(text[start : start + size]) for start in range(0, len(text), size)]
    return [*pieces, gated.finish()]


@pytest.mark.parametrize("size", [4, 400])
@pytest.mark.parametrize("named", [False, True], ids=["options", "policy"])
@pytest.mark.parametrize(("rules", "text"), WITHHELD)
def test_stream_delivers_nothing_that_rules_withhold(
    gateway: Gateway, guard_of: Callable[..., Guard], rules: dict[str, Any], text: str, named: bool, size: int
) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED, "moon": Label.UNVERIFIABLE}
    policy = gateway.policy("grounding", rules, scope={"agents": ["nobody"]})
    guard = guard_of(policy=policy["name"]) if named else guard_of(options=rules)
    for reply in (f"{PLANS} {text} {SUPPORT}", f"{PLANS} {text} {LIE} {SUPPORT}", f"{text} {PLANS}"):
        assert "".join(streamed(guard, reply, size)) == "Ask us."
        verdict = guard.check(reply, DOCUMENTS)
        assert verdict.blocked
        assert repaired(reply, verdict, "Ask us.") == "Ask us."
    *before, last = streamed(guard, f"{PLANS} {SUPPORT}", size)
    assert ("".join(before), last) == ("", f"{PLANS} {SUPPORT}")


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({}, False),
        ({"block_on": "never"}, False),
        ({"options": {}}, False),
        ({"options": {"entailment_threshold": 0.8, "contradiction_threshold": 0.9, "max_sources_per_claim": 3}}, False),
        ({"options": {"entailment_threshold": 0.8, "max_unsupported_claims": 0}}, True),
        ({"options": {"rule_of_a_newer_gateway": 1}}, True),
        ({"policy": "strict"}, True),
        ({"block_on": "ungrounded"}, True),
    ],
)
def test_stream_is_held_unless_its_end_cannot_block_it(options: dict[str, Any], held: bool) -> None:
    guard = Guard(client=answering(), **options)
    assert guard.decides_at_end is held
    assert streamed(guard, f"{PLANS} {SUPPORT}", 24)[0] == ("" if held else f"{PLANS} ")


def test_empty_answer_is_not_checked() -> None:
    gated = Gated(Guard(client=client(away)), lambda: DOCUMENTS, replacement="")
    assert (gated.push(""), gated.push("\n"), gated.finish(), gated.verdict) == ("", "", "", None)


# Repairs


def verdict_on(*claims: tuple[int, int, str | None]) -> Verdict:
    told = [
        {"claim": "c", "verdict": "contradicted", "span": {"start": start, "end": end}, "correction": correction}
        for start, end, correction in claims
    ]
    result = CheckResult.read({"grounded": False, "claims": told})
    return Verdict(blocked=True, reason="", repairable=True, result=result)


@pytest.mark.parametrize(
    ("text", "claims", "expected"),
    [
        ("One. Two. Three.", [(5, 9, None)], "One. Three."),
        ("One. Two. Three.", [(5, 9, "2.")], "One. [CORRECTED: 2.] Three."),
        ("One. Two. Three.", [(0, 4, None)], "Two. Three."),
        ("One. Two. Three.", [(10, 16, None)], "One. Two."),
        ("One. Two. Three.", [(0, 4, None), (5, 9, None), (10, 16, None)], "Sorry."),
        ("- One.\n- Two.\n", [(2, 6, "1.")], "- [CORRECTED: 1.]\n- Two."),
        ("One and one. Two.", [(0, 12, None), (4, 12, None)], "Two."),
    ],
)
def test_contradictions_are_replaced_by_their_correction(text: str, claims: list[Any], expected: str) -> None:
    assert repaired(text, verdict_on(*claims), "Sorry.") == expected


def test_claim_without_a_known_place_withholds_the_whole_text() -> None:
    told = [{"claim": "c", "verdict": "contradicted"}]
    result = CheckResult.read({"grounded": False, "claims": told})
    verdict = Verdict(blocked=True, reason="", repairable=True, result=result)
    assert repaired("One. Two.", verdict, "Sorry.") == "Sorry."


@pytest.mark.parametrize(
    ("block_on", "others", "expected"),
    [
        ("contradicted", {}, "One."),
        ("contradicted", {"unverifiable_count": 1}, "One."),
        ("contradicted", {"action": "warn"}, "One."),
        ("contradicted", {"action": "block"}, "Sorry."),
        ("contradicted", {"decisions": [{"action": "block", "reason_code": "GROUNDING_CONTRADICTION"}]}, "Sorry."),
        ("contradicted", {"decisions": [{"action": "drop"}]}, "Sorry."),
        ("ungrounded", {}, "One."),
        ("ungrounded", {"unverifiable_count": 1}, "Sorry."),
        ("ungrounded", {"claims_skipped": 1}, "Sorry."),
        ("ungrounded", {"unjudged": [{"kind": "code", "start": 0, "end": 4}]}, "Sorry."),
        ("ungrounded", {"unjudged": ["a form of a newer gateway"]}, "Sorry."),
    ],
)
def test_text_is_repaired_only_if_nothing_but_contradictions_blocks_it(
    block_on: Any, others: dict[str, Any], expected: str
) -> None:
    claims = [{"claim": "Two.", "verdict": "contradicted", "span": {"start": 5, "end": 9}}]
    told = {"grounded": False, "verdict": "has_contradictions", "claims": claims, "contradicted_count": 1, **others}
    guard = Guard(client=answering(**told), block_on=block_on)
    verdict = guard.check("One. Two.", DOCUMENTS)
    assert verdict.blocked
    assert repaired("One. Two.", verdict, "Sorry.") == expected
    assert "".join(streamed(guard, "One. Two.", 100)) == ("One. Ask us." if expected == "One." else "Ask us.")


# Documents


class Number:
    """A number type from another library."""

    def __float__(self) -> float:
        return 0.25


def test_only_known_metadata_is_sent() -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    known = {"file_path": "a.md", "title": "A", "url": "https://a.test", "collection": "kb", "secret": "x"}
    assert document("T", id="1", score=Number(), metadata={**known, "updated_at": yesterday}) == {
        "id": "1",
        "text": "T",
        "source": "a.md",
        "collection": "kb",
        "title": "A",
        "url": "https://a.test",
        "relevance_score": 0.25,
        "updated_at": yesterday.isoformat(),
    }
    assert document("T", metadata={"created_at": date(2024, 5, 1)})["updated_at"] == "2024-05-01"


@pytest.mark.parametrize(
    "metadata",
    [
        {"score": 7.5},
        {"score": float("nan")},
        {"score": "high"},
        {"relevance_score": True},
        {"age_days": -1},
        {"updated_at": "yesterday"},
        {"updated_at": "2024-99-99"},
        {"updated_at": (datetime.now(UTC) + timedelta(days=9)).isoformat()},
        {"source": 3, "title": ""},
    ],
)
def test_metadata_that_the_gateway_rejects_is_not_sent(metadata: dict[str, Any]) -> None:
    assert document("T", metadata=metadata) == {"text": "T"}


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    metadata=st.dictionaries(
        st.sampled_from(["source", "score", "age_days", "updated_at", "created_at", "url", "relevance", "title"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.dates() | st.datetimes(),
    )
)
def test_missing_metadata_is_accepted(metadata: dict[str, Any]) -> None:
    found = document("T", metadata=metadata)
    assert 0 <= found.get("relevance_score", 0) <= 1
    assert found.get("age_days", 0) >= 0


# Retrieval policies


def test_policy_rejects_single_documents_or_all(gateway: Gateway) -> None:
    each = gateway.agent(retrieval={}, grounding={"min_citations": 9, "action_on_violation": "block"})
    enough = gateway.agent(retrieval={"min_chunks": 3, "action_on_chunk_violation": "block"})
    documents = [{"text": PLANS, "age_days": 1}, {"text": SUPPORT, "age_days": 999}]
    with Groundlane(gateway.base_url) as client:
        refused = blocked_documents(client, each, documents)
        assert (set(refused), refused[1].param, refused[1].code) == ({1}, "documents[1]", "RETRIEVAL_STALE_SOURCE")
        assert set(blocked_documents(client, enough, documents[:1])) == {0}
        assert blocked_documents(client, each, documents[:1]) == {}

    async def asynchronously() -> dict[int, PolicyViolationError]:
        async with AsyncGroundlane(gateway.base_url) as client:
            return await ablocked_documents(client, each, documents)

    assert set(asyncio.run(asynchronously())) == {1}
