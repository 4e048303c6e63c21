"""The summary of a run."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from app.evaluation.cases.case_result import PASS_MARK, CaseResult, Cost
from app.evaluation.judging.case_judge import CaseJudge
from app.evaluation.runs.confidence_intervals import Estimate, mean, ratio, share
from judges.types import Label

_SKIPPED: Final = ("no_context", "no_claims", "disabled")
_USD_DIGITS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLine:
    """The part of a case result that a run keeps in memory. ``place`` is the case's index in the input."""

    place: int
    case_id: str
    score: float | None
    labels: Counter[Label]
    skipped: str | None
    error: str | None
    cached: bool
    cost: Cost

    @classmethod
    def of(cls, place: int, result: CaseResult) -> "CaseLine":
        return cls(
            place=place,
            case_id=result.case.case_id,
            score=result.score,
            labels=Counter(claim.label for claim in result.claims),
            skipped=result.skipped,
            error=result.error,
            cached=result.cached,
            cost=result.cost,
        )

    @property
    def claims(self) -> int:
        return self.labels.total()

    @property
    def accepted(self) -> int:
        return self.labels[Label.SUPPORTED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a run. ``score`` is the mean score of the cases, ``claims_accepted`` is the proportion of accepted
    claims, and ``grounded_cases`` is the proportion of cases without rejected claims. Skipped and failed cases are
    excluded from all three.

    ``spent`` is the part of ``cost`` that was spent on verdicts that were not cached.
    """

    judge: str
    kind: str
    thresholds: dict[str, float]
    cases: dict[str, int]
    claims: dict[str, int]
    score: Estimate
    claims_accepted: Estimate
    grounded_cases: Estimate
    cost: Cost
    spent: Cost
    cached_cases: int
    pass_mark: float = PASS_MARK
    name: str = "grounding"

    @property
    def errors(self) -> int:
        return self.cases["errors"]


def summarize(lines: Iterable[CaseLine], judge: CaseJudge) -> Summary:
    """Summarize a run. ``lines`` may be in any order."""
    every = sorted(lines, key=lambda line: line.place)
    scored = [line for line in every if line.score is not None]
    labels: Counter[Label] = sum((line.labels for line in scored), Counter())
    skipped = Counter(line.skipped for line in every if line.skipped is not None)
    return Summary(
        judge=judge.name,
        kind=judge.kind.value,
        thresholds={
            "entailment": judge.thresholds.entailment,
            "contradiction": judge.thresholds.contradiction,
        },
        cases={
            "total": len(every),
            "scored": len(scored),
            **{name: skipped[name] for name in _SKIPPED},
            "errors": sum(line.error is not None for line in every),
        },
        claims={
            "total": labels.total(),
            "accepted": labels[Label.SUPPORTED],
            "rejected": labels.total() - labels[Label.SUPPORTED],
            "contradicted": labels[Label.CONTRADICTED],
            "unverifiable": labels[Label.UNVERIFIABLE],
        },
        score=mean([line.score for line in scored if line.score is not None]),
        claims_accepted=ratio([line.accepted for line in scored], [line.claims for line in scored]),
        grounded_cases=share(sum(line.accepted == line.claims for line in scored), len(scored)),
        cost=total_cost(line.cost for line in every),
        spent=total_cost(line.cost for line in every if not line.cached),
        cached_cases=sum(line.cached for line in every),
    )


def total_cost(costs: Iterable[Cost]) -> Cost:
    """Sum ``costs``. The total ``usd`` is None if any cost has no price. A total token count is None only if none of
    the costs has that count."""
    every = list(costs)
    known = [cost.usd for cost in every if cost.usd is not None]
    return Cost(
        usd=round(sum(known), _USD_DIGITS) if len(known) == len(every) else None,
        input_tokens=_total(cost.input_tokens for cost in every),
        output_tokens=_total(cost.output_tokens for cost in every),
    )


def format_estimate(estimate: Estimate) -> str:
    """Format an estimate for display."""
    if estimate.value is None:
        return "none"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def format_cost(cost: Cost) -> str:
    """Format a cost for display."""
    tokens = "" if cost.input_tokens is None else f", {cost.input_tokens:,} + {cost.output_tokens or 0:,} tokens"
    return ("unknown price" if cost.usd is None else f"{cost.usd:.4f} USD") + tokens


def _total(counts: Iterable[Any]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
