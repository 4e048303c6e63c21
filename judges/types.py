"""The vocabulary of judging. Imports nothing of ours; every value is frozen.

Terms follow the field's use: a *chunk* is a retrieved document piece, a *claim* a verifiable statement with the span it
comes from, *evidence* a window of a chunk, a *verdict* what the judge holds of a claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self


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
    ``span`` is where it stands in the reply. ``asked`` is the question that it answers, where it needs that to be
    understood: the judge does not read it, it says which of several things in the evidence are meant."""

    text: str
    span: Span
    sentence_index: int
    context: str = ""
    asked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A window of whole sentences of a chunk; ``span`` is its place in the chunk's text. ``told`` is the text as the
    judge reads it where that is another: rows of a table with what the header says of each cell."""

    chunk_index: int
    document_id: str
    source: str | None
    text: str
    span: Span
    told: str = ""

    @property
    def read(self) -> str:
        """What the judge reads."""
        return self.told or self.text


class Windows(str):
    """Texts that are judged together. As a string, they stand one below another: all that a plain cross-encoder needs;
    ``parts`` are the texts by themselves, for one that has read them already."""

    parts: tuple[str, ...]

    def __new__(cls, parts: Sequence[str]) -> Self:
        made = super().__new__(cls, "\n".join(parts))
        made.parts = tuple(parts)
        return made


@dataclass(frozen=True, slots=True)
class Probabilities:
    """What a judge holds of one (evidence, claim) pair; the three sum to 1. ``parts``: the same of each part of
    ``Windows`` by itself, from a judge that fuses."""

    entailed: float
    neutral: float
    contradicted: float
    parts: tuple["Probabilities", ...] = field(default=(), kw_only=True)


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
    (``timeout``, ``overloaded``, ``judge_error``, ``unavailable``, ``skipped``, ``language``: one that the model does
    not know), and is None otherwise.

    ``escalated``: an LLM gave the verdict, which then holds whatever the thresholds; ``explanation`` is its reasoning.
    ``correction``: the statement that the documents support in place of a contradicted claim, where an LLM gave one.
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

    @property
    def deciding_source(self) -> Source | None:
        """The source that decided the verdict."""
        return self.source_for(self.label)

    def source_for(self, label: Label) -> Source | None:
        """The source that decides if the claim has ``label``: the one that contradicts it, or else the best one."""
        against = self.contradicting_source if label is Label.CONTRADICTED else None
        return against or self.best_source

    def at(self, thresholds: Thresholds) -> Label:
        """The label by other thresholds than those it was judged with."""
        if self.label is Label.NOT_A_CLAIM or self.reason is not None or self.escalated:
            return self.label
        return thresholds.label(self.entailed, self.contradicted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A statement where it stands: in the document at ``document_index``, else in the reply, or in an ``earlier`` reply
    of the same run. ``span`` is its place in that text."""

    text: str
    span: Span
    document_index: int | None = None
    earlier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two statements that contradict each other, in their order, and how probable that is (0–1)."""

    first: Stated
    second: Stated
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistency:
    """What came of holding statements against each other.

    ``contradictions`` come with the highest score first. ``skipped``: pairs that seemed to be of one thing and were
    more than may be judged. ``reason`` says why the comparison was not made (``timeout``, ``overloaded``,
    ``judge_error``, ``unavailable``), and is None where it was.
    """

    contradictions: Sequence[Contradiction] = ()
    skipped: int = 0
    reason: str | None = None

    @property
    def texts(self) -> list[str]:
        """Every statement that it quotes."""
        return [side.text for one in self.contradictions for side in (one.first, one.second)]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What an LLM holds of a claim after reading passages.

    ``confidence`` is that of the verdict, 0–1; ``passages`` are the positions of those that it rests on. ``readable``
    is False where the LLM answered in no form that could be read: then the label is ``unverifiable``, at 0.5.
    """

    label: Label
    confidence: float
    reasoning: str | None = None
    correction: str | None = None
    passages: tuple[int, ...] = ()
    readable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCall:
    """One request to an LLM and what came of it.

    ``mode`` is ``score``, ``claim``, ``statements`` or ``decompose``; ``outcome`` is ``ok``, ``unreadable``,
    ``timeout``, ``overloaded`` or ``error``. ``cost_usd`` is None where the price of the model is not known.
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
    """What a policy asks an LLM of a whole reply: a score by this model, with these criteria beside the usual ones."""

    model: str
    criteria: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmScore:
    """How well a reply is grounded, 0–1, by an LLM. ``score`` is None where it was not asked or gave no answer;
    ``skipped`` then says why: ``no_key``, ``unknown_model``, ``timeout``, ``overloaded`` or ``error``."""

    request: ScoreRequest
    score: float | None = None
    reasoning: str | None = None
    skipped: str | None = None
    detail: str | None = None
    calls: tuple[LlmCall, ...] = ()
