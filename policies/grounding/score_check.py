"""The score check of grounding policies: floor, then ``all``, ``average`` or ``top_n``."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from policies import formatting as wording

Mode = Literal["all", "average", "top_n"]
NONE_ABOVE_FLOOR = "No grounding scores above relevance floor — all retrieved results appear irrelevant"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowScore:
    """Why scores do not pass."""

    reason: str
    reason_code: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCheck:
    """``threshold`` and ``floor`` lie in 0–1; a score equal to either passes it. ``top_n`` is for that mode."""

    threshold: float
    floor: float | None = None
    mode: Mode = "all"
    top_n: int = 3

    def check(self, scores: Sequence[float], *, complete: bool) -> LowScore | None:
        """The first reason why ``scores``, in order, do not pass. ``complete``: no more of them will come; until then
        neither ``average`` and ``top_n`` nor "none above the floor" can be told."""
        relevant = [score for score in scores if self.floor is None or score >= self.floor]
        if complete and scores and not relevant:
            return LowScore(
                reason=NONE_ABOVE_FLOOR,
                reason_code="GROUNDING_IRRELEVANT",
                metadata={"floor": self.floor, "scores": list(scores)},
            )
        match self.mode:
            case "all":
                return self._each(relevant)
            case "top_n" if complete:
                return self._each(sorted(relevant, reverse=True)[: self.top_n])
            case "average" if complete and relevant:
                return self._average(relevant)
        return None

    def _each(self, scores: Sequence[float]) -> LowScore | None:
        for score in scores:
            if score < self.threshold:
                return LowScore(
                    reason=f"Grounding score ({wording.score(score)}) below threshold "
                    f"({wording.number(self.threshold)})",
                    reason_code="GROUNDING_LOW_SCORE",
                    metadata={"score": score, "threshold": self.threshold},
                )
        return None

    def _average(self, scores: Sequence[float]) -> LowScore | None:
        # In decimal, as the numbers are written: in binary the mean of three times 0.7 lies below 0.7.
        mean = sum((_decimal(score) for score in scores), Decimal()) / len(scores)
        if mean >= _decimal(self.threshold):
            return None
        return LowScore(
            reason=f"Average grounding score ({wording.score(float(mean))}) below threshold "
            f"({wording.number(self.threshold)})",
            reason_code="GROUNDING_LOW_SCORE",
            metadata={"score": float(mean), "threshold": self.threshold, "mode": "average"},
        )


def _decimal(value: float) -> Decimal:
    return Decimal(repr(float(value)))
