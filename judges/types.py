"""The vocabulary of judging. This module imports no other module of this project, and all values are frozen.

A *chunk* is a retrieved piece of a document, a *claim* a verifiable statement with its position in the reply,
*evidence* a window of a chunk, and a *verdict* a judge's conclusion about a claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, overload

from msgspec import Struct


class Label(StrEnum):
    """The outcome for a sentence or claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNVERIFIABLE = "unverifiable"
    NOT_A_CLAIM = "not_a_claim"


class ReplyVerdict(StrEnum):
    """The outcome for a whole reply."""

    SUPPORTED = "supported"
    HAS_CONTRADICTIONS = "has_contradictions"
    HAS_UNVERIFIABLE = "has_unverifiable"
    NO_CLAIMS = "no_claims"
    NO_SOURCES = "no_sources"
    NOT_CHECKED = "not_checked"


LABELS_WORST_FIRST = (Label.CONTRADICTED, Label.UNVERIFIABLE, Label.SUPPORTED, Label.NOT_A_CLAIM)
VERDICTS_WORST_FIRST = (
    ReplyVerdict.HAS_CONTRADICTIONS,
    ReplyVerdict.HAS_UNVERIFIABLE,
    ReplyVerdict.NOT_CHECKED,
    ReplyVerdict.NO_SOURCES,
    ReplyVerdict.SUPPORTED,
    ReplyVerdict.NO_CLAIMS,
)
"""The verdict of a reply with several choices is the worst verdict among the choices."""


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range ``[start, end)`` in Unicode code points."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A retrieved piece of a document.

    ``relevance_score`` is 0–1 and ``age_days`` is in days; either is None if the caller did not provide it.
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


class BlockMarks(StrEnum):
    """How to read what looks like a mark of a list item, block quote or heading at the beginning of a sentence."""

    MARKUP = "markup"
    SIGNS = "signs"
    """As markup, but a judge reads a mark before a number too, because it may be a sign ("> 25", "- 25")."""
    TEXT = "text"
    """As text, because clients show it, or may show it."""
    CODE = "code"
    """The whole sentence is an indented code block, so nothing in it is markup."""


class Sentence(Struct, frozen=True, kw_only=True):
    """A sentence of the reply. ``text`` is the raw text of ``span`` plus the whitespace after it, so that joining a
    reply's sentences gives the reply. ``plain`` is the text to judge, without Markdown and surrounding whitespace."""

    index: int
    text: str
    span: Span
    plain: str
    in_code: bool = False
    complete: bool = True
    """False for a final sentence that the upstream cut off: one without an end mark, in a reply that reached its length
    limit."""
    introduces_nothing: bool = False
    """Whether the text after the sentence has nothing that the sentence can introduce. If it is a label, it is then a
    claim."""
    marks: BlockMarks = BlockMarks.MARKUP


