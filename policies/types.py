"""Types of policies. Judges return verdicts, policies return decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel

from judges.types import Chunk, ClaimVerdict, Consistency, LlmScore, Span


class Action(StrEnum):
    """What a decision does, from mildest to strictest: ``allow`` < ``warn`` < ``drop`` < ``block``."""

    ALLOW = "allow"
    WARN = "warn"
    DROP = "drop"
    BLOCK = "block"

    @property
    def severity(self) -> int:
        return _SEVERITY[self]


_SEVERITY = {Action.ALLOW: 0, Action.WARN: 1, Action.DROP: 2, Action.BLOCK: 3}


def strictest(actions: Sequence[Action]) -> Action:
    """Return the strictest of ``actions``, or ``allow`` if it is empty."""
    return max(actions, key=lambda action: action.severity, default=Action.ALLOW)


class Phase(StrEnum):
    """When policies are evaluated: before the request is forwarded, as the reply or run grows, and at its end."""

    BEFORE_WORKFLOW = "before_workflow"
    MID_EXECUTION = "mid_execution"
    AFTER_WORKFLOW = "after_workflow"


Aliases = str | tuple[str, ...] | None
"""The names of something: none, one, or several, of which any may match."""


def _names(value: Aliases) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Shell globs for the agents, models and keys that a policy applies to; an empty list means all."""

    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def covers(self, *, agent: str | None, model: str | None, key: Aliases) -> bool:
        """Whether the scope includes a request. ``key`` has the names of the gateway key that a glob may match, such as
        its name and prefix."""
        return all(
            not globs or any(fnmatchcase(name, glob) for name in _names(value) for glob in globs)
            for globs, value in ((self.agents, agent), (self.models, model), (self.keys, key))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A validated policy, with every default filled in."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A violated rule. ``drop`` has the indices of the documents that ``Action.DROP`` drops; ``relative`` means that
    the selection depends on the other documents. ``without_text`` is the reason without quoted text, if it quotes
    any."""

    action: Action
    reason: str
    reason_code: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    drop: frozenset[int] = frozenset()
    relative: bool = False
    without_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One policy's decision in one phase; a row of the event log."""

    policy_id: str
    policy_version: int
    policy_name: str
    category: str
    phase: Phase
    action: Action
    reason: str
    reason_code: str | None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    latency_ms: float = 0.0
    quotes: Mapping[str, str] = field(default_factory=dict)
    """Maps each reason that quotes text to the same reason without that text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A citation in the reply, or one that the caller reports. ``marker`` is its text (``[1]``).

    ``document_index`` is None if the marker matches no document in the request; ``sentence_index`` is None for a
    reported citation.
    """

    marker: str
    document_index: int | None = None
    sentence_index: int | None = None
    span: Span | None = None
    """The position of the marker in the reply, or None if it is not in the text."""
    reported: bool = False
    """True if the caller reports it. It then counts, whether or not it matches a document in the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjudgedText:
    """Text of the reply that is neither judged nor harmless. ``kind`` says why, as ``judges.types.Part.kind`` does.

    ``text`` is empty if it was not kept (in a log without texts).
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
        """The beginning of the text, as reasons quote it; an ellipsis if it was not kept."""
        text = self.text.strip()
        return text if 0 < len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…"


_EXCERPT_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInputs:
    """The inputs for policies: everything known so far about a request or run.

    ``injectable`` means that the gateway writes the documents into the prompt, so that a dropped document can be kept
    out. ``final`` means that no more documents, scores or sentences will arrive. ``reported_scores``,
    ``reported_unsupported`` and ``output_confidence`` come from the caller, ``claims`` from the judge.
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
    """The share of letters and digits in the upstream's reply that are judged or harmless; None if the reply has no
    letters or digits, or if the share is unknown."""
    judged: bool = True
    """False if the reply was not judged (no documents, no judge, or only tool calls)."""
    judge_unavailable: bool = False
    """True if the reply should have been judged but no judge could be loaded or reached."""
    tool_calls_only: bool = False
    """True if the reply has no text to judge, only tool calls."""
    strippable: bool = True
    """False if text is sent before it is judged, so that a sentence can no longer be left out or replaced."""
    withheld: frozenset[int] = frozenset()
    """The indices of the sentences that were left out of the reply."""
    dropped: frozenset[int] = frozenset()
    """The indices of documents dropped by policies."""
    unfit: frozenset[int] = frozenset()
    """The documents in ``dropped`` that are dropped because of their own properties, not to keep a source from
    dominating."""
    consistency: Consistency | None = None
    """The result of comparing the claims with each other; None if they were not compared."""
    conflicts: Consistency | None = None
    """The result of comparing the documents with each other; None if they were not compared."""
    cited_support: Mapping[tuple[Span, int], float] = field(default_factory=dict)
    """P(entailed) by claim span and index of a document that the claim's sentence cites; only for documents from which
    no claim's own evidence was taken."""
    llm_scores: Sequence[LlmScore] = ()
    """LLM scores of the whole reply, one for each request made."""
    documents_may_follow: bool = False
    """True before a reply that may bring additional documents, such as file search results."""
    of_run: bool = False
    """True for a run. The caller reports a run's citations, so a run without reports has no citations."""
