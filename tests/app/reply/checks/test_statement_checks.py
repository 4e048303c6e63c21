"""The checks of a reply's own statements, through the in-process gateway."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.reply.checks.statement_checks import cited_support, consistency
from judges.protocols import JudgeUnavailableError
from judges.testing import NEUTRAL, ScriptedJudge, contradicts, entails
from judges.types import Probabilities
from policies.types import Policy
from tests.support.gateways.in_process_gateway import (
    FALSE,
    TRUE,
    Bench,
    bench,
    chunk,
    policy,
    said,
    sse,
    summary_of,
    text_of,
    whole,
)

pytestmark = pytest.mark.anyio

CONSISTENT = {"factual_consistency_check": True, "min_citations": 0, "max_unverifiable_ratio": 1.0}
CITED = {"require_valid_citations": True, "min_citations": 0, "max_unverifiable_ratio": 1.0}
OTHER = "Interns receive 10 days of annual leave."


def knows(evidence: str, claim: str) -> Probabilities:
    """A claim is entailed if the evidence contains it word for word."""
    return entails() if claim in evidence else NEUTRAL


async def asking(answer: Any, *policies: Policy, judge: ScriptedJudge | None = None, **settings: Any) -> Bench:
    at = await bench(
        answer, *policies, judge=judge or ScriptedJudge(knows), settings={"store_text": "full", **settings}
    )
    final_checks = (consistency(at.gateway.checker, timeout_s=5.0), cited_support(timeout_s=5.0))
    at.gateway = replace(at.gateway, final_checks=final_checks)
    return at


def reasons(summary: dict[str, Any]) -> Sequence[str]:
    return [str(decision["reason"]) for decision in summary["decisions"]]


DOCUMENTS = [
    {"id": "hr-7", "text": TRUE, "source": "hr.pdf", "relevance_score": 0.9, "age_days": 3},
    {"id": "hr-8", "text": OTHER, "source": "interns.pdf", "relevance_score": 0.8, "age_days": 3},
]

RULES = {"check_conflicts": True}
OPPOSED = [DOCUMENTS[0], {**DOCUMENTS[1], "text": f"Bicycles may be parked. {FALSE}"}]


class TestConsistency:
    async def test_contradicting_claims_are_reported_at_the_end(self) -> None:
        at = await asking(said(f"{TRUE} ", FALSE), policy(**CONSISTENT))
        summary = summary_of(await at.stream())
        assert f'Claims contradict each other: "{TRUE}" / "{FALSE}"' in reasons(summary)[-1]
        assert summary["action"] == "warn"

    async def test_withheld_text_is_not_quoted_in_a_block(self) -> None:
        blocking = policy(**CONSISTENT, action_on_violation="block", stream_mode="final", min_grounding_score=0.0)
        at = await asking(said(f"{TRUE} ", FALSE), blocking, store_text="hash")
        stream = await at.stream()
        assert "days" not in text_of(stream)
        assert "days" not in str(summary_of(stream)["decisions"])
        assert "days" not in str(at.event.decisions), "nor is it in the log, where texts are not kept"
        assert 'Claims contradict each other: "…" / "…"' in at.event.decisions[-1].reason

    async def test_contradictions_are_found_without_documents(self) -> None:
        at = await asking(whole(f"{TRUE} {FALSE}"), policy(**CONSISTENT))
        body = await at.unary(documents=None)
        assert f'Claims contradict each other: "{TRUE}" / "{FALSE}"' in reasons(body["grounding"])

    async def test_check_is_off_by_default_and_free(self) -> None:
        judge = ScriptedJudge(knows)
        at = await asking(whole(f"{TRUE} {FALSE}"), policy(min_citations=0), judge=judge)
        assert not any("contradict each other" in reason for reason in reasons((await at.unary())["grounding"]))
        assert {evidence for evidence, _ in judge.pairs} == {TRUE}

    async def test_nothing_is_compared_without_a_judge(self) -> None:
        gone = ScriptedJudge(start_error=JudgeUnavailableError("gone"))
        at = await asking(whole(f"{TRUE} {FALSE}"), policy(**CONSISTENT), judge=gone)
        body = await at.unary(documents=None)
        assert not any("contradict" in reason for reason in reasons(body["grounding"]))


class TestCitations:
    async def test_cited_document_outside_the_evidence_is_judged(self) -> None:
        """Here, each claim is judged against one passage, and both documents contain the same text."""
        twice = [*DOCUMENTS, {**DOCUMENTS[0], "id": "hr-9", "source": "copy.pdf"}]
        at = await asking(whole(f"{TRUE} [3]"), policy(**CITED, max_sources_per_claim=1))
        summary = (await at.unary(documents=twice))["grounding"]
        assert not any("does not support" in reason for reason in reasons(summary))
        assert summary["claims"][0]["citations"] == ["hr-9"]

    async def test_misattributed_and_fabricated_citations_are_distinguished(self) -> None:
        at = await asking(whole(f"{TRUE} [2] {OTHER} [7]"), policy(**CITED))
        decision = (await at.unary(documents=DOCUMENTS))["grounding"]["decisions"][-1]
        assert decision["reason_code"] == "GROUNDING_BAD_CITATION"
        violations = decision["metadata"]["violations"]
        found = [each["metadata"] for each in violations if each["reason_code"] == "GROUNDING_BAD_CITATION"]
        assert [(one["kind"], one["marker"]) for one in found] == [("misattributed", "[2]"), ("fabricated", "[7]")]
        assert found[0]["supported_by"] == ["hr-7"]

    @pytest.mark.parametrize("stream", [True, False])
    async def test_upstream_annotations_count_as_citations(self, stream: bool) -> None:
        notes = [
            {"type": "url_citation", "url_citation": {"url": "https://docs.test/hr", "start_index": 0, "end_index": 9}},
            {"type": "url_citation", "url_citation": {"url": "https://gone.test/", "start_index": 2}},
        ]
        documents = [{**DOCUMENTS[0], "url": "https://docs.test/hr/"}]
        rules = policy(**{**CITED, "min_citations": 1})
        if stream:
            at = await asking(sse(chunk({"content": TRUE}), chunk({"annotations": notes}), chunk({}, "stop")), rules)
            summary = summary_of(await at.stream(documents=documents))
        else:
            at = await asking(whole(TRUE, annotations=notes), rules)
            summary = (await at.unary(documents=documents))["grounding"]
        assert summary["claims"][0]["citations"] == ["hr-7"]
        assert summary["decisions"][-1]["reason"] == "Citation https://gone.test/ names no document (1 given)"


class TestConflicts:
    async def test_contradicting_documents_are_a_warning_before_the_call(self) -> None:
        at = await asking(said(TRUE), policy("retrieval", **RULES), conflicts_timeout_ms=60_000)
        summary = summary_of(await at.stream(documents=OPPOSED))
        reason = f"Documents 'hr.pdf' and 'interns.pdf' contradict each other: \"{TRUE}\" / \"{FALSE}\""
        assert summary["decisions"][0]["reason"] == reason
        assert summary["decisions"][0]["phase"] == "before_workflow"
        assert summary["retrieval"]["warnings"] == [reason]
        assert len(at.forwarded) == 1
        assert at.event.request.action == "warn"

    async def test_sentences_of_documents_are_stored_like_their_texts(self) -> None:
        settings = {"store_text": "hash", "conflicts_timeout_ms": 60_000}
        at = await asking(said(TRUE), policy("retrieval", **RULES), **settings)
        await at.stream(documents=OPPOSED)
        assert at.event.decisions[0].reason_code == "RETRIEVAL_CONFLICT"
        assert "days" not in str(at.event.decisions[0])

    async def test_request_waits_only_for_a_limited_time(self) -> None:
        judge = ScriptedJudge(default=contradicts())

        class Never(ScriptedJudge):
            async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
                if any(evidence == FALSE for evidence, _ in pairs):
                    raise TimeoutError
                return await judge.score(pairs)

        at = await asking(said(TRUE), policy("retrieval", **RULES), judge=Never())
        decision = summary_of(await at.stream(documents=OPPOSED))["decisions"][0]
        assert (decision["action"], decision["metadata"]["not_compared"]) == ("allow", "timeout")

    async def test_dropped_documents_are_not_compared(self) -> None:
        dropping = policy("retrieval", **RULES, blocked_sources=["interns.pdf"], action_on_blocked_source="drop")
        at = await asking(said(TRUE), dropping, conflicts_timeout_ms=60_000)
        summary = summary_of(await at.stream(documents=OPPOSED, grounding={"inject": "system"}))
        assert [decision["reason_code"] for decision in summary["decisions"]] == ["RETRIEVAL_BLOCKED_SOURCE"]
