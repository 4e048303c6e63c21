"""The vocabulary of judging. Imports nothing of ours; every value is frozen.

Terms follow the field's use: a *chunk* is a retrieved document piece, a *claim* a verifiable statement with the span it
comes from, *evidence* a window of a chunk, a *verdict* what the judge holds of a claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Label(StrEnum):
    """What a judge says of a sentence or claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNVERIFIABLE = "unverifiable"
    NOT_A_CLAIM = "not_a_claim"


class ReplyVerdict(StrEnum):
    """What a judge says of a whole reply."""

    SUPPORTED = "supported"
    HAS_CONTRADICTIONS = "has_contradictions"
    HAS_UNVERIFIABLE = "has_unverifiable"
    NO_CLAIMS = "no_claims"
    NO_SOURCES = "no_sources"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range ``[start, end)`` in Unicode code points."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One retrieved document piece.

    ``relevance_score`` lies in 0–1, ``age_days`` is in days; either is None where the caller did not say.
    """

    id: str
    text: str
    source: str | None = None
    collection: str | None = None
    relevance_score: float | None = None
    age_days: float | None = None
    title: str | None = None
    url: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence of the reply. ``text`` is the raw text of ``span``, white space that follows it included, so that the
    sentences of a reply joined give the reply; ``plain`` is what is judged: stripped, without Markdown."""

    index: int
    text: str
    span: Span
    plain: str
    in_code: bool = False
    complete: bool = True
    """False for a last sentence that the upstream cut off (no end mark when the reply ended for length)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A verifiable statement. ``text`` is what the judge reads (with the sentence before it where a pronoun needs it);
    ``span`` is where it stands in the reply."""

    text: str
    span: Span
    sentence_index: int
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A window of whole sentences of a chunk; ``span`` is its place in the chunk's text."""

    chunk_index: int
    document_id: str
    source: str | None
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Probabilities:
    """What a judge holds of one (evidence, claim) pair; the three sum to 1."""

    entailed: float
    neutral: float
    contradicted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """At or above ``entailment``: supported. At or above ``contradiction`` and above the entailment: contradicted."""

    entailment: float = 0.7
    contradiction: float = 0.7

    def label(self, entailed: float, contradicted: float) -> Label:
        if contradicted >= self.contradiction and contradicted > entailed:
            return Label.CONTRADICTED
        if entailed >= self.entailment:
            return Label.SUPPORTED
        return Label.UNVERIFIABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The best evidence for or against a claim. ``span`` is its place in the document's text."""

    document_id: str
    document_index: int
    source: str | None
    content: str
    score: float
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """A claim and what the documents say of it.

    ``entailed`` and ``contradicted`` are the highest probabilities over its evidence, before any threshold, so that
    each policy can label the same claim by its own thresholds (``at``). ``reason`` says why there is no better verdict
    (``timeout``, ``overloaded``, ``judge_error``, ``unavailable``, ``skipped``), and is None otherwise.
    """

    claim: Claim
    label: Label
    entailed: float
    contradicted: float
    best_source: Source | None = None
    contradicting_source: Source | None = None
    explanation: str | None = None
    correction: str | None = None
    escalated: bool = False
    reason: str | None = None
    support: Mapping[int, float] = field(default_factory=dict, hash=False)
    """P(entailed) of the best evidence of each document judged, by document index; empty where that was not kept."""

    @property
    def score(self) -> float:
        """P(entailed) of the best evidence, 0–1."""
        return self.entailed

    @property
    def confidence(self) -> float:
        """The probability of the verdict itself, 0–1."""
        match self.label:
            case Label.SUPPORTED:
                return self.entailed
            case Label.CONTRADICTED:
                return self.contradicted
            case _:
                return max(0.0, 1.0 - max(self.entailed, self.contradicted))

    def at(self, thresholds: Thresholds) -> Label:
        """The label by other thresholds than those it was judged with."""
        if self.label is Label.NOT_A_CLAIM or self.reason is not None:
            return self.label
        return thresholds.label(self.entailed, self.contradicted)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceVerdict:
    """A sentence and the verdicts of its claims; ``label`` is the worst of them (contradicted, then unverifiable)."""

    sentence: Sentence
    label: Label
    claims: tuple[ClaimVerdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingReport:
    """What the judge holds of a whole reply."""

    verdict: ReplyVerdict
    sentences: Sequence[SentenceVerdict] = ()
    claims: Sequence[ClaimVerdict] = ()
    trust_score: float | None = None
    is_trusted: bool = False
    total_claims: int = 0
    supported_count: int = 0
    contradicted_count: int = 0
    unverifiable_count: int = 0
    unverifiable_ratio: float = 0.0
    coverage: float = 0.0
    """Share of the reply's characters that belong to sentences checked or found to make no claim."""
    claims_skipped: int = 0
    summary: str = ""
