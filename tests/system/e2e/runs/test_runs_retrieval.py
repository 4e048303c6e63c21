"""Retrieval policies on a run that records its documents one at a time: each case with its own numbers and reasons."""

import pytest

from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.run_client import Run, blocked, told

STANDARD = {
    "min_relevance_score": 0.75,
    "max_source_age_days": 90,
    "min_chunks": 1,
    "max_chunks": 8,
    "allowed_collections": ["knowledge_base", "product-docs"],
    "action_on_low_relevance": "warn",
    "action_on_stale_source": "block",
}
STRICT = {
    "min_relevance_score": 0.80,
    "max_source_age_days": 30,
    "min_chunks": 2,
    "max_chunks": 5,
    "allowed_collections": ["compliance-docs"],
    "blocked_sources": ["deprecated-policy-archive"],
    "require_source_diversity": True,
    "max_single_source_ratio": 0.5,
    "action_on_low_relevance": "block",
    "action_on_stale_source": "block",
    "action_on_chunk_violation": "block",
}
LENIENT = {
    "min_relevance_score": 0.5,
    "max_source_age_days": 365,
    "action_on_low_relevance": "warn",
    "action_on_stale_source": "warn",
}
GOOD = {"relevance_score": 0.92, "source": "product-manual.pdf", "collection": "knowledge_base", "age_days": 14}


@pytest.mark.parametrize(
    ("rules", "document", "action", "reason", "code", "metadata"),
    [
        ({}, {"relevance_score": 0.85}, "allow", "Retrieval quality within policy (1 chunks)", None, {}),
        ({}, {"relevance_score": 0.70}, "allow", "Retrieval quality within policy (1 chunks)", None, {}),
        (
            {},
            {"relevance_score": 0.60},
            "warn",
            "Retrieval relevance (0.60) below threshold (0.70)",
            "RETRIEVAL_LOW_RELEVANCE",
            {"relevance_score": 0.60, "threshold": 0.70},
        ),
        (
            {"action_on_low_relevance": "block"},
            {"relevance_score": 0.41},
            "block",
            "Retrieval relevance (0.41) below threshold (0.70)",
            "RETRIEVAL_LOW_RELEVANCE",
            {"relevance_score": 0.41, "threshold": 0.70},
        ),
        ({}, {"age_days": 45}, "allow", "Retrieval quality within policy (1 chunks)", None, {}),
        ({}, {"age_days": 90}, "allow", "Retrieval quality within policy (1 chunks)", None, {}),
        (
            {},
            {"age_days": 400},
            "block",
            "Source age (400 days) exceeds max (90 days)",
            "RETRIEVAL_STALE_SOURCE",
            {"age_days": 400, "max_age": 90},
        ),
        (
            {"action_on_stale_source": "warn"},
            {"age_days": 200},
            "warn",
            "Source age (200 days) exceeds max (90 days)",
            "RETRIEVAL_STALE_SOURCE",
            {"age_days": 200, "max_age": 90},
        ),
        (
            {"allowed_collections": ["knowledge_base"]},
            {"collection": "knowledge_base"},
            "allow",
            "Retrieval quality within policy (1 chunks)",
            None,
            {},
        ),
        (
            {"allowed_collections": ["knowledge_base"]},
            {"collection": "internal-hr"},
            "block",
            "Collection 'internal-hr' not in allowed list",
            "RETRIEVAL_COLLECTION",
            {"collection": "internal-hr", "allowed": ["knowledge_base"]},
        ),
        ({}, {"collection": "anything"}, "allow", "Retrieval quality within policy (1 chunks)", None, {}),
        (
            {"blocked_sources": ["deprecated-kb"]},
            {"source": "deprecated-kb"},
            "block",
            "Retrieved from blocked source 'deprecated-kb'",
            "RETRIEVAL_BLOCKED_SOURCE",
            {"blocked_source": "deprecated-kb"},
        ),
        (
            {"blocked_sources": ["deprecated-kb"]},
            {"source": "deprecated-kb.pdf"},
            "allow",
            "Retrieval quality within policy (1 chunks)",
            None,
            {},
        ),
    ],
)
def test_document_is_checked_when_recorded(
    gateway: Gateway,
    rules: dict[str, object],
    document: dict[str, object],
    action: str,
    reason: str,
    code: str | None,
    metadata: dict[str, object],
) -> None:
    with Run(gateway, gateway.agent(retrieval=rules)) as run:
        answer = run.retrieved(**document)
    (decision,) = answer["decisions"]
    assert told(answer) == [("mid_execution", action, reason, code)]
    assert answer["action"] == action
    place = {"document_id": "document-1", "document_index": 0} if code else {"chunk_count": 1}
    assert decision["metadata"] == {**metadata, **place}
    assert (decision["category"], decision["policy_version"]) == ("retrieval", 1)


