"""The original proposal "Retrieval Policy", section by section, with its own examples."""

import asyncio
import json
from typing import Any

import groundlane
import httpx
import pytest
from groundlane import AsyncGroundlane, Groundlane, PolicyViolationError

from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway
from tests.support.gateways.run_client import Run
from tests.system.policies.asking import ask

both = pytest.mark.parametrize("stream", [False, True])
TEXT = "Premium users get 1000 requests per minute."

STANDARD = """{
"min_relevance_score": 0.75,
"max_source_age_days": 90,
"min_chunks": 1,
"max_chunks": 8,
"allowed_collections": ["knowledge_base", "product-docs"],
"action_on_low_relevance": "warn",
"action_on_stale_source": "block"
}"""
STRICT = """{
"min_relevance_score": 0.80,
"max_source_age_days": 30,
"min_chunks": 2,
"max_chunks": 5,
"allowed_collections": ["compliance-docs"],
"blocked_sources": ["deprecated-policy-archive"],
"require_source_diversity": true,
"max_single_source_ratio": 0.5,
"action_on_low_relevance": "block",
"action_on_stale_source": "block",
"action_on_chunk_violation": "block"
}"""
LENIENT = """{
"min_relevance_score": 0.5,
"max_source_age_days": 365,
"action_on_low_relevance": "warn",
"action_on_stale_source": "warn"
}"""
GOOD = {"relevance_score": 0.92, "source": "product-manual.pdf", "collection": "knowledge_base", "age_days": 14}


def given(**fields: Any) -> dict[str, Any]:
    return {"text": TEXT, **GOOD, **fields}


# Rules


def test_rules_and_their_defaults(gateway: Gateway) -> None:
    properties = gateway.admin.get("/policies/schema").json()["retrieval"]["properties"]
    defaults = {
        "min_relevance_score": 0.7,
        "max_source_age_days": 90,
        "min_chunks": 1,
        "max_chunks": 10,
        "allowed_collections": [],
        "blocked_sources": [],
        "require_source_diversity": False,
        "max_single_source_ratio": 0.6,
        "action_on_low_relevance": "warn",
        "action_on_stale_source": "block",
        "action_on_chunk_violation": "warn",
    }
    assert {name: properties[name]["default"] for name in defaults} == defaults


# Rule matching reference

MATCHING: list[tuple[dict[str, Any], dict[str, Any], str, str | None]] = [
    ({}, {"relevance_score": 0.85}, "allow", None),
    ({}, {"relevance_score": 0.60}, "warn", "Retrieval relevance (0.60) below threshold (0.70)"),
    (
        {"action_on_low_relevance": "block"},
        {"relevance_score": 0.41},
        "block",
        "Retrieval relevance (0.41) below threshold (0.70)",
    ),
    ({}, {"age_days": 45}, "allow", None),
    ({}, {"age_days": 200}, "block", "Source age (200 days) exceeds max (90 days)"),
    ({"allowed_collections": ["knowledge_base"]}, {"collection": "knowledge_base"}, "allow", None),
    (
        {"allowed_collections": ["knowledge_base"]},
        {"collection": "internal-hr"},
        "block",
        "Collection 'internal-hr' not in allowed list",
    ),
    (
        {"blocked_sources": ["deprecated-kb.pdf"]},
        {"source": "deprecated-kb.pdf"},
        "block",
        "Retrieved from blocked source 'deprecated-kb.pdf'",
    ),
    ({"blocked_sources": ["deprecated-kb"]}, {"source": "deprecated-kb.pdf"}, "allow", None),  # an exact match
    ({"allowed_collections": []}, {"collection": "anything"}, "allow", None),  # empty: all
]


@both
@pytest.mark.parametrize(("rules", "fields", "action", "reason"), MATCHING)
def test_request_is_checked_as_in_the_table(
    gateway: Gateway, rules: dict[str, Any], fields: dict[str, Any], action: str, reason: str | None, stream: bool
) -> None:
    """A violation that blocks is known before the call, which is then not made."""
    found = ask(gateway, gateway.agent(retrieval=rules), TEXT, stream=stream, documents=[given(**fields)])
    assert found.calls == (action != "block")
    if action == "block":
        assert (found.status, found.error["message"]) == (400, reason)
        assert found.error["type"] == "retrieval_policy_violation"
    else:
        assert (found.text, found.action) == (TEXT, action)
        assert found.reasons == [reason or "Retrieval quality within policy (1 chunks)"]


