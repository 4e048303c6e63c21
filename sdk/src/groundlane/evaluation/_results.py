"""Evaluation results, with the content of a case's result file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from groundlane._fields import Fields
from groundlane._types import Span, UnjudgedPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The passage that decided the verdict on a claim, which either supports it best or contradicts it."""

    document_id: str | None
    document_index: int | None
    content: str

    @classmethod
    def maybe(cls, data: Any) -> Self | None:
        fields = Fields(data)
        if not fields:
            return None
        return cls(
            document_id=fields.text("document_id"),
            document_index=fields.whole("document_index"),
            content=fields.text("content") or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedClaim:
    """A claim in an output. ``label`` is ``supported``, ``contradicted``, ``unverifiable`` or ``not_a_claim``. ``span``
    is its position in the output, in code points."""

    text: str
    label: str
    accepted: bool
    confidence: float | None
    entailed: float
    contradicted: float
    span: Span
    reason: str | None
    explanation: str | None
    correction: str | None
    passage: Passage | None

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        fields = Fields(data)
        start, end = data["span"]
        return cls(
            text=fields.within("item").text("text") or "",
            label=fields.text("label") or "",
            accepted=fields.text("verdict") == "ACCEPTED",
            confidence=fields.number("confidence"),
            entailed=fields.number("entailed") or 0.0,
            contradicted=fields.number("contradicted") or 0.0,
            span=Span(start=start, end=end),
            reason=fields.text("reason"),
            explanation=fields.text("explanation"),
            correction=fields.text("correction"),
            passage=Passage.maybe(data.get("passage")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """The result of a case.

    ``score`` is the mean score of the claims, from 0 to 1, or None if the case was skipped or could not be judged.
    ``skipped`` is ``no_context``, ``no_claims`` or ``disabled``. ``error`` says why verdicts are missing. ``unjudged``
    lists the parts of the output that weren't judged. ``cached`` means that the verdicts come from the cache. ``raw``
    is the content of the case's result file.
    """

    case_id: str
    score: float | None
    claims: tuple[EvaluatedClaim, ...]
    summary: str | None
    skipped: str | None
    error: str | None
    cached: bool
    unjudged: tuple[UnjudgedPart, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        fields = Fields(data)
        metric: Mapping[str, Any] = data["metrics"][0] if data["metrics"] else {}
        entries = [entry for entry in metric.get("result", ()) if "item" in entry]
        return cls(
            case_id=fields.text("case_id") or "",
            score=Fields(metric).number("score"),
            claims=tuple(map(EvaluatedClaim.read, entries)),
            summary=fields.text("summary"),
            skipped=fields.text("skipped"),
            error=Fields(metric).text("error"),
            cached=any(entry["item"]["cached"] for entry in entries),
            unjudged=UnjudgedPart.each(data.get("unjudged")),
            raw=data,
        )
