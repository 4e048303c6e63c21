"""The original proposal "Grounding Guard", section by section, with its own examples."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from mcp.client.client import Client

from judges.testing import NEUTRAL, contradicts, entails
from judges.types import Label
from tests.support.apis.reply_reader import Reading
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.system.policies.asking import ask

both = pytest.mark.parametrize("stream", [False, True])
CLAIM = "The API rate limit is 1000 req/min"
PREMIUM = "Premium users get 1000 requests per minute"
FREE = "Free tier is limited to 500 req/min"
SOURCES = (
    {"id": "source-1", "text": PREMIUM, "relevance_score": 0.91},
    {"id": "source-2", "text": FREE, "relevance_score": 0.85},
)
Json = dict[str, Any]


def check(gateway: Gateway, **body: Any) -> Json:
    response = httpx.post(f"{gateway.base_url}/grounding/check", json=body, timeout=30)
    assert response.status_code == 200, response.text
    return dict(response.json())


def read(gateway: Gateway, agent: str, reply: str, **fields: Any) -> Reading:
    gateway.upstream.script(answer(reply, stream=True))
    body = {"model": "m", "messages": [{"role": "user", "content": "What is the limit?"}], "documents": SOURCES}
    with gateway.call({**body, "stream": True, "grounding": {"agent": agent}, **fields}) as call:
        return call.reading()


# The tool check_grounding


def call_tool(gateway: Gateway, **arguments: Any) -> Json:
    async def main() -> Json:
        async with Client(f"http://127.0.0.1:{gateway.port}/mcp") as client:
            return dict((await client.call_tool("check_grounding", arguments)).structured_content or {})

    return asyncio.run(main())


@pytest.mark.parametrize("how", [check, call_tool])
def test_tool_can_be_called_on_demand(gateway: Gateway, how: Callable[..., Json]) -> None:
    """The example of the proposal, with names in snake_case; the judge gives it 0.92, as there."""
    gateway.judge.pairs_known = {(PREMIUM, CLAIM): entails(0.92)}
    found = how(gateway, text=CLAIM, sources=[f"{PREMIUM}."])
    (claim,) = found["claims"]
    assert claim["best_source"].pop("score") == claim.pop("confidence") > 0.7
    assert claim.items() >= {"claim": CLAIM, "verdict": "supported", "escalated": False}.items()
    assert claim["best_source"] == {"chunk_id": "source-1", "content": f"{PREMIUM}."}
    counts = {"total_claims": 1, "supported_count": 1, "contradicted_count": 0, "unverifiable_count": 0}
    assert found.items() >= {**counts, "grounded": True, "unverifiable_ratio": 0.0}.items()
    assert found["summary"] == "1/1 claims supported"


def test_best_matching_source_wins(gateway: Gateway) -> None:
    """The worked example: one source entails the claim, the other contradicts it."""
    gateway.judge.pairs_known = {(PREMIUM, CLAIM): entails(0.92), (FREE, CLAIM): contradicts(0.78)}
    (claim,) = check(gateway, text=CLAIM, documents=SOURCES)["claims"]
    assert (claim["verdict"], claim["best_source"]["chunk_id"]) == ("supported", "source-1")


# Claims


@both
@pytest.mark.parametrize(
    "text",
    [
        "What is the limit?",  # a question that the user asked
        "I hope this helps!",
        "Let me know if you have any questions.",
        "Feel free to ask.",
        "Here's the answer:",
        "Hello!",
        "Hi there!",
        "Sure!",
        "Great question!",
    ],
)
def test_harmless_text_is_no_claim(gateway: Gateway, text: str, stream: bool) -> None:
    gateway.judge.default = Label.UNVERIFIABLE
    agent = gateway.agent(grounding={"unverifiable_action": "block", "max_unverifiable_ratio": 0.0})
    found = ask(gateway, agent, text, stream=stream, documents=SOURCES, question="What is the limit?")
    assert (found.text, found.grounding["verdict"], found.grounding["claims"]) == (text, "no_claims", [])


@both
@pytest.mark.parametrize("hedge", ["I think", "Maybe", "Perhaps", "It seems", "I believe"])
def test_hedge_before_a_statement_hides_nothing(gateway: Gateway, hedge: str, stream: bool) -> None:
    """An intended difference: the proposal leaves hedged statements out."""
    gateway.judge.default = Label.UNVERIFIABLE
    agent = gateway.agent(grounding={"min_citations": 0})
    found = ask(gateway, agent, f"{hedge} the limit is 9000 requests.", stream=stream, documents=SOURCES)
    assert (found.grounding["total_claims"], found.grounding["supported_count"]) == (1, 0)
    assert found.action == "warn"


@both
def test_code_is_reported_and_not_ignored(gateway: Gateway, stream: bool) -> None:
    """An intended difference: the proposal leaves code blocks out of the check."""
    code = "```\nlimit = 9000\n```"
    warned = ask(gateway, gateway.agent(grounding={"min_citations": 0}), code, stream=stream, documents=SOURCES)
    assert (warned.text, warned.action) == (code, "warn")
    assert [part["kind"] for part in warned.grounding["unjudged"]] == ["code"]
    agent = gateway.agent(grounding={"min_citations": 0, "unjudged_action": "block"})
    assert ask(gateway, agent, code, stream=stream, documents=SOURCES).action == "block"


# Verdicts, streaming and final


@pytest.mark.parametrize(
    ("known", "verdict"), [(entails(), "supported"), (contradicts(), "contradicted"), (NEUTRAL, "unverifiable")]
)
def test_each_sentence_of_a_stream_has_its_verdict(gateway: Gateway, known: Any, verdict: str) -> None:
    gateway.judge.pairs_known = {(PREMIUM, "limit"): known, (FREE, "limit"): NEUTRAL}
    reading = read(gateway, gateway.agent(grounding={"min_citations": 0}), f"Hello! {CLAIM}.")
    claims = [claim for chunk in reading.chunks for claim in chunk.get("grounding", {}).get("claims", ())]
    assert {claim["verdict"] for claim in claims} == {verdict}
    assert claims[0]["claim"] == f"{CLAIM}."


@both
@pytest.mark.parametrize(("action", "taken"), [("flag", "warn"), ("block", "block")])
def test_contradiction_action(gateway: Gateway, action: str, taken: str, stream: bool) -> None:
    gateway.judge.labels = {"limit": Label.CONTRADICTED}
    agent = gateway.agent(grounding={"contradiction_action": action, "min_citations": 0, "min_grounding_score": 0.0})
    found = ask(gateway, agent, f"{CLAIM}.", stream=stream, documents=SOURCES)
    assert (found.action, found.grounding["verdict"]) == (taken, "has_contradictions")
    assert found.last["reason_code"] == "GROUNDING_CONTRADICTION"
    assert (CLAIM in found.text) == (taken == "warn")
    assert found.last["metadata"]["verdict"] == "contradicted"
    assert found.last["metadata"]["best_source"]["document_id"] == "source-1"


@both
@pytest.mark.parametrize(
    ("ratio", "action", "taken"),
    [(0.5, "flag", "allow"), (0.3, "flag", "warn"), (0.3, "block", "block")],
)
def test_unverifiable_action(gateway: Gateway, ratio: float, action: str, taken: str, stream: bool) -> None:
    """One of two claims is found in no source."""
    gateway.judge.labels = {"glows": Label.UNVERIFIABLE}
    rules = {
        "max_unverifiable_ratio": ratio,
        "unverifiable_action": action,
        "min_citations": 0,
        "min_grounding_score": 0,
    }
    found = ask(gateway, gateway.agent(grounding=rules), f"{CLAIM}. The API glows.", stream=stream, documents=SOURCES)
    assert found.action == taken
    if taken != "allow":
        assert found.last["reason_code"] == "GROUNDING_UNVERIFIABLE"
        assert found.last["reason"] == "Unverifiable claims 50% (max 30%)"


def test_final_check_only(gateway: Gateway) -> None:
    """``enableStreamingChecks: false`` is ``stream_mode: final``: nothing is sent before all of it is checked."""
    reading = read(gateway, gateway.agent(grounding={"stream_mode": "final", "min_citations": 0}), f"{CLAIM}. {FREE}.")
    assert reading.text() == f"{CLAIM}. {FREE}."
    assert [chunk for chunk in reading.chunks if "claims" in chunk.get("grounding", {})]


# Configuration


def test_options_and_their_defaults(gateway: Gateway) -> None:
    properties = gateway.admin.get("/policies/schema").json()["grounding"]["properties"]
    defaults = {
        "entailment_threshold": 0.7,
        "contradiction_threshold": 0.7,
        "max_unverifiable_ratio": 0.5,
        "contradiction_action": "flag",
        "unverifiable_action": "flag",
        "max_sources_per_claim": 5,
    }
    assert {name: properties[name]["default"] for name in defaults} == defaults


def test_claim_is_compared_with_the_five_most_relevant_sources(gateway: Gateway) -> None:
    documents = [
        {"id": f"d{i}", "text": f"The limit of plan {i} is {i}00 requests.", "relevance_score": i / 10}
        for i in range(9)
    ]
    gateway.judge.default = Label.UNVERIFIABLE
    check(gateway, text="The limit is 1000 requests.", documents=documents)
    assert len(set(gateway.judge.pairs)) <= 6  # five passages, and two of them joined


# Graceful degradation


@both
def test_no_sources(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding={"min_citations": 0})
    for documents in (None, ()):
        found = ask(gateway, agent, f"{CLAIM}.", stream=stream, documents=documents)
        assert (found.text, found.action, found.grounding["verdict"]) == (f"{CLAIM}.", "allow", "no_sources")
        assert found.last["reason_code"] == "GROUNDING_NO_SOURCES"
    assert gateway.judge.pairs == []


@both
def test_no_judge(start_gateway: Callable[..., Gateway], stream: bool) -> None:
    """Neither a cross-encoder nor an LLM: no check, and a warning."""
    gateway = start_gateway(real_judge=True, judge="none")
    agent = gateway.agent(grounding={"min_citations": 0})
    found = ask(gateway, agent, f"{CLAIM}.", stream=stream, documents=SOURCES)
    assert (found.text, found.action, found.grounding["verdict"]) == (f"{CLAIM}.", "warn", "not_checked")
    assert found.last["reason_code"] == "GROUNDING_NOT_CHECKED"


def test_no_claims(gateway: Gateway) -> None:
    found = check(gateway, text="Hello!", documents=SOURCES)
    assert (found["verdict"], found["claims"], found["total_claims"]) == ("no_claims", [], 0)


# The judge that ships


@both
@pytest.mark.parametrize(
    ("reply", "verdict", "action"),
    [
        ("Premium users get 1000 requests per minute.", "supported", "allow"),
        ("Premium users get 500 requests per minute.", "has_contradictions", "block"),
        ("The API was written in Oslo.", "has_unverifiable", "warn"),
    ],
)
def test_shipped_judge(judged: Gateway, reply: str, verdict: str, action: str, stream: bool) -> None:
    agent = judged.agent(grounding={"contradiction_action": "block", "min_citations": 0, "min_grounding_score": 0.0})
    found = ask(judged, agent, reply, stream=stream, documents=[{"id": "p", "text": f"{PREMIUM}."}])
    assert (found.grounding["verdict"], found.action) == (verdict, action)
