"""The results of LLM judges: verdicts, scores of whole replies, and the calls that these took."""

from dataclasses import dataclass

from judges.types import Label


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmVerdict:
    """An LLM's conclusion about a claim, based on passages. ``confidence`` is the confidence in the label, 0–1.
    ``passages`` are the positions of the passages that the conclusion relies on. ``readable`` is False if the LLM's
    answer could not be parsed. The label is then ``unverifiable``, with a confidence of 0.5.
    """

    label: Label
    confidence: float
    reasoning: str | None = None
    correction: str | None = None
    passages: tuple[int, ...] = ()
    readable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCall:
    """One request to an LLM or to a judge that is a service, and its outcome.

    ``mode`` is ``score``, ``claim``, ``statements`` or ``decompose``, or ``judge`` for a service. ``outcome`` is
    ``ok``, ``unreadable``, ``timeout``, ``overloaded`` or ``error``. ``cost_usd`` is None if the price is unknown.
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
    """A policy's request to have an LLM score a whole reply: the model, and additional criteria."""

    model: str
    criteria: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmScore:
    """An LLM's score (0–1) for how well a reply is grounded. ``score`` is None if there is no score; ``skipped`` then
    says why: ``no_key``, ``unknown_model``, ``timeout``, ``overloaded`` or ``error``; for a run also ``no_reply``,
    ``no_result`` or ``no_documents``."""

    request: ScoreRequest
    score: float | None = None
    reasoning: str | None = None
    skipped: str | None = None
    detail: str | None = None
    calls: tuple[LlmCall, ...] = ()
