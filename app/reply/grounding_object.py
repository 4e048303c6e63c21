"""Builds the findings that clients see: the ``grounding`` object, its claims, and refusals. All functions are pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from app.events.llm_usage import llm_usage
from app.protocols.common.known_fields import is_beside_answer
from app.protocols.common.stream_events import ReplyRefusal
from app.reply.choice_findings import ChoiceFindings
from app.reply.judged_sentence import JudgedSentence, policy_claims, standing
from judges.concurrency import FreedInSteps
from judges.label_thresholds import Thresholds
from judges.types import (
    Chunk,
    ClaimVerdict,
    Label,
    SentenceVerdict,
    Source,
    Span,
    Standing,
)
from policies.grounding.minimum_scores import completeness_of
from policies.policy_selection import decision_to_dict
from policies.reason_texts import without_text
from policies.types import Action, Decision

_RATIO_DIGITS = 4
_MS_DIGITS = 1


def summary_of(findings: ChoiceFindings) -> dict[str, Any] | None:
    """Build the ``grounding`` object of a choice. It leaves out fields that the client didn't ask for, and text that
    the client must not see. Return None if the client wants no findings."""
    context, options, report = findings.context, findings.context.options, findings.report()
    if options.silent:
        return None
    decisions = [*context.retrieval_decisions, *findings.shown_decisions()]
    warns = any(decision.action is not Action.ALLOW for decision in decisions)
    summary: dict[str, Any] = {
        "request_id": context.request_id,
        "action": "block" if findings.blocked else "warn" if warns else "allow",
        "verdict": (findings.unjudged or report.verdict).value,
        "trust_score": _ratio(report.trust_score),
        "is_trusted": report.is_trusted and is_beside_answer(findings.not_checked),
        "total_claims": report.total_claims,
        "supported_count": report.supported_count,
        "contradicted_count": report.contradicted_count,
        "unverifiable_count": report.unverifiable_count,
        "unverifiable_ratio": _ratio(report.unverifiable_ratio),
        "coverage": _ratio(report.coverage),
        "summary": report.summary,
    }
    optional = {
        "unjudged": _unjudged_parts(findings),
        # The rules that require holding the reply to its end: they may block it, and are decided only at the end.
        "final_because": list(findings.evaluation.settings.held_to_end_by),
        "claims_skipped": report.claims_skipped,
        "stripped_count": findings.repairs.stripped,
        "corrected_count": findings.repairs.corrected,
        "regenerations": findings.repairs.regenerations,
        "not_regenerated": findings.not_regenerated,
        "not_checked": findings.not_checked,
    }
    summary |= {name: value for name, value in optional.items() if value}
    if (relevance := findings.final.get("answer_relevance")) is not None:
        summary["answer_relevance"] = _ratio(relevance)
    if (parts := findings.final.get("question_parts")) is not None:
        summary["completeness"] = completeness_of(parts)
    if options.shows("claims"):
        summary["claims"] = claims_shown(findings, findings.sentences)
    if options.shows("decisions"):
        withheld = findings.withheld_texts()
        summary["decisions"] = [decision_to_dict(without_withheld(decision, withheld)) for decision in decisions]
    if options.shows("documents"):
        summary["retrieval"] = dict(context.retrieval)
    judge_ms, llm_calls = findings.judge_ms, findings.llm_calls
    summary["judge"] = {
        "name": context.judge_name,
        "latency_ms": None if judge_ms is None else round(judge_ms, _MS_DIGITS),
    }
    if llm_calls:
        summary["judge"]["llm"] = llm_usage(llm_calls)
    return summary


def claims_shown(findings: ChoiceFindings, sentences: Sequence[JudgedSentence]) -> list[dict[str, Any]]:
    """Return the claims of ``sentences`` as the client sees them, or none if the client doesn't want any."""
    context = findings.context
    if not context.options.shows("claims"):
        return []
    index = findings.index if context.expected > 1 else None
    return FreedInSteps(claim for each in sentences for claim in _claims_of(each, context.chunks, choice=index))


def refusal_of(findings: ChoiceFindings) -> ReplyRefusal:
    """Build the error that is returned instead of a blocked reply."""
    decisions, withheld = findings.shown_decisions(), findings.withheld_texts()
    decision = next((d for d in decisions if d.action is Action.BLOCK), None)
    return ReplyRefusal(
        choice=findings.index,
        reason=without_withheld(decision, withheld).reason if decision else "",
        reason_code=decision.reason_code if decision else None,
        decisions=[decision_to_dict(without_withheld(d, withheld)) for d in decisions],
    )


def _unjudged_parts(findings: ChoiceFindings) -> list[dict[str, Any]]:
    """Return the parts of the delivered text that should have been judged but weren't, with their positions."""
    return [
        {"kind": part.kind, "start": sentence.place(part.span.start), "end": sentence.place(part.span.end)}
        | _field(sentence)
        for sentence in standing(findings.sentences)
        if sentence.offset is not None
        for part in sentence.verdict.parts
        if part.standing is Standing.UNJUDGED and part.span not in sentence.left_out
    ]


