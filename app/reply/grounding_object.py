"""What clients see of the findings: the ``grounding`` object and its claims. Pure functions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.events.llm_usage import llm_usage
from app.protocols.documents import Options
from app.reply.judged_sentence import JudgedSentence
from judges.thresholds import Thresholds
from judges.types import (
    VERDICTS_WORST_FIRST,
    Chunk,
    ClaimVerdict,
    GroundingReport,
    Label,
    LlmCall,
    ReplyVerdict,
    SentenceVerdict,
    Source,
    Span,
    Standing,
)
from policies.engine import decision_to_dict
from policies.redaction import without_text
from policies.types import Action, Decision

_RATIO_DIGITS = 4
_MS_DIGITS = 1


@dataclass(slots=True, kw_only=True)
class Repairs:
    """How many sentences were left out and corrected, and how often the upstream was asked to continue."""

    stripped: int = 0
    corrected: int = 0
    regenerations: int = 0

    def nonzero(self) -> dict[str, int]:
        """The counts that are not zero, as the client sees them."""
        counts = {
            "stripped_count": self.stripped,
            "corrected_count": self.corrected,
            "regenerations": self.regenerations,
        }
        return {name: count for name, count in counts.items() if count}


def without_withheld(decision: Decision, withheld: Collection[str]) -> Decision:
    """``decision`` without the texts that it quotes and that contain one of ``withheld``."""
    known = frozenset(withheld)

    def hides(quoted: str) -> bool:
        # Most reasons quote one claim as a whole, which needs no search through all of them.
        inner = quoted.partition('"')[2].rpartition('"')[0]
        return (bool(inner) and inner in known) or any(text in quoted for text in withheld)

    return without_text(decision, hides)


def reasons_of(verdict: SentenceVerdict, thresholds: Thresholds) -> list[str]:
    """What is wrong with a sentence, for the model that wrote it."""
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


def claims_of(sentence: JudgedSentence, chunks: Sequence[Chunk], *, choice: int | None = None) -> list[dict[str, Any]]:
    """The claims of a sentence as the client sees them, without the text of a withheld sentence."""
    citations = (*sentence.citations, *sentence.noted)
    cited = [chunks[citation.document_index].id for citation in citations if citation.document_index is not None]
    claims = []
    for verdict in sentence.verdict.claims:
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
        if not shown:
            claim["delivered"] = False
        if choice is not None:
            claim["choice"] = choice
        claims.append(claim)
    return claims


def unjudged_of(sentences: Sequence[JudgedSentence]) -> list[dict[str, Any]]:
    """The parts of the delivered text that are neither judged nor harmless, with their places in it."""
    return [
        {"kind": part.kind, "start": sentence.place(part.span.start), "end": sentence.place(part.span.end)}
        for sentence in sentences
        if sentence.offset is not None
        for part in sentence.verdict.parts
        if part.standing is Standing.UNJUDGED and part.span not in sentence.left_out
    ]


def summary_of(
    *,
    request_id: str,
    action: str,
    verdict: str,
    report: GroundingReport,
    claims: Sequence[Mapping[str, Any]],
    decisions: Sequence[Decision],
    withheld: Sequence[str],
    retrieval: Mapping[str, Any],
    judge_name: str | None,
    judge_ms: float | None,
    llm_calls: Sequence[LlmCall] = (),
    unchecked: Sequence[str],
    options: Options,
    unjudged: Sequence[Mapping[str, Any]] = (),
    final_because: Sequence[str] = (),
    repairs: Repairs | None = None,
    not_regenerated: str | None = None,
) -> dict[str, Any]:
    """The ``grounding`` object. Fields that the client did not ask for are left out; withheld texts are elided.

    ``unjudged`` are the delivered parts that nobody judged; ``final_because`` names the rules that block and are
    decided only at the end, for which the reply is held until then.
    """
    summary: dict[str, Any] = {
        "request_id": request_id,
        "action": action,
        "verdict": verdict,
        "trust_score": _ratio(report.trust_score),
        "is_trusted": report.is_trusted,
        "total_claims": report.total_claims,
        "supported_count": report.supported_count,
        "contradicted_count": report.contradicted_count,
        "unverifiable_count": report.unverifiable_count,
        "unverifiable_ratio": _ratio(report.unverifiable_ratio),
        "coverage": _ratio(report.coverage),
        "summary": report.summary,
    }
    optional = {
        "unjudged": list(unjudged),
        "final_because": list(final_because),
        "claims_skipped": report.claims_skipped,
        **(repairs.nonzero() if repairs is not None else {}),
        "not_regenerated": not_regenerated,
        "not_checked": sorted(unchecked),
    }
    summary |= {name: value for name, value in optional.items() if value}
    if options.shows("claims"):
        summary["claims"] = list(claims)
    if options.shows("decisions"):
        summary["decisions"] = [decision_to_dict(without_withheld(decision, withheld)) for decision in decisions]
    if options.shows("documents"):
        summary["retrieval"] = dict(retrieval)
    summary["judge"] = {
        "name": judge_name,
        "latency_ms": None if judge_ms is None else round(judge_ms, _MS_DIGITS),
    }
    if llm_calls:
        summary["judge"]["llm"] = llm_usage(llm_calls)
    return summary


def retrieval_summary(
    chunks: Sequence[Chunk], dropped: Mapping[int, str], decisions: Sequence[Decision], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The documents used, those dropped and why, and the warnings, followed by ``notes``."""
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
    warnings = [decision.reason for decision in decisions if decision.action is Action.WARN]
    return {"kept": kept, "dropped": left_out, "warnings": [*warnings, *notes]}


class ChoiceVerdict(Protocol):
    """A choice of a reply, with its verdict and trust score."""

    @property
    def verdict(self) -> str: ...

    @property
    def trust_score(self) -> float | None: ...


def worst(choices: Sequence[ChoiceVerdict], *, default: str) -> tuple[str, float | None]:
    """Verdict and trust score of a reply: those of its worst choice."""
    if not choices:
        return default, None
    found = min(choices, key=lambda choice: VERDICTS_WORST_FIRST.index(ReplyVerdict(choice.verdict)))
    scores = [choice.trust_score for choice in choices if choice.trust_score is not None]
    return found.verdict, min(scores, default=None)


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
