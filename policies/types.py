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
    """The strictest of ``actions``; ``allow`` if there are none."""
    return max(actions, key=lambda action: action.severity, default=Action.ALLOW)


class Phase(StrEnum):
    """When policies are evaluated: before the request is forwarded, as the reply or run grows, and at its end."""

    BEFORE_WORKFLOW = "before_workflow"
    MID_EXECUTION = "mid_execution"
    AFTER_WORKFLOW = "after_workflow"


Aliases = str | tuple[str, ...] | None
"""The names of one thing: none, one, or several of which any may match."""


def _names(value: Aliases) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Shell globs for the agents, models and keys that a policy applies to; an empty list means all."""

    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def covers(self, *, agent: str | None, model: str | None, key: Aliases) -> bool:
        """``key``: the names of the gateway key that a glob may match, such as its name and its prefix."""
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
    """Percentage of requests on which the policy is enforced; on the others it is in shadow."""
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A violated rule. ``drop``: the indices of the documents that ``Action.DROP`` drops. ``relative``: which ones
    depends on the other documents. ``without_text``: the reason without the text that it quotes, if it does."""

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
    """The reasons that quote text, each with the same reason without that text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A citation in the reply, or one that the caller reports. ``marker`` is its text (``[1]``).

    ``document_index`` is None if the marker names no document of the request; ``sentence_index`` is None for a reported
    citation.
    """

    marker: str
    document_index: int | None = None
    sentence_index: int | None = None
    span: Span | None = None
    """Where the marker is in the reply; None if it is not in its text."""
    reported: bool = False
    """True if the caller reports it: it counts, whether or not it names a document of the request."""


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
    """What policies read: everything known so far about a request or run.

    ``injectable``: the gateway writes the documents into the prompt, so a dropped document can be kept out of it.
    ``final``: no more documents, scores or sentences will come.
    ``reported_scores``, ``reported_unsupported`` and ``output_confidence`` come from the caller, ``claims`` from the
    judge.
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
    """Share of the letters and digits in the upstream's reply that are judged or harmless; None if it has none, or if
    that is not known."""
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
    """The indices of the documents that policies drop."""
    unfit: frozenset[int] = frozenset()
    """Those of ``dropped`` that are dropped for their own sake, not so that no source dominates."""
    consistency: Consistency | None = None
    """The result of comparing the claims with each other; None if they were not compared."""
    conflicts: Consistency | None = None
    """The result of comparing the documents with each other; None if they were not compared."""
    cited_support: Mapping[tuple[Span, int], float] = field(default_factory=dict)
    """P(entailed) by claim span and index of a document that the claim's sentence cites. Only for documents that no
    claim's own evidence was taken from."""
    llm_scores: Sequence[LlmScore] = ()
    """LLM scores of the whole reply, one for each request made."""
    documents_may_follow: bool = False
    """True before a reply that may come with documents of its own, such as the results of a file search."""
    of_run: bool = False
    """True for a run: its caller reports its citations, so a run without reports has none."""
