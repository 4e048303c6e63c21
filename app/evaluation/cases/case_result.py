"""The result of a case, and its JSON format in the result file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final

from app.evaluation.cases.case import Case, Scoring, ScoringMode
from judges.types import Label

PASS_MARK: Final = 0.6
"""Claims with at least this score are accepted."""

_METRIC: Final = "grounding"
_CATEGORY: Final = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The passage that decided a claim's verdict, which either supports the claim best or contradicts it."""

    document_id: str
    document_index: int
    content: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """A claim and its verdict. ``sentence`` is the index of its sentence in the output. ``start`` and ``end`` are its
    position in the output, in code points. ``tokens`` is its length according to the judge's tokenizer. ``own_score``
    is the judge's raw score on the case's scale, or None if the judge returns probabilities."""

    text: str
    context: str
    sentence: int
    start: int
    end: int
    tokens: int
    label: Label
    entailed: float
    contradicted: float
    confidence: float | None
    escalated: bool = False
    reason: str | None = None
    explanation: str | None = None
    correction: str | None = None
    passage: Passage | None = None
    own_score: int | None = None

    @property
    def accepted(self) -> bool:
        """Whether the claim is supported, that is, scores at least ``PASS_MARK`` on either scale."""
        return self.label is Label.SUPPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjudgedRange:
    """A part of the output that may contain claims but wasn't judged. ``kind`` is the kind of text, such as ``code``.
    ``start`` and ``end`` are its position in the output, in code points."""

    kind: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of judging. ``usd`` is None if the price of a model is unknown. The token counts are None if no LLM was
    called."""

    usd: float | None = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedOutput:
    """The verdicts on an output, as the cache stores them. ``support`` is the entailment threshold used, ``reasoning``
    is the judge's reasoning about all claims, and ``unjudged`` lists the parts of the output that weren't judged. An
    LLM that judges alone doesn't report such parts.
    """

    judge: str
    summary: str
    support: float
    claims: tuple[JudgedClaim, ...] = ()
    cost: Cost = Cost()
    reasoning: str | None = None
    unjudged: tuple[UnjudgedRange, ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "JudgedOutput":
        """Parse the result from a JSON object. Raises KeyError, TypeError or ValueError if it is invalid."""
        return cls(
            judge=data["judge"],
            summary=data["summary"],
            support=data["support"],
            claims=tuple(_claim(claim) for claim in data["claims"]),
            cost=Cost(**data["cost"]),
            reasoning=data.get("reasoning"),
            unjudged=tuple(UnjudgedRange(**part) for part in data["unjudged"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of a case that was judged, skipped, or failed.

    ``skipped`` is ``no_context``, ``no_claims``, ``disabled`` or None. ``error`` says why verdicts are missing. A
    result with an ``error`` is not cached, so the next run judges the case again. ``key`` is the hash of everything
    that determines the verdicts. ``cached`` means that the verdicts come from the cache.
    """

    case: Case
    key: str = ""
    judged: JudgedOutput | None = None
    cached: bool = False
    skipped: str | None = None
    error: str | None = None

    @property
    def claims(self) -> Sequence[JudgedClaim]:
        return () if self.judged is None else self.judged.claims

    @property
    def score(self) -> float | None:
        """The mean score of the claims, from 0 to 1. It is None if the case was skipped or not judged completely."""
        if not self.claims or self.error is not None or self.judged is None:
            return None
        mode = self.case.scoring.mode
        return sum(normalized(raw_score(claim, mode, self.judged.support), mode) for claim in self.claims) / len(
            self.claims
        )

    @property
    def cost(self) -> Cost:
        return Cost() if self.judged is None else self.judged.cost


def raw_score(claim: JudgedClaim, mode: ScoringMode, support: float) -> int:
    """Return a claim's score on the case's scale. If the judge gave no score, derive one from its probability.

    On ``scale_1_5``, a supported claim gets 4 or 5. It gets 5 if its probability is in the upper half of the range from
    the threshold ``support`` to 1. The range below ``support`` is divided into three equal parts, for the scores 3, 2
    and 1. A contradicted claim gets 1.
    """
    if claim.own_score is not None:
        return claim.own_score
    if mode is ScoringMode.BINARY:
        return int(claim.accepted)
    if claim.label is Label.SUPPORTED:
        return 5 if claim.entailed >= (1.0 + support) / 2 else 4
    if claim.label is Label.CONTRADICTED:
        return 1
    return 1 + int(min(2.0, 3 * claim.entailed / support)) if support > 0 else 1


def normalized(raw: int, mode: ScoringMode) -> float:
    """Normalize a raw score to the range 0 to 1."""
    return float(raw) if mode is ScoringMode.BINARY else (raw - 1) / 4


def claim_ids(claims: Sequence[JudgedClaim]) -> list[str]:
    """Derive the id of each claim from its text and context, so that a claim has the same id in every run. Repeated
    claims are numbered."""
    seen: Counter[tuple[str, str]] = Counter()
    ids = []
    for claim in claims:
        which = (claim.context, claim.text)
        text = "\x1f".join((*which, *([str(seen[which])] if seen[which] else [])))
        ids.append(blake2b(text.encode(errors="replace"), digest_size=8).hexdigest())
        seen[which] += 1
    return ids


