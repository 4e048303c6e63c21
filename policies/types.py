"""The types used by policies. Judges return verdicts; policies return decisions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct
from pydantic import BaseModel

from judges.llm_types import LlmScore
from judges.types import Chunk, ClaimVerdict, Consistency, Label, QuestionPart, Span


class Action(StrEnum):
    """The effect of a decision, from mildest to strictest: ``allow`` < ``warn`` < ``drop`` < ``block``."""

    ALLOW = "allow"
    WARN = "warn"
    DROP = "drop"
    BLOCK = "block"


SEVERITY = {Action.ALLOW: 0, Action.WARN: 1, Action.DROP: 2, Action.BLOCK: 3}


class Phase(StrEnum):
    """When policies are evaluated: before the request is forwarded, as the reply or run grows, and at its end."""

    BEFORE_WORKFLOW = "before_workflow"
    MID_EXECUTION = "mid_execution"
    AFTER_WORKFLOW = "after_workflow"


class PolicySubject(StrEnum):
    """The subject of a policy's decision: the documents of a request or run, or the reply (in a run, its result)."""

    DOCUMENTS = "documents"
    REPLY = "reply"


Aliases = str | tuple[str, ...] | None
"""The names of an object: none, one, or several, any of which may match."""


def _names(value: Aliases) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _matches(name: str, glob: str) -> bool:
    return fnmatchcase(name.strip().casefold(), glob.strip().casefold())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Shell globs for the agents, models and keys that a policy applies to; an empty list means all. Matching ignores
    case and whitespace around names."""

    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def covers(self, *, agent: str | None, model: Aliases, key: Aliases) -> bool:
        """Return whether the scope includes a request. ``model`` has the names of the model: the requested name, and
        the names that upstreams use for it. A glob may also match the part of a name after its last slash. ``key`` has
        the names of the gateway key, such as its name and prefix."""
        models = _names(model)
        models += tuple(name.rpartition("/")[2] for name in models if "/" in name)
        return all(
            not globs or any(_matches(name, glob) for name in names for glob in globs)
            for globs, names in ((self.agents, _names(agent)), (self.models, models), (self.keys, _names(key)))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A validated policy with all defaults filled in."""

    id: str
    name: str
    category: str
    rules: BaseModel
    scope: Scope = field(default_factory=Scope)
    enabled: bool = True
    priority: int = 0
    mode: str = "enforce"
    canary_percent: int = 100
    """Percentage of requests on which the policy is enforced; on the others, it is in shadow mode."""
    version: int = 1


class Violation(Struct, frozen=True, kw_only=True):
    """A violated rule. ``drop`` has the indices of the documents that ``Action.DROP`` drops. ``relative`` means that
    this selection depends on the other documents. ``without_text`` is the reason without quoted text, if the reason
    quotes any."""

    action: Action
    reason: str
    reason_code: str
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    drop: frozenset[int] = frozenset()
    relative: bool = False
    without_text: str | None = None


class Decision(Struct, frozen=True, kw_only=True):
    """One policy's decision in one phase; a row of the event log."""

    policy_id: str
    policy_version: int
    policy_name: str
    category: str
    phase: Phase
    action: Action
    reason: str
    reason_code: str | None
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    latency_ms: float = 0.0
    quotes: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Maps each reason that quotes text to the same reason without that text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A citation in the reply, or one that the caller reports. ``marker`` is its text (``[1]``).

    ``document_index`` is None if the marker matches no document in the request; ``sentence_index`` is None for a
    reported citation. If several documents have the cited name, ``document_index`` is the one that supports the
    sentence, or the first, and ``other_documents`` are the others.
    """

    marker: str
    document_index: int | None = None
    other_documents: tuple[int, ...] = ()
    sentence_index: int | None = None
    span: Span | None = None
    """The position of the marker in the reply, or None if it is not in the text."""
    reported: bool = False
    """True if the caller reports the citation. A reported citation counts whether or not it matches a document in the
    request."""

    @property
    def documents(self) -> tuple[int, ...]:
        """The indices of all documents that the citation may refer to."""
        return () if self.document_index is None else (self.document_index, *self.other_documents)

    def moved(self, places: Mapping[int, int]) -> "Citation":
        """Return the citation with the new indices of its documents. ``places`` maps old indices to new ones; documents
        that it doesn't contain no longer exist."""
        moved = tuple(places[index] for index in self.documents if index in places)
        return replace(self, document_index=next(iter(moved), None), other_documents=moved[1:])

    def attributed(self, claims: Iterable[ClaimVerdict]) -> "Citation":
        """Return the citation with its document set to the one that supports ``claims``, the claims of its sentence. If
        no document does, return it unchanged."""
        if not self.other_documents:
            return self
        supported = [claim for claim in claims if claim.label is Label.SUPPORTED]
        scores = {index: max((_support(claim, index) for claim in supported), default=0.0) for index in self.documents}
        best = max(self.documents, key=scores.__getitem__)
        if scores[best] <= _LIKELY:
            return self
        others = tuple(sorted(index for index in self.documents if index != best))
        return replace(self, document_index=best, other_documents=others)


