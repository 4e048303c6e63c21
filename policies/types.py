"""The vocabulary of policies. Judges return verdicts, policies return decisions; the two are never mixed."""

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
    """The strictest of ``actions``; ``allow`` if there are none. Their order does not matter."""
    return max(actions, key=lambda action: action.severity, default=Action.ALLOW)


class Phase(StrEnum):
    BEFORE_WORKFLOW = "before_workflow"
    MID_EXECUTION = "mid_execution"
    AFTER_WORKFLOW = "after_workflow"


Names = str | tuple[str, ...] | None
"""What something is called: nothing, one name, or several of which any will do."""


def _names(value: Names) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Shell globs for the agents, models and keys that a policy is for; an empty list means all."""

    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def covers(self, *, agent: str | None, model: str | None, key: Names) -> bool:
        """``key``: what a glob may match of the gateway key, such as its name and its prefix."""
        return all(
            not globs or any(fnmatchcase(name, glob) for name in _names(value) for glob in globs)
            for globs, value in ((self.agents, agent), (self.models, model), (self.keys, key))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy as the engine sees it: validated, with every default filled in."""

    id: str
    name: str
    category: str
    rules: BaseModel
    scope: Scope = field(default_factory=Scope)
    enabled: bool = True
    priority: int = 0
    mode: str = "enforce"
    canary_percent: int = 100
    """Share of requests, in percent, on which the policy is enforced; on the others it is in shadow."""
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule that does not hold. ``drop``: the indices of the documents that ``Action.DROP`` takes out; ``relative``:
    which those are hangs on what else is left."""

    action: Action
    reason: str
    reason_code: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    drop: frozenset[int] = frozenset()
    relative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one policy decided in one phase; a row of the event log."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A document cited by the reply or reported by the caller. ``marker`` is the text of it (``[1]``).

    ``document_index`` is None when the marker names no document given; ``sentence_index`` is None for a reported one.
    """

    marker: str
    document_index: int | None = None
    sentence_index: int | None = None
    span: Span | None = None
    """Where the marker stands in the reply; None where it has no place there."""
    reported: bool = False
    """True for one that the caller reports: it counts, whether or not it names a document given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything known so far of a request or run; what policies read.

    ``injectable``: the gateway itself writes the documents into the prompt, so a dropped one stays out of it.
    ``final``: no more documents, scores or sentences will come.
    ``reported_scores``, ``reported_unsupported`` and ``output_confidence`` are the caller's; ``claims`` the judge's.
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
    judged: bool = True
    """False where no judge looked at the reply (no documents, no judge, or nothing but tool calls)."""
    judge_unavailable: bool = False
    """True where the reply should have been judged and no judge could be loaded or reached."""
    tool_calls_only: bool = False
    """True where the reply has no text to judge: it calls tools and says nothing."""
    strippable: bool = True
    """False where text goes out before it is judged, so that a sentence can no longer be left out."""
    withheld: frozenset[int] = frozenset()
    """The indices of the sentences that were left out of the reply."""
    dropped: frozenset[int] = frozenset()
    """The indices of the documents that other policies take out."""
    unfit: frozenset[int] = frozenset()
    """Those of them that go whatever stands beside them, and not so that no source dominates."""
    consistency: Consistency | None = None
    """What came of holding the claims against each other; None where nobody did."""
    conflicts: Consistency | None = None
    """The same of the documents' sentences."""
    cited_support: Mapping[tuple[Span, int], float] = field(default_factory=dict)
    """P(entailed) of a claim, by its span, by a document that its sentence cites: of those alone that no claim's own
    evidence was taken from."""
    llm_scores: Sequence[LlmScore] = ()
    """What an LLM holds of the whole reply, one for each request that was made."""
    of_run: bool = False
    """True for a run: its caller reports what it cites, so that nothing reported is something missing."""