@pytest.mark.parametrize(("rules", "fields", "action", "reason"), MATCHING)
def test_run_is_checked_as_in_the_table(
    gateway: Gateway, rules: dict[str, Any], fields: dict[str, Any], action: str, reason: str | None
) -> None:
    """Governance fires at each record, in the phase mid_execution."""
    with Run(gateway, gateway.agent(retrieval=rules)) as run:
        (decision,) = run.retrieved(**{**GOOD, **fields})["decisions"]
    assert (decision["phase"], decision["action"]) == ("mid_execution", action)
    assert decision["reason"] == (reason or "Retrieval quality within policy (1 chunks)")


def test_source_of_three_of_four_chunks_is_a_warning_after_the_run(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval={"require_source_diversity": True})
    with Run(gateway, agent) as run:
        for source in ("doc.pdf", "doc.pdf", "doc.pdf", "faq.pdf"):
            assert run.retrieved(**{**GOOD, "source": source})["decisions"][0]["action"] == "allow"
        (decision,) = run.complete({"answer": "…"})["decisions"]
    assert (decision["phase"], decision["action"]) == ("after_workflow", "warn")
    assert decision["reason"] == "Source 'doc.pdf' dominates at 75% (max 60%)"


@both
def test_source_of_three_of_four_documents_of_a_request_is_a_warning(gateway: Gateway, stream: bool) -> None:
    documents = [given(id=f"d{i}", source="doc.pdf") for i in range(3)] + [given(id="f", source="faq.pdf")]
    agent = gateway.agent(retrieval={"require_source_diversity": True})
    found = ask(gateway, agent, TEXT, stream=stream, documents=documents)
    assert (found.action, found.reasons) == ("warn", ["Source 'doc.pdf' dominates at 75% (max 60%)"])


@both
@pytest.mark.parametrize(
    ("count", "rules", "reason"),
    [
        (12, {}, "Retrieved chunks (12) above maximum (10)"),
        (1, {"min_chunks": 2}, "Retrieved chunks (1) below minimum (2)"),
    ],
)
def test_chunk_counts_warn_or_block(
    gateway: Gateway, count: int, rules: dict[str, Any], reason: str, stream: bool
) -> None:
    documents = [given(id=f"d{i}") for i in range(count)]
    warned = ask(gateway, gateway.agent(retrieval=rules), TEXT, stream=stream, documents=documents)
    assert (warned.action, warned.reasons) == ("warn", [reason])
    blocking = gateway.agent(retrieval={**rules, "action_on_chunk_violation": "block"})
    blocked = ask(gateway, blocking, TEXT, stream=stream, documents=documents)
    assert (blocked.status, blocked.error["code"]) == (400, "RETRIEVAL_CHUNK_COUNT")


# Example policies


@both
@pytest.mark.parametrize(
    ("policy", "fields", "status", "action"),
    [
        (STANDARD, {}, 200, "allow"),
        (STANDARD, {"relevance_score": 0.74}, 200, "warn"),
        (STANDARD, {"age_days": 91}, 400, "block"),
        (STANDARD, {"collection": "internal-hr"}, 400, "block"),
        (STRICT, {"collection": "compliance-docs"}, 200, "allow"),
        (STRICT, {"collection": "compliance-docs", "relevance_score": 0.79}, 400, "block"),
        (STRICT, {"collection": "compliance-docs", "age_days": 31}, 400, "block"),
        (STRICT, {"collection": "compliance-docs", "source": "deprecated-policy-archive"}, 400, "block"),
        (LENIENT, {"relevance_score": 0.4, "age_days": 400}, 200, "warn"),
    ],
)
def test_example_policies(
    gateway: Gateway, policy: str, fields: dict[str, Any], status: int, action: str, stream: bool
) -> None:
    agent = gateway.agent(retrieval=json.loads(policy))
    other = given(id="other", collection=fields.get("collection", GOOD["collection"]), source="annex.pdf")
    found = ask(gateway, agent, TEXT, stream=stream, documents=[given(**fields), other])
    assert found.status == status
    assert found.grounding.get("action", "block") == action


# SDK integration


