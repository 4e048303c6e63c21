"""The gateway's responses as value objects. ``raw`` is the original JSON, including fields unknown to this version."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from groundlane._fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A half-open range ``[start, end)`` in Unicode code points."""

    start: int
    end: int

    @classmethod
    def maybe(cls, data: Any) -> Self | None:
        fields = Fields(data)
        start, end = fields.whole("start"), fields.whole("end")
        return None if start is None or end is None else cls(start=start, end=end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The passage that decided the verdict on a claim. ``score`` is from 0 to 1, and ``span`` is the position of the
    passage in the document."""

    document_id: str | None
    content: str
    score: float | None
    source: str | None = None
    span: Span | None = None

    @classmethod
    def maybe(cls, data: Any) -> Self | None:
        fields = Fields(data)
        if not fields:
            return None
        return cls(
            document_id=fields.text("document_id", "chunk_id"),
            content=fields.text("content") or "",
            score=fields.number("score"),
            source=fields.text("source"),
            span=Span.maybe(fields.raw.get("span")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim in the checked text, with its verdict.

    ``verdict`` is ``supported``, ``contradicted`` or ``unverifiable``. ``confidence`` is the probability of the
    verdict, and ``score`` is the probability that the claim is supported. Both are from 0 to 1. ``text`` is None if a
    policy withheld it. ``spans`` contains the parts that no document supports, if the judge reports them. ``reason``
    says why no better verdict was available (``timeout``, ``overloaded``, …). ``corrected`` is the claim with
    ``correction`` marked in it, as ``[CORRECTED: …]``; it is set only in the result of a check.
    """

    text: str | None
    verdict: str
    confidence: float | None
    score: float | None = None
    span: Span | None = None
    spans: tuple[Span, ...] = ()
    best_source: Source | None = None
    citations: tuple[str, ...] = ()
    escalated: bool = False
    explanation: str | None = None
    correction: str | None = None
    corrected: str | None = None
    reason: str | None = None
    withheld: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def each(cls, data: Any) -> tuple[Self, ...]:
        return tuple(cls._read(Fields(item)) for item in _objects(data))

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        return cls(
            text=fields.text("claim"),
            verdict=fields.text("verdict") or "",
            confidence=fields.number("confidence"),
            score=fields.number("score"),
            span=Span.maybe(fields.raw.get("span")),
            spans=tuple(span for item in _objects(fields.raw.get("spans")) if (span := Span.maybe(item)) is not None),
            best_source=Source.maybe(fields.raw.get("best_source")),
            citations=fields.texts("citations"),
            escalated=fields.flag("escalated"),
            explanation=fields.text("explanation"),
            correction=fields.text("correction"),
            corrected=fields.text("corrected"),
            reason=fields.text("reason"),
            withheld=fields.raw.get("delivered") is False,
            raw=fields.raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjudgedPart:
    """A part of the text that may contain claims but wasn't judged. ``kind`` is the kind of text, such as ``code``."""

    kind: str
    span: Span | None

    @classmethod
    def each(cls, data: Any) -> tuple[Self, ...]:
        parts = data if isinstance(data, list) else []
        return tuple(cls(kind=Fields(item).text("kind") or "", span=Span.maybe(item)) for item in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A policy decision. ``action`` is ``allow``, ``warn``, ``drop`` or ``block``. ``phase`` is ``before_workflow``,
    ``mid_execution`` or ``after_workflow``."""

    action: str
    reason: str
    reason_code: str | None = None
    phase: str | None = None
    category: str | None = None
    policy_name: str | None = None
    policy_id: str | None = None
    policy_version: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def blocks(self) -> bool:
        return self.action == "block"

    @classmethod
    def each(cls, data: Any) -> tuple[Self, ...]:
        return tuple(cls._read(Fields(item)) for item in _objects(data))

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        return cls(
            action=fields.text("action") or "",
            reason=fields.text("reason") or "",
            reason_code=fields.text("reason_code"),
            phase=fields.text("phase"),
            category=fields.text("category"),
            policy_name=fields.text("policy_name"),
            policy_id=fields.text("policy_id"),
            policy_version=fields.whole("policy_version"),
            metadata=fields.within("metadata").raw,
            raw=fields.raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document in a request. If the document was dropped, ``reason`` says why."""

    id: str | None
    index: int | None = None
    source: str | None = None
    relevance_score: float | None = None
    age_days: float | None = None
    reason: str | None = None

    @classmethod
    def each(cls, data: Any) -> tuple[Self, ...]:
        return tuple(cls._read(Fields(item)) for item in _objects(data))

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        return cls(
            id=fields.text("id"),
            index=fields.whole("index"),
            source=fields.text("source"),
            relevance_score=fields.number("relevance_score"),
            age_days=fields.number("age_days"),
            reason=fields.text("reason"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """The documents that the retrieval policies kept and dropped, with the policies' warnings."""

    kept: tuple[Document, ...] = ()
    dropped: tuple[Document, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, data: Any) -> Self:
        fields = Fields(data)
        return cls(
            kept=Document.each(fields.raw.get("kept")),
            dropped=Document.each(fields.raw.get("dropped")),
            warnings=fields.texts("warnings"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounding:
    """The findings on a whole reply, or on the sentences in one chunk of a stream.

    A chunk has only ``claims``. In the last chunk, ``is_summary`` is true and the other fields describe the whole
    reply. ``action`` is ``allow``, ``warn`` or ``block``. ``verdict`` is ``supported``, ``has_contradictions``,
    ``has_unverifiable``, ``no_claims``, ``no_sources`` or ``not_checked``. ``trust_score`` is the ratio of supported
    claims, from 0 to 1.
    """

    request_id: str | None = None
    action: str | None = None
    verdict: str | None = None
    trust_score: float | None = None
    is_trusted: bool = False
    total_claims: int = 0
    supported_count: int = 0
    contradicted_count: int = 0
    unverifiable_count: int = 0
    unverifiable_ratio: float | None = None
    coverage: float | None = None
    summary: str | None = None
    claims: tuple[Claim, ...] = ()
    claims_skipped: int = 0
    decisions: tuple[Decision, ...] = ()
    retrieval: Retrieval = Retrieval()
    not_checked: tuple[str, ...] = ()
    judge: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_summary(self) -> bool:
        return self.verdict is not None

    @property
    def blocked(self) -> bool:
        """Whether a policy blocked the reply. If so, the delivered text ends with the policy's abstention response."""
        return self.action == "block"

    @classmethod
    def maybe(cls, data: Any) -> Self | None:
        """Read the findings in ``data``, or return None if it has none."""
        fields = Fields(data)
        if not fields:
            return None
        return cls(
            request_id=fields.text("request_id"),
            action=fields.text("action"),
            verdict=fields.text("verdict"),
            trust_score=fields.number("trust_score"),
            is_trusted=fields.flag("is_trusted"),
            total_claims=fields.count("total_claims"),
            supported_count=fields.count("supported_count"),
            contradicted_count=fields.count("contradicted_count"),
            unverifiable_count=fields.count("unverifiable_count"),
            unverifiable_ratio=fields.number("unverifiable_ratio"),
            coverage=fields.number("coverage"),
            summary=fields.text("summary"),
            claims=Claim.each(fields.raw.get("claims")),
            claims_skipped=fields.count("claims_skipped"),
            decisions=Decision.each(fields.raw.get("decisions")),
            retrieval=Retrieval.read(fields.raw.get("retrieval")),
            not_checked=fields.texts("not_checked"),
            judge=fields.within("judge").text("name"),
            raw=fields.raw,
        )


def _objects(data: Any) -> list[Mapping[str, Any]]:
    return [item for item in data if isinstance(item, Mapping)] if isinstance(data, list) else []
