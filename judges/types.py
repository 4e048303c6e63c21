"""The vocabulary of judging. This module imports nothing else of ours, and every value is frozen.

A *chunk* is a retrieved piece of a document, a *claim* a verifiable statement with its position in the reply,
*evidence* a window of a chunk, and a *verdict* what a judge concludes about a claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, overload


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
"""The verdict on a reply of several choices is the worst of theirs."""


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range ``[start, end)`` in Unicode code points."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A retrieved piece of a document.

    ``relevance_score`` is 0–1 and ``age_days`` is in days; None if the caller did not provide it.
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
    """A sentence of the reply. ``text`` is the raw text of ``span`` with the white space that follows it, so that the
    sentences of a reply joined give the reply. ``plain`` is the text to judge: stripped, and without Markdown."""

    index: int
    text: str
    span: Span
    plain: str
    in_code: bool = False
    complete: bool = True
    """False for a last sentence that the upstream cut off (no end mark in a reply that hit its length limit)."""


class SentencesBefore(Sequence[Sentence]):
    """The first ``count`` of ``sentences``, which are not copied."""

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

    ``text`` is what the judge reads and ``span`` its position in the reply. ``context`` precedes the text where a
    pronoun, connective or list item cannot be understood without it. ``question`` is the question that the claim
    answers, where it depends on one: it is not judged, it only tells which of several things in the evidence are
    meant.
    """

    text: str
    span: Span
    sentence_index: int
    context: str = ""
    question: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A window of whole sentences of a chunk. ``span`` is its position in the chunk's text. ``verbalised`` replaces
    the text for the judge where it has table rows: each cell then follows the name of its column."""

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


class EvidenceWindows(str):
    """Several windows to judge a claim against together. As a string they are joined by line feeds, which is all that
    a plain cross-encoder needs; ``parts`` are the separate texts, for a scorer that has read them already."""

    parts: tuple[str, ...]

    def __new__(cls, parts: Sequence[str]) -> Self:
        made = super().__new__(cls, "\n".join(parts))
        made.parts = tuple(parts)
        return made


@dataclass(frozen=True, slots=True)
class Probabilities:
    """The output of a cross-encoder for one (evidence, claim) pair; the three sum to 1. ``parts`` holds the same for
    each part of ``EvidenceWindows``, from a scorer that fuses."""

    entailed: float
    neutral: float
    contradicted: float
    parts: tuple["Probabilities", ...] = field(default=(), kw_only=True)


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
    """A claim and what the judge concludes from the documents.

    ``entailed`` and ``contradicted`` are the highest probabilities (0–1) over the claim's evidence, before any
    threshold, so that each policy can label the claim by thresholds of its own (``Thresholds.label_of``).

    ``reason`` is None for a claim that was judged; otherwise it says why it was not: ``timeout``, ``overloaded``,
    ``judge_error``, ``unavailable``, ``skipped``, or ``language`` (the model does not know the claim's language).

    ``escalated``: the verdict is an LLM's and does not depend on thresholds; ``explanation`` is then its reasoning.
    ``correction`` is the statement that the documents support instead of a contradicted claim, if an LLM gave one.
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
    """P(entailed) of the best evidence in each document judged, by document index; empty if that was not recorded."""

    @property
    def score(self) -> float:
        """P(entailed) of the best evidence, 0–1."""
        return self.entailed

    @property
    def confidence(self) -> float:
        """The probability of the label itself, 0–1."""
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
        """The source that decides if the claim has ``label``: the one that contradicts it, or else the best one."""
        against = self.contradicting_source if label is Label.CONTRADICTED else None
        return against or self.best_source


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedStatement:
    """A statement and where it is: in the document at ``document_index``, or else in the reply, or in an ``earlier``
    reply of the same run. ``span`` is its position in that text."""

    text: str
    span: Span
    document_index: int | None = None
    earlier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two statements that contradict each other, in text order, with the probability of that (0–1)."""

    first: LocatedStatement
    second: LocatedStatement
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistency:
    """The result of comparing statements with each other.

    ``contradictions`` are sorted by score, highest first. ``skipped`` counts candidate pairs beyond the number that may
    be judged. ``reason`` is None if the comparison was made; otherwise it says why not: ``timeout``, ``overloaded``,
    ``judge_error`` or ``unavailable``.
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
    """In a claim with a verdict, or contained literally in a document."""
    HARMLESS = "harmless"
    """Text that states nothing (``judges.claims.harmless``), white space, punctuation, markup."""
    UNJUDGED = "unjudged"
    """Everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A range of the reply with one standing.

    ``kind`` says what unjudged text is: ``code``, ``link``, ``attribute``, ``comment``, ``invisible``,
    ``stray_marker``, ``json``, or why a claim has no verdict (``timeout``, ``language``, ``skipped``,
    ``unavailable``).
    """

    span: Span
    standing: Standing
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceVerdict:
    """A sentence and the verdicts of its claims; ``label`` is the worst of theirs (contradicted, then unverifiable)."""

    sentence: Sentence
    label: Label
    claims: tuple[ClaimVerdict, ...] = ()
    parts: tuple[Part, ...] = ()
    """The standing of every character; the parts tile the sentence. Empty if it was not to be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingReport:
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
class LlmVerdict:
    """What an LLM concludes about a claim from passages.

    ``confidence`` is that of the label, 0–1. ``passages`` are the positions of the passages that it relies on.
    ``readable`` is False if the LLM's answer could not be parsed: the label is then ``unverifiable``, with 0.5.
    """

    label: Label
    confidence: float
    reasoning: str | None = None
    correction: str | None = None
    passages: tuple[int, ...] = ()
    readable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCall:
    """One request to an LLM, and its outcome.

    ``mode`` is ``score``, ``claim``, ``statements`` or ``decompose``. ``outcome`` is ``ok``, ``unreadable``,
    ``timeout``, ``overloaded`` or ``error``. ``cost_usd`` is None if the model's price is unknown.
    """

    mode: str
    model: str
    outcome: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """A policy's request to have a whole reply scored by an LLM: which model, and criteria beside the usual ones."""

    model: str
    criteria: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmScore:
    """How well an LLM finds a reply grounded, 0–1. ``score`` is None if there is none; ``skipped`` then says why:
    ``no_key``, ``unknown_model``, ``timeout``, ``overloaded`` or ``error``."""

    request: ScoreRequest
    score: float | None = None
    reasoning: str | None = None
    skipped: str | None = None
    detail: str | None = None
    calls: tuple[LlmCall, ...] = ()