def record(gateway: Gateway, agent: str, *documents: dict[str, Any]) -> str | None:
    """The example of the proposal: record each document, then set the result. Return the violation."""

    async def main() -> str | None:
        try:
            async with AsyncGroundlane(gateway.base_url) as client, client.run(agent, enforce_policy=True) as ctx:
                for document in documents:
                    await ctx.record_retrieval_result(
                        relevance_score=document["relevance_score"],
                        source=document["source"],
                        collection=document["collection"],
                        age_days=document["age_days"],
                    )
                ctx.set_result({"answer": "…"})
        except PolicyViolationError as error:
            return str(error)
        return None

    return asyncio.run(main())


def test_recording_retrieval_results(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval=json.loads(STANDARD))
    faq = {"relevance_score": 0.85, "source": "faq.pdf", "collection": "knowledge_base", "age_days": 30}
    assert record(gateway, agent, GOOD, faq) is None


@pytest.mark.parametrize(
    ("rules", "fields", "message"),
    [
        (
            {"blocked_sources": ["deprecated-kb"]},
            {"source": "deprecated-kb"},
            "Retrieved from blocked source 'deprecated-kb'",
        ),
        ({}, {"age_days": 400}, "Source age (400 days) exceeds max (90 days)"),
        (
            {"allowed_collections": ["knowledge_base"]},
            {"collection": "internal-hr"},
            "Collection 'internal-hr' not in allowed list",
        ),
    ],
)
def test_catching_policy_violations(
    gateway: Gateway, rules: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    assert record(gateway, gateway.agent(retrieval=rules), GOOD, {**GOOD, **fields}) == message


def test_first_violating_document_ends_the_run(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval={"allowed_collections": ["knowledge_base"]})
    documents = [{**GOOD, "collection": "internal-hr"}, {**GOOD, "age_days": 400}]
    assert record(gateway, agent, *documents) == "Collection 'internal-hr' not in allowed list"


def test_using_the_decorator(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval={})

    client = Groundlane(gateway.base_url)

    @groundlane.observe(agent_name=agent, enforce_policy=True, client=client)
    def run_rag(query: str, docs: list[dict[str, Any]]) -> str:
        ctx = groundlane.current_run()
        for doc in docs:
            ctx.record_retrieval_result(
                relevance_score=doc["relevance_score"],
                source=doc["source"],
                collection=doc["collection"],
                age_days=doc["age_days"],
            )
        return "…"

    with client:
        assert run_rag("How many requests?", [GOOD]) == "…"
        with pytest.raises(PolicyViolationError, match=r"^Source age \(400 days\) exceeds max \(90 days\)$"):
            run_rag("How many requests?", [{**GOOD, "age_days": 400}])


# Creating via API, observability


def test_creating_via_the_api(gateway: Gateway) -> None:
    """The command of the proposal, with this gateway's path; and the policy's events."""
    body = """{
"name": "RAG Quality Guard",
"category": "retrieval",
"rules": {
"min_relevance_score": 0.75,
"max_source_age_days": 90,
"min_chunks": 1,
"max_chunks": 8,
"allowed_collections": ["knowledge_base"],
"action_on_low_relevance": "warn",
"action_on_stale_source": "block"
},
"scope": {
"agents": ["rag-agent"]
},
"enabled": true
}"""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}
    url = f"http://127.0.0.1:{gateway.port}/admin/v1/policies/"
    made = httpx.post(url, content=body, headers=headers)
    assert made.status_code == 201
    with Run(gateway, "rag-agent") as run:
        for fields in ({}, {}, {"relevance_score": 0.41}, {"age_days": 400}):
            run.retrieved(**{**GOOD, **fields})
        rows = run.events(4)
    gateway.admin.delete(f"/policies/{made.json()['id']}")
    assert {(row["policy_name"], row["category"], row["phase"]) for row in rows} == {
        ("RAG Quality Guard", "retrieval", "mid_execution")
    }
    assert [row["action"] for row in rows] == ["allow", "allow", "warn", "block"]
    assert (rows[1]["reason"], rows[1]["metadata"]) == (
        "Retrieval quality within policy (2 chunks)",
        {"chunk_count": 2},
    )
    assert rows[2]["reason"] == "Retrieval relevance (0.41) below threshold (0.75)"
    assert rows[2]["metadata"].items() >= {"relevance_score": 0.41, "threshold": 0.75}.items()
    assert rows[3]["metadata"].items() >= {"age_days": 400, "max_age": 90}.items()
