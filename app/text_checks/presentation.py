"""Formats the result of a text check as JSON. HTTP, MCP and the command line use the same format."""

from typing import Any

from app.text_checks.service import Checked
from judges.text.corrections import marked
from judges.types import ClaimVerdict, GroundingReport, ReplyVerdict, Source
from policies.policy_selection import decision_to_dict

_DIGITS = 4


def check_to_dict(checked: Checked) -> dict[str, Any]:
    """Build the response to a check, as plain JSON values."""
    report = checked.report
    shown = {"grounded": checked.grounded, **report_to_dict(report)}
    if report.verdict is ReplyVerdict.NO_SOURCES:
        shown["reason_code"] = "GROUNDING_NO_SOURCES"
    elif report.verdict is ReplyVerdict.NOT_CHECKED:
        shown["reason_code"] = "GROUNDING_NOT_CHECKED"
    return {
        **shown,
        "action": checked.action.value,
        "decisions": [decision_to_dict(decision) for decision in checked.decisions],
        "judge": {"name": checked.judge_name, "latency_ms": _rounded(checked.judge_ms, 1)},
        "request_id": checked.request_id,
    }


def report_to_dict(report: GroundingReport) -> dict[str, Any]:
    """Convert a report to JSON, with the field names of ``POST /v1/grounding/check``."""
    return {
        "verdict": report.verdict.value,
        "claims": [claim_to_dict(claim) for claim in report.claims],
        "total_claims": report.total_claims,
        "supported_count": report.supported_count,
        "contradicted_count": report.contradicted_count,
        "unverifiable_count": report.unverifiable_count,
        "unverifiable_ratio": _rounded(report.unverifiable_ratio),
        "trust_score": _rounded(report.trust_score),
        "is_trusted": report.is_trusted,
        "coverage": _rounded(report.coverage),
        "claims_skipped": report.claims_skipped,
        "unjudged": [{"kind": part.kind, "start": part.span.start, "end": part.span.end} for part in report.unjudged],
        "summary": report.summary,
    }


def claim_to_dict(verdict: ClaimVerdict) -> dict[str, Any]:
    """Convert a claim to JSON, with the source that decided its verdict. ``reason`` is set if there is no verdict.
    ``corrected`` is the claim with its correction marked in it."""
    source = verdict.deciding_source
    shown: dict[str, Any] = {
        "claim": verdict.claim.text,
        "verdict": verdict.label.value,
        "confidence": _rounded(verdict.confidence),
        "best_source": _source(source),
        "escalated": verdict.escalated,
        "span": {"start": verdict.claim.span.start, "end": verdict.claim.span.end},
    }
    details: dict[str, Any] = {
        "spans": [{"start": s.start, "end": s.end, "score": _rounded(s.score)} for s in verdict.spans] or None,
        "reason": verdict.reason,
        "explanation": verdict.explanation,
        "correction": verdict.correction,
        "corrected": verdict.correction and marked(verdict.claim.text, verdict.correction),
    }
    return shown | {name: value for name, value in details.items() if value is not None}


def _source(source: Source | None) -> dict[str, Any] | None:
    if source is None:
        return None
    return {"chunk_id": source.document_id, "content": source.content, "score": _rounded(source.score)}


def _rounded(value: float | None, digits: int = _DIGITS) -> float | None:
    return None if value is None else round(value, digits)