def test_valid_documents_are_allowed_and_the_last_decision_counts_them(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval=STANDARD)) as run:
        run.retrieved(**GOOD)
        run.retrieved(relevance_score=0.85, source="faq.pdf", collection="knowledge_base", age_days=30)
        run.retrieved(relevance_score=0.80, source="notes.pdf", collection="product-docs", age_days=3)
        end = run.complete({"answer": "Descale it every 3 months."})
    (decision,) = end["decisions"]
    assert told(end) == [("after_workflow", "allow", "Retrieval quality within policy (3 chunks)", None)]
    assert decision["metadata"] == {"chunk_count": 3}


def test_check_is_per_document_and_the_first_one_passes(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={"allowed_collections": ["knowledge_base"]})) as run:
        first = run.retrieved(**GOOD)
        second = run.retrieved(**{**GOOD, "collection": "internal-hr"})
    assert first["action"] == "allow"
    reason, code, metadata = blocked(second)
    assert (reason, code) == ("Collection 'internal-hr' not in allowed list", "RETRIEVAL_COLLECTION")
    assert metadata["document_index"] == 1


def test_first_blocking_violation_ends_the_check_of_a_document(gateway: Gateway) -> None:
    rules = {"allowed_collections": ["knowledge_base"], "blocked_sources": ["deprecated-kb"]}
    with Run(gateway, gateway.agent(retrieval=rules)) as run:
        answer = run.retrieved(relevance_score=0.41, source="deprecated-kb", collection="internal-hr", age_days=400)
    reason, code, metadata = blocked(answer)
    assert reason == (
        "Retrieval relevance (0.41) below threshold (0.70); Retrieved from blocked source 'deprecated-kb'"
    )
    assert code == "RETRIEVAL_BLOCKED_SOURCE"
    assert metadata["warnings"] == reason.split("; ")


def test_blocked_documents_are_still_recorded(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={})) as run:
        assert run.retrieved(**{**GOOD, "age_days": 400})["recorded"]["documents"] == 1
        assert run.retrieved(**GOOD)["recorded"]["documents"] == 2
        assert [document["age_days"] for document in run.view()["documents"]] == [400, 14]


@pytest.mark.parametrize(("action", "stops"), [("warn", "warn"), ("block", "block")])
def test_too_many_documents_are_reported_with_the_surplus_one(gateway: Gateway, action: str, stops: str) -> None:
    rules = {"max_chunks": 2, "action_on_chunk_violation": action}
    with Run(gateway, gateway.agent(retrieval=rules)) as run:
        assert [run.retrieved(**GOOD)["action"] for _ in range(2)] == ["allow", "allow"]
        answer = run.retrieved(**GOOD)
    (decision,) = answer["decisions"]
    assert answer["action"] == stops
    assert (decision["reason"], decision["reason_code"], decision["metadata"]) == (
        "Retrieved chunks (3) above maximum (2)",
        "RETRIEVAL_CHUNK_COUNT",
        {"chunk_count": 3, "limit": 2},
    )