def to_json(result: CaseResult) -> dict[str, Any]:
    """Build the content of the case's result file."""
    case, cost = result.case, result.cost
    return {
        "case_id": case.case_id,
        "input": case.input,
        "output": case.output,
        "reference": case.reference,
        "grounding": {
            "enabled": case.scoring.enabled,
            "scoring_mode": case.scoring.mode.value,
            "include_reasoning": case.scoring.include_reasoning,
        },
        "metrics": [] if result.skipped is not None else [_metric(result)],
        "cost": {"cost": cost.usd, "input_tokens": cost.input_tokens, "output_tokens": cost.output_tokens},
        "skipped": result.skipped,
        "judge": None if result.judged is None else result.judged.judge,
        "summary": None if result.judged is None else result.judged.summary,
        "reasoning": None if result.judged is None else result.judged.reasoning,
        "support_threshold": None if result.judged is None else result.judged.support,
        "unjudged": [] if result.judged is None else [asdict(part) for part in result.judged.unjudged],
        "key": result.key,
    }


def from_json(data: Mapping[str, Any]) -> CaseResult:
    """Parse the content of a result file. The returned result has no documents. Raises KeyError, TypeError, ValueError
    or IndexError if the content is invalid."""
    scoring, cost = data["grounding"], data["cost"]
    case = Case(
        case_id=data["case_id"],
        output=data["output"],
        input=data["input"],
        reference=data["reference"],
        scoring=Scoring(
            mode=ScoringMode(scoring["scoring_mode"]),
            include_reasoning=scoring["include_reasoning"],
            enabled=scoring["enabled"],
        ),
    )
    entries = [entry for metric in data["metrics"] for entry in metric["result"] if "item" in entry]
    judged = None
    if data["judge"] is not None:
        judged = JudgedOutput(
            judge=data["judge"],
            summary=data["summary"],
            support=data["support_threshold"],
            claims=tuple(_from_entry(entry) for entry in entries),
            cost=Cost(usd=cost["cost"], input_tokens=cost["input_tokens"], output_tokens=cost["output_tokens"]),
            reasoning=data.get("reasoning"),
            unjudged=tuple(UnjudgedRange(**part) for part in data.get("unjudged", ())),
        )
    return CaseResult(
        case=case,
        key=data["key"],
        judged=judged,
        cached=any(entry["item"]["cached"] for entry in entries),
        skipped=data["skipped"],
        error=data["metrics"][0]["error"] if data["metrics"] else None,
    )


def _metric(result: CaseResult) -> dict[str, Any]:
    entries: list[dict[str, Any]] = []
    if result.judged is not None:
        support = result.judged.support
        ids = claim_ids(result.claims)
        entries = [_entry(result, one, two, support) for one, two in zip(ids, result.claims, strict=True)]
        if result.case.scoring.include_reasoning:
            entries.append({"reasoning": _reasoning(result.judged)})
    return {
        "name": _METRIC,
        "category": _CATEGORY,
        "score": result.score,
        "result": entries,
        "error": result.error,
    }


def _entry(result: CaseResult, identifier: str, claim: JudgedClaim, support: float) -> dict[str, Any]:
    return {
        "item": {
            "id": identifier,
            "text": claim.text,
            "tokens": float(claim.tokens),
            "confidence": 1.0,
            "cached": result.cached,
        },
        "source_chunk_index": claim.sentence,
        "confidence": claim.confidence,
        "extraction_failed": False,
        "verdict": "ACCEPTED" if claim.accepted else "REJECTED",
        "raw_score": raw_score(claim, result.case.scoring.mode, support),
        "label": claim.label.value,
        "entailed": claim.entailed,
        "contradicted": claim.contradicted,
        "context": claim.context,
        "span": [claim.start, claim.end],
        "escalated": claim.escalated,
        "reason": claim.reason,
        "explanation": claim.explanation,
        "correction": claim.correction,
        "passage": claim.passage,
        "own_score": claim.own_score,
    }


def _from_entry(entry: Mapping[str, Any]) -> JudgedClaim:
    start, end = entry["span"]
    same = ("label", "entailed", "contradicted", "context", "escalated", "reason", "explanation", "correction")
    return _claim(
        {name: entry[name] for name in same}
        | {
            "text": entry["item"]["text"],
            "tokens": int(entry["item"]["tokens"]),
            "confidence": entry["confidence"],
            "sentence": entry["source_chunk_index"],
            "start": start,
            "end": end,
            "passage": entry["passage"],
            "own_score": entry.get("own_score"),
        }
    )


def _claim(data: Mapping[str, Any]) -> JudgedClaim:
    passage = data["passage"]
    return JudgedClaim(
        **{
            **data,
            "label": Label(data["label"]),
            "passage": Passage(**passage) if isinstance(passage, Mapping) else passage,
        }
    )


def _reasoning(judged: JudgedOutput) -> str:
    """Explain the score of the whole case with the judge's reasoning or, if there is none, with the claims that were
    not accepted."""
    if judged.reasoning is not None:
        return judged.reasoning
    told = [judged.summary + "."]
    for claim in judged.claims:
        if not claim.accepted:
            why = claim.explanation or claim.reason
            told.append(f"{claim.label.value}: {claim.text}" + (f" ({why})" if why else ""))
    return "\n".join(told)
