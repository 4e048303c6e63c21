"""The extension point for policies. A category consists of a rules model and an evaluator, and is listed in
``policies.registry``."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol

import msgspec
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, ConfigDict

from judges.label_thresholds import Thresholds
from judges.llm_types import ScoreRequest
from judges.types import ClaimVerdict, Consistency
from policies.types import Phase, PolicyInputs, PolicySubject, Violation


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("Input contains a lone surrogate, which cannot be sent or stored") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
"""A string in a rule; lone surrogates are rejected."""


class Rules(BaseModel):
    """Base class of all rules models: unknown rules are rejected, and values are not coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class CategoryResult(Struct, frozen=True, kw_only=True):
    """The result of evaluating a category in one phase.

    If there are violations, they determine the reason, reason code and metadata of the decision. Otherwise, ``reason``,
    ``reason_code`` and ``metadata`` are used. ``notes`` are always added to the metadata, and ``warnings`` to its list
    of warnings.
    """

    violations: tuple[Violation, ...] = ()
    reason: str = ""
    reason_code: str | None = None
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    notes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class RulesError(ValueError):
    """A policy's rules are invalid. ``errors`` lists each error as ``{"loc": ["rules", name], "msg": text}``."""

    def __init__(self, errors: Sequence[Mapping[str, Any]]) -> None:
        self.errors = [dict(error) for error in errors]
        super().__init__("; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in self.errors))


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentNeeds:
    """What a policy's rules need to know about the documents. By default, they need nothing beyond the request."""

    compares: bool = False
    """Whether the documents are compared with each other (``PolicyInputs.conflicts``)."""
    reads_texts: bool = False
    """Whether the texts of the documents are read. Not every log contains them."""
    takes_any_relevance: bool = False
    """Whether relevance scores outside 0 to 1 are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """How a reply is judged."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    max_sources: int = 5
    """Maximum number of passages that a claim is judged against."""
    max_claims: int | None = None
    """Maximum number of claims that are judged; None means all."""


class ClaimRepairs(Protocol):
    """How a policy repairs a reply. ``replaceable`` means that the text has not been sent yet."""

    def needs_correction(self, claim: ClaimVerdict) -> bool:
        """Return whether ``claim`` would be replaced by its correction if it had one."""
        ...

    def is_corrected(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """Return whether ``claim`` is replaced by its correction."""
        ...

    def is_stripped(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """Return whether the sentence that contains ``claim`` is left out."""
        ...

    def leaves_out_unjudged(self, *, replaceable: bool) -> bool:
        """Return whether unjudged text is left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyNeeds:
    """How a policy's rules require a reply to be handled. By default, the rules leave this to other policies."""

    judging: JudgeOptions | None = None
    stream_mode: str | None = None
    """The stream mode (``live``, ``hold`` or ``final``); None leaves it to other policies."""
    blocks_at_end: tuple[str, ...] = ()
    """The names of the blocking rules that can be decided only when the reply is complete."""
    reasoning_action: str = "pass"
    """The action for reasoning: ``pass``, ``judge`` or ``drop``."""
    tool_call_action: str = "pass"
    """The action for tool calls: ``pass``, ``hold`` or ``drop``."""
    withholds_unjudged: bool = False
    """Whether unjudged text is left out or blocks the reply."""
    reads_standings: bool = False
    """Whether the delivered text can depend on which text is unjudged."""
    wants_citations: bool = False
    """Whether replies with claims must cite documents."""
    corrects: bool = False
    """Whether contradicted claims are replaced by corrections."""
    strips: bool = False
    """Whether text may be left out."""
    evidence_from_tools: bool = False
    """Whether tool messages count as documents."""
    consistency_check: bool = False
    """Whether the claims are compared with each other."""
    valid_citations: bool = False
    """Whether the citations are checked."""
    answer_relevance: bool = False
    """Whether the claims are compared with the question."""
    question_parts: bool = False
    """Whether the parts of the question are compared with the documents and the claims."""
    max_regenerations: int = 0
    score_request: ScoreRequest | None = None
    """The request for an LLM's score of the whole reply; None if no score is needed."""
    scores_results: bool = False
    """Whether the LLM that scores the replies of a run also scores the run's result."""
    scores_documents: bool = False
    """Whether ``mid_execution`` checks the documents' relevance scores."""
    on_block: str = "replace"
    """What the client receives instead of a blocked reply: a text (``replace``) or an error (``error``)."""
    abstention_response: str | None = None
    """The text that replaces a blocked reply."""
    repairs: ClaimRepairs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWarning:
    """A warning that a rule may not have the expected effect. ``loc`` is the path of the field, as in
    ``RulesError.errors``.
    """

    loc: tuple[str, ...]
    msg: str


def _every_model(_model: str) -> bool:
    return True


def _no_fault(_model: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFacts:
    """Facts about a gateway that the warnings depend on. By default, everything is available.

    ``serves`` returns whether an upstream serves a model, given its name or a shell glob. ``llm_fault`` says why no LLM
    can correct claims; None if one can. ``llm_model_fault`` returns why the LLM with a given name can't score replies;
    None if it can.
    """

    serves: Callable[[str], bool] = _every_model
    llm_fault: str | None = None
    llm_model_fault: Callable[[str], str | None] = _no_fault


class Category(ABC):
    """A kind of policy: its rules model and the evaluation of its rules. Arguments named ``rules`` are instances of
    that model."""

    name: ClassVar[str]
    rules: ClassVar[type[Rules]]
    subjects: ClassVar[frozenset[PolicySubject]]
    """The subjects that the category decides about; it is evaluated only for these."""

    @abstractmethod
    def evaluate(self, phase: Phase, rules: Any, inputs: PolicyInputs) -> CategoryResult | None:
        """Check ``inputs`` at ``phase``. If the category checks nothing in this phase, return None, and no decision is
        made."""

    def document_needs(self, rules: Any) -> DocumentNeeds:
        """Return what a policy with ``rules`` needs to know about the documents."""
        return DocumentNeeds()

    def reply_needs(self, rules: Any) -> ReplyNeeds:
        """Return how a policy with ``rules`` requires a reply to be handled."""
        return ReplyNeeds()

    def warnings(self, rules: Any, facts: GatewayFacts) -> Iterable[RuleWarning]:
        """Return warnings about valid ``rules`` that can't have their intended effect on a gateway with ``facts``."""
        return ()


def comparison_gaps(found: Consistency | None) -> dict[str, Any]:
    """Return metadata that says why statements or pairs of statements were not compared."""
    if found is None:
        return {}
    gaps: dict[str, Any] = {} if found.reason is None else {"not_compared": found.reason}
    return {**gaps, "pairs_skipped": found.skipped} if found.skipped else gaps