_LIKELY = 0.5


def _support(claim: ClaimVerdict, document: int) -> float:
    is_best = claim.best_source is not None and claim.best_source.document_index == document
    return 1.0 if is_best else claim.support.get(document, 0.0)


INVISIBLE = "invisible"
"""The kind of unjudged text made up of invisible characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjudgedText:
    """Text of the reply that is neither judged nor harmless. ``kind`` says why, as in ``judges.types.Part.kind``.
    ``text`` is empty if it was not kept, as in a log without texts.
    """

    kind: str
    span: Span
    sentence_index: int
    text: str = ""

    @property
    def characters(self) -> int:
        return self.span.end - self.span.start

    @property
    def excerpt(self) -> str:
        """The beginning of the text, as quoted in reasons, or an ellipsis if the text was not kept."""
        text = self.text.strip()
        return text if 0 < len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…"


_EXCERPT_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInputs:
    """The inputs of policies: everything known so far about a request or run.

    ``injectable`` means that the gateway writes the documents into the prompt, so it can leave out a dropped document.
    ``final`` means that no more documents, scores or sentences will arrive. ``reported_scores``,
    ``reported_unsupported`` and ``output_confidence`` come from the caller, and ``claims`` from the judge.
    """

    chunks: Sequence[Chunk] = ()
    injectable: bool = False
    final: bool = True
    claims: Sequence[ClaimVerdict] = ()
    citations: Sequence[Citation] = ()
    reported_scores: Sequence[float] = ()
    reported_unsupported: Sequence[str] = ()
    output_confidence: float | None = None
    trust_score: float | None = None
    unjudged: Sequence[UnjudgedText] = ()
    """The text of the reply that is neither judged nor harmless, in order."""
    coverage: float | None = None
    """The share of the letters and digits in the upstream's reply that are judged or harmless. None if the reply has no
    letters or digits, or if the share is unknown."""
    judged: bool = True
    """False if the reply was not judged (no documents, no judge, or only tool calls)."""
    judge_unavailable: bool = False
    """True if the reply should have been judged but no judge could be loaded or reached."""
    tool_calls_only: bool = False
    """True if the reply has no text to judge, only tool calls."""
    strippable: bool = True
    """False if text is sent before it is judged, so that a sentence can no longer be left out or replaced."""
    indivisible: bool = False
    """True if the reply is JSON that is held: no text can be left out of it, so unjudged text blocks it instead."""
    withheld: frozenset[int] = frozenset()
    """The indices of the sentences that were left out of the reply or replaced by a correction."""
    dropped: frozenset[int] = frozenset()
    """The indices of documents dropped by policies."""
    unfit: frozenset[int] = frozenset()
    """The documents in ``dropped`` that are dropped because of their own properties, rather than to keep a source from
    dominating."""
    consistency: Consistency | None = None
    """The result of comparing the claims with each other; None if they were not compared."""
    conflicts: Consistency | None = None
    """The result of comparing the documents with each other; None if they were not compared."""
    cited_support: Mapping[tuple[Span, int], float] = field(default_factory=dict)
    """The probability that a cited document supports a claim, by the claim's span and the index of the document. It
    only covers documents that were not among the claim's own evidence."""
    llm_scores: Sequence[LlmScore] = ()
    """LLM scores of the whole reply, one for each request made."""
    answer_relevance: float | None = None
    """The share of the question that the claims and their evidence are about, 0–1; None if it is unknown or there are
    no claims."""
    question_parts: Sequence[QuestionPart] | None = None
    """The parts of the question, compared with the documents and the reply; None if they were not compared."""
    documents_may_follow: bool = False
    """True before a reply that may bring additional documents, such as file search results."""
    of_sentence: bool = False
    """True if the claims and unjudged text are those of a single sentence. Everything else has been checked already."""
    of_run: bool = False
    """True for a run. The caller reports a run's citations, so a run without reported citations has none."""