def test_too_few_documents_are_reported_at_completion(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval=STRICT)) as run:
        first = run.retrieved(relevance_score=0.9, source="a.pdf", collection="compliance-docs", age_days=3)
        end = run.complete()
    assert first["action"] == "allow"
    assert blocked(end)[0].startswith("Retrieved chunks (1) below minimum (2)")
    assert blocked(end)[1] == "RETRIEVAL_CHUNK_COUNT"


def test_run_without_required_documents_is_reported(gateway: Gateway) -> None:
    rules = {"require_documents": True, "action_on_chunk_violation": "block"}
    with Run(gateway, gateway.agent(retrieval=rules)) as run:
        end = run.complete()
    assert blocked(end) == (
        "Retrieved chunks (0) below minimum (1)",
        "RETRIEVAL_CHUNK_COUNT",
        {"chunk_count": 0, "limit": 1},
    )


def test_dominant_source_is_reported_only_at_the_end(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={"require_source_diversity": True})) as run:
        actions = [run.retrieved(**{**GOOD, "source": name})["action"] for name in ["doc.pdf"] * 3 + ["faq.pdf"]]
        end = run.complete()
    assert actions == ["allow"] * 4
    assert told(end) == [
        ("after_workflow", "warn", "Source 'doc.pdf' dominates at 75% (max 60%)", "RETRIEVAL_DIVERSITY")
    ]
    assert end["decisions"][0]["metadata"] == {"source": "doc.pdf", "ratio": 0.75, "max": 0.6}
    assert end["blocked_by"] is None


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"relevance_score": 0.79, "collection": "compliance-docs"}, "RETRIEVAL_LOW_RELEVANCE"),
        ({"source": "deprecated-policy-archive", "collection": "compliance-docs"}, "RETRIEVAL_BLOCKED_SOURCE"),
        ({"collection": "knowledge_base"}, "RETRIEVAL_COLLECTION"),
        ({"age_days": 31, "collection": "compliance-docs"}, "RETRIEVAL_STALE_SOURCE"),
    ],
)
def test_strict_compliance_blocks_every_kind_of_bad_document(
    gateway: Gateway, document: dict[str, object], code: str
) -> None:
    with Run(gateway, gateway.agent(retrieval=STRICT)) as run:
        assert blocked(run.retrieved(**document))[1] == code


def test_lenient_monitoring_only_warns(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval=LENIENT)) as run:
        answers = [run.retrieved(relevance_score=0.49, age_days=400), run.retrieved(relevance_score=0.5, age_days=365)]
    assert [answer["action"] for answer in answers] == ["warn", "allow"]
    assert answers[0]["blocked_by"] is None
    assert answers[0]["decisions"][0]["reason"] == (
        "Retrieval relevance (0.49) below threshold (0.50); Source age (400 days) exceeds max (365 days)"
    )


def test_warning_leaves_an_event(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={"action_on_low_relevance": "warn"})) as run:
        run.retrieved(relevance_score=0.41)
        (event,) = run.events(1)
    assert (event["action"], event["phase"], event["category"]) == ("warn", "mid_execution", "retrieval")
    assert (event["reason"], event["run_id"]) == ("Retrieval relevance (0.41) below threshold (0.70)", run.id)


def test_drop_becomes_block_in_a_run(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={"action_on_stale_source": "drop"})) as run:
        reason, code, _ = blocked(run.retrieved(age_days=400))
    assert reason.startswith("Source age (400 days) exceeds max (90 days) (it cannot be dropped")
    assert code == "RETRIEVAL_STALE_SOURCE"


def test_age_may_be_a_date_and_fields_have_aliases(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={})) as run:
        answer = run.retrieved(score=0.9, filename="old.pdf", updated_at="2020-02-02", snippet="…")
        (document,) = run.view()["documents"]
    assert blocked(answer)[1] == "RETRIEVAL_STALE_SOURCE"
    assert (document["source"], document["relevance_score"]) == ("old.pdf", 0.9)
    assert document["age_days"] > 2000
