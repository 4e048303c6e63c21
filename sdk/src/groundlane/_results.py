"""Responses of the gateway: check results and run records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from groundlane._errors import UnexpectedAnswerError
from groundlane._fields import Fields
from groundlane._transport import Call, segment
from groundlane._types import Claim, Decision, Document, UnjudgedPart


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check.

    ``grounded`` is True if the text was judged, no claim is contradicted, and the ratio of unverifiable claims is
    within the limit set by the options. ``trust_score`` is the ratio of supported claims, from 0 to 1, or None if the
    text has no claims. ``unjudged`` lists the parts of the text that weren't judged. ``action`` and ``decisions`` come
    from the options or the policy. ``reason_code`` says why nothing was judged.
    """

    grounded: bool
    claims: tuple[Claim, ...]
    total_claims: int
    supported_count: int
    contradicted_count: int
    unverifiable_count: int
    unverifiable_ratio: float | None
    trust_score: float | None
    summary: str
    claims_skipped: int = 0
    unjudged: tuple[UnjudgedPart, ...] = ()
    verdict: str | None = None
    action: str | None = None
    reason_code: str | None = None
    decisions: tuple[Decision, ...] = ()
    judge: str | None = None
    request_id: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """Read the response to a check. Raises UnexpectedAnswerError if ``data`` is not a check result."""
        fields = Fields(data)
        if not isinstance(data.get("grounded"), bool):
            raise UnexpectedAnswerError("The gateway's response does not say whether the text is grounded.")
        return cls(
            grounded=fields.flag("grounded"),
            claims=Claim.each(data.get("claims")),
            total_claims=fields.count("total_claims"),
            supported_count=fields.count("supported_count"),
            contradicted_count=fields.count("contradicted_count"),
            unverifiable_count=fields.count("unverifiable_count"),
            unverifiable_ratio=fields.number("unverifiable_ratio"),
            trust_score=fields.number("trust_score"),
            summary=fields.text("summary") or "",
            claims_skipped=fields.count("claims_skipped"),
            unjudged=UnjudgedPart.each(data.get("unjudged")),
            verdict=fields.text("verdict"),
            action=fields.text("action"),
            reason_code=fields.text("reason_code"),
            decisions=Decision.each(data.get("decisions")),
            judge=fields.within("judge").text("name"),
            request_id=fields.text("request_id"),
            raw=fields.raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of a run. ``status`` is ``open`` or ``completed``. ``action`` is the strictest action among all
    decisions.

    ``output_confidence`` is the lowest confidence reported, and ``trust_score`` is the ratio of supported claims in the
    run's requests. Both are from 0 to 1, or None. ``requests`` contains the ids of the run's requests.
    """

    run_id: str
    agent: str | None
    model: str | None
    status: str | None
    action: str | None
    documents: tuple[Document, ...]
    grounding_scores: tuple[float, ...]
    citations: tuple[str, ...]
    unsupported_claims: tuple[str, ...]
    output_confidence: float | None
    trust_score: float | None
    requests: tuple[str, ...]
    result: Any = field(hash=False)
    decisions: tuple[Decision, ...]
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """Read a run from a response. Raises UnexpectedAnswerError if ``data`` is not a run."""
        fields = Fields(data)
        run_id = fields.text("run_id")
        if run_id is None:
            raise UnexpectedAnswerError("The gateway's response has no run id.")
        return cls(
            run_id=run_id,
            agent=fields.text("agent"),
            model=fields.text("model"),
            status=fields.text("status"),
            action=fields.text("action"),
            documents=Document.each(data.get("documents")),
            grounding_scores=fields.numbers("grounding_scores"),
            citations=fields.texts("citations"),
            unsupported_claims=fields.texts("unsupported_claims"),
            output_confidence=fields.number("output_confidence"),
            trust_score=fields.number("trust_score"),
            requests=fields.texts("requests"),
            result=data.get("result"),
            decisions=Decision.each(data.get("decisions")),
            raw=fields.raw,
        )


def check_call(
    text: str,
    sources: Sequence[str] | None,
    *,
    documents: Sequence[Mapping[str, Any] | str] | None,
    question: str | None,
    policy: str | None,
    options: Mapping[str, Any] | None,
) -> Call:
    """Build the call for a check. A blank ``question`` counts as unknown. Raises TypeError if a string is passed
    instead of a list."""
    for name, value in (("sources", sources), ("documents", documents)):
        if isinstance(value, str):
            raise TypeError(f"{name} must be a list, not a single string")
    fields = {
        "text": text,
        "sources": None if sources is None else list(sources),
        "documents": None if documents is None else list(documents),
        "question": question if question and question.strip() else None,
        "policy": policy,
        "options": None if options is None else dict(options),
    }
    body = {name: value for name, value in fields.items() if value is not None}
    return Call(method="POST", path="/v1/grounding/check", body=body, repeatable=True)


def run_call(run_id: str) -> Call:
    return Call(method="GET", path=f"/v1/runs/{segment(run_id)}", repeatable=True)