class SentencesBefore(Sequence[Sentence]):
    """A view of the first ``count`` of ``sentences``, without copying them."""

    def __init__(self, sentences: Sequence[Sentence], count: int) -> None:
        self._sentences = sentences
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Sentence: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Sentence]: ...
    def __getitem__(self, place: int | slice) -> Sentence | Sequence[Sentence]:
        if isinstance(place, slice):
            start, stop, step = place.indices(self._count)
            return self._sentences[start:stop:step]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        return self._sentences[place % self._count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A verifiable statement.

    ``text`` is the text that the judge reads, and ``span`` is its position in the reply. ``context`` is preceding text
    that is needed to understand a pronoun, a connective or a list item. ``question`` is the question that the claim
    answers, if the claim depends on one. The question isn't judged, but determines which of several things in the
    evidence the claim refers to. If ``question_known`` is False, the claim ("Yes.") answers a question that isn't
    known, so no evidence can support it. ``parts`` are the parts into which an LLM split the claim. If ``correctable``
    is False, no correction may replace the claim, because part of it isn't in the reply. ``stands_alone`` says that the
    claim can be understood without its ``context``, which consists of headings and lead-ins in words of the documents.
    """

    text: str
    span: Span
    sentence_index: int
    context: str = ""
    question: str = ""
    parts: tuple["Claim", ...] = ()
    question_known: bool = True
    correctable: bool = True
    stands_alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A window of whole sentences of a chunk. ``span`` is its position in the chunk's text. If the text contains table
    rows, the judge reads ``verbalised`` instead, in which each cell follows the name of its column.
    """

    chunk_index: int
    document_id: str
    source: str | None
    text: str
    span: Span
    verbalised: str = ""

    @property
    def judged_text(self) -> str:
        """The text that the judge reads."""
        return self.verbalised or self.text

    def as_source(self, score: float) -> "Source":
        """Return the window as the source of a verdict. ``score`` (0 to 1) says how strongly it supports or contradicts
        the claim."""
        return Source(
            document_id=self.document_id,
            document_index=self.chunk_index,
            source=self.source,
            content=self.text,
            score=score,
            span=self.span,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """How chunks are cut. A window ends after ``sentences`` sentences or before it would exceed ``tokens`` tokens,
    whichever comes first. It repeats the last ``overlap`` sentences of the previous window. The embedded model was
    trained with the defaults. That model reads a claim against several windows at once, so the windows don't need to
    overlap."""

    sentences: int = 12
    tokens: int = 128
    overlap: int = 0


class EvidenceWindows(str):
    """Several windows that a claim is judged against together. The string itself is the text of all windows, joined by
    line feeds, which is all that a plain cross-encoder needs. ``parts`` are the separate texts, for a scorer that
    caches them."""

    parts: tuple[str, ...]

    def __new__(cls, parts: Sequence[str]) -> Self:
        made = super().__new__(cls, "\n".join(parts))
        made.parts = tuple(parts)
        return made


@dataclass(frozen=True, slots=True)
class UnsupportedSpan:
    """Characters ``[start, end)`` of a judged text that the evidence does not support, with the probability of that
    (0–1)."""

    start: int
    end: int
    score: float


class Probabilities(Struct, frozen=True):
    """The output of a cross-encoder for one (evidence, claim) pair: three probabilities that sum to 1. If the scorer
    fuses windows, ``parts`` holds the output for each part of ``EvidenceWindows``. ``spans`` are the unsupported parts
    of the claim, if the scorer reports them."""

    entailed: float
    neutral: float
    contradicted: float
    parts: tuple["Probabilities", ...] = ()
    spans: tuple[UnsupportedSpan, ...] = ()
    stage: int = 0
    """The position in the cascade of the judge that produced the probabilities; 0 for a single judge."""
    provisional: bool = False
    """Whether the judge in a cascade that should have decided has failed. If so, another request may get a different
    score."""
    second: "Probabilities | None" = None
    """The probabilities from a larger encoder that read all of the evidence together, if the judge has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The best evidence for or against a claim. ``span`` is its position in the document's text."""

    document_id: str
    document_index: int
    source: str | None
    content: str
    score: float
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """A claim and the judge's conclusion from the documents.

    ``entailed`` and ``contradicted`` are the highest probabilities (0–1) over the claim's evidence. No threshold has
    been applied to them, so each policy can label the claim with its own thresholds (``Thresholds.label_of``).
    ``reason`` is None for a judged claim; otherwise it says why the claim was not judged: ``timeout``, ``overloaded``,
    ``judge_error``, ``unavailable``, ``skipped``, or ``language`` (the model does not support the claim's language).

    ``escalated`` means that the verdict comes from an LLM and does not depend on thresholds; ``explanation`` is then
    the LLM's reasoning. ``correction`` is a statement, supported by the documents, to replace a contradicted claim, if
    an LLM gave one. ``corrected`` has the verdicts on the sentence with its corrections.
    """

    claim: Claim
    label: Label
    entailed: float
    contradicted: float
    best_source: Source | None = None
    contradicting_source: Source | None = None
    explanation: str | None = None
    correction: str | None = None
    corrected: tuple["ClaimVerdict", ...] = ()
    escalated: bool = False
    reason: str | None = None
    judge_score: float | None = None
    """The judge's own P(entailed) for a verdict that an LLM decided; None if the judge had no verdict."""
    support: Mapping[int, float] = field(default_factory=dict, hash=False)
    """P(entailed) of the best evidence in each document judged, by document index; empty if that was not recorded."""
    spans: tuple[UnsupportedSpan, ...] = ()
    """The parts of the claim that no evidence supports, as positions in the reply, if the judge reports them."""

    @property
    def score(self) -> float:
        """P(entailed) of the best evidence, 0–1."""
        return self.entailed

    @property
    def confidence(self) -> float | None:
        """The probability of the label itself, 0–1; None for a claim that was not judged."""
        if self.reason is not None:
            return None
        match self.label:
            case Label.SUPPORTED:
                return self.entailed
            case Label.CONTRADICTED:
                return self.contradicted
            case _:
                return max(0.0, 1.0 - max(self.entailed, self.contradicted))

    @property
    def deciding_source(self) -> Source | None:
        """The source that decided the verdict."""
        return self.source_for(self.label)

    def source_for(self, label: Label) -> Source | None:
        """Return the source that decides the verdict if the claim has ``label``: the contradicting source for a
        contradicted claim, otherwise the best source."""
        against = self.contradicting_source if label is Label.CONTRADICTED else None
        return against or self.best_source


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedStatement:
    """A statement and its origin: the document at ``document_index`` or, if that is None, the reply or an ``earlier``
    reply in the same run. ``span`` is its position in that text."""

    text: str
    span: Span
    document_index: int | None = None
    earlier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two statements that contradict each other, in text order, and the probability (0–1) that they do."""

    first: LocatedStatement
    second: LocatedStatement
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistency:
    """The result of comparing statements with each other.

    ``contradictions`` are sorted by score, highest first. ``skipped`` counts candidate pairs beyond the number that may
    be judged. ``reason`` is None if the comparison was made. Otherwise, it says why no comparison was made:
    ``timeout``, ``overloaded``, ``judge_error`` or ``unavailable``.
    """

    contradictions: Sequence[Contradiction] = ()
    skipped: int = 0
    reason: str | None = None

    @property
    def texts(self) -> list[str]:
        """The text of every statement in ``contradictions``."""
        return [side.text for one in self.contradictions for side in (one.first, one.second)]


class Standing(StrEnum):
    """Whether characters of a reply have been checked."""

    JUDGED = "judged"
    """Text in a claim with a verdict, or text that a document contains verbatim."""
    HARMLESS = "harmless"
    """Text that states nothing (``judges.claims.harmless``), whitespace, punctuation or markup."""
    UNJUDGED = "unjudged"
    """Everything else."""


class Part(Struct, frozen=True, kw_only=True):
    """A range of the reply with one standing. ``kind`` is the kind of unjudged text: ``code``, ``link``, ``attribute``,
    ``comment``, ``invisible``, ``stray_marker``, ``struck``, ``json``, or why a claim has no verdict (``timeout``,
    ``language``, ``skipped``, ``unavailable``).
    """

    span: Span
    standing: Standing
    kind: str | None = None


class SentenceVerdict(Struct, frozen=True, kw_only=True):
    """A sentence and the verdicts of its claims; ``label`` is the worst label among the claims (contradicted, then
    unverifiable)."""

    sentence: Sentence
    label: Label
    claims: tuple[ClaimVerdict, ...] = ()
    parts: tuple[Part, ...] = ()
    """The standing of every character. The parts cover the sentence without overlapping. Empty if the sentence wasn't
    supposed to be judged."""


class GroundingReport(Struct, frozen=True, kw_only=True):
    """The result of checking a reply."""

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
    """Share of the reply's letters and digits that are judged or harmless, 0–1."""
    unjudged: tuple[Part, ...] = ()
    """The unjudged parts of the reply, in order."""
    claims_skipped: int = 0
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPart:
    """A part of a question. ``in_documents`` means that a sentence in the documents is about this part; ``in_reply``
    means that a claim in the reply is."""

    text: str
    in_documents: bool
    in_reply: bool