def without_withheld(decision: Decision, withheld: Collection[str]) -> Decision:
    """Return ``decision`` without quoted text that contains any of ``withheld``."""
    known = frozenset(withheld)

    def hides(quoted: str) -> bool:
        # Most reasons quote one complete claim, which a lookup finds. Only the others are searched for each withheld
        # text.
        inner = quoted.partition('"')[2].rpartition('"')[0]
        return (bool(inner) and inner in known) or any(text in quoted for text in withheld)

    return without_text(decision, hides)


def reasons_of(verdict: SentenceVerdict, thresholds: Thresholds) -> list[str]:
    """Describe the faults of a sentence for the model that wrote it."""
    reasons = []
    for claim in verdict.claims:
        against = claim.source_for(Label.CONTRADICTED)
        match thresholds.label_of(claim):
            case Label.CONTRADICTED if against is not None:
                reasons.append(f"The documents say otherwise: {against.content}")
            case Label.CONTRADICTED:
                reasons.append("The documents say otherwise.")
            case Label.UNVERIFIABLE:
                reasons.append("No document says so.")
    return list(dict.fromkeys(reasons)) or ["The documents do not support it well enough."]


def _claims_of(sentence: JudgedSentence, chunks: Sequence[Chunk], *, choice: int | None) -> list[dict[str, Any]]:
    """Return the claims in a sentence as the client sees them. If the sentence was withheld, they don't contain its
    text. Claims beyond ``max_claims`` have no verdict, so they are listed in ``unjudged`` instead."""
    citations = (*sentence.citations, *sentence.noted)
    cited = [chunks[citation.document_index].id for citation in citations if citation.document_index is not None]
    claims = []
    for verdict in policy_claims([sentence.verdict]):
        shown = sentence.offset is not None
        claim: dict[str, Any] = {
            "claim": verdict.claim.text if shown else None,
            "verdict": verdict.label.value,
            "score": _ratio(verdict.score),
            "confidence": _ratio(verdict.confidence),
            "span": _span(_delivered_span(sentence, verdict)),
            "best_source": _source(verdict.deciding_source),
            "citations": list(dict.fromkeys(cited)),
            "escalated": verdict.escalated,
            "explanation": verdict.explanation if shown else None,
            "correction": verdict.correction,
        }
        if verdict.reason is not None:
            claim["reason"] = verdict.reason
        if verdict.spans and shown:
            claim["spans"] = [
                {"start": sentence.place(span.start), "end": sentence.place(span.end), "score": _ratio(span.score)}
                for span in verdict.spans
            ]
        if not shown:
            claim["delivered"] = False
        if choice is not None:
            claim["choice"] = choice
        claim |= _field(sentence)
        claims.append(claim)
    return claims


def retrieval_summary(
    chunks: Sequence[Chunk], dropped: Mapping[int, str], decisions: Sequence[Decision], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the used documents, the dropped documents with reasons, and the warnings, followed by ``notes``."""
    kept, left_out = [], []
    for index, chunk in enumerate(chunks):
        document: dict[str, Any] = {
            "index": index,
            "id": chunk.id,
            "source": chunk.source,
            "relevance_score": chunk.relevance_score,
            "age_days": chunk.age_days,
        }
        if index in dropped:
            left_out.append({**document, "reason": dropped[index]})
        else:
            kept.append(document)
    warnings = [warning for decision in decisions for warning in _warnings(decision)]
    return {"kept": kept, "dropped": left_out, "warnings": [*warnings, *notes]}


def _warnings(decision: Decision) -> Sequence[str]:
    """Return the reason of a decision that warns. For a decision that drops documents, return the reasons of the
    violations that only cause a warning."""
    if decision.action is Action.DROP:
        violations = decision.metadata.get("violations", ())
        return [violation["reason"] for violation in violations if violation["action"] == Action.WARN]
    return [decision.reason] if decision.action is Action.WARN else []


def _field(sentence: JudgedSentence) -> dict[str, str]:
    """Return the reasoning field that the positions in a sentence refer to."""
    return {} if sentence.field is None else {"field": sentence.field}


def _delivered_span(entry: JudgedSentence, verdict: ClaimVerdict) -> Span | None:
    if entry.offset is None:
        return entry.corrected
    span = verdict.claim.span
    return Span(entry.place(span.start), entry.place(span.end))


def _source(source: Source | None) -> dict[str, Any] | None:
    if source is None:
        return None
    return {
        "document_id": source.document_id,
        "source": source.source,
        "content": source.content,
        "score": _ratio(source.score),
        "span": _span(source.span),
    }


def _span(span: Span | None) -> dict[str, int] | None:
    return None if span is None else {"start": span.start, "end": span.end}


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, _RATIO_DIGITS)
