"""Summarizes the scores of a request's claims and documents, so that choosing a threshold doesn't read them again."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from judges.types import Label

_Row = Mapping[str, Any]


def score_summary(claims: Sequence[_Row], documents: Sequence[_Row]) -> dict[str, float | None]:
    """Return the lowest and the average score of a request's claims, and of the documents that were kept, as columns of
    ``requests``. They are None if nothing has a score. Claims without a verdict don't count, as in the score check of
    policies.
    """
    # Lines that earlier versions logged may lack a reason.
    judged = [row["score"] for row in claims if row["label"] != Label.NOT_A_CLAIM.value and row.get("reason") is None]
    relevance = [row["relevance_score"] for row in documents if row["kept"]]
    return {**_summary("claim", judged), **_summary("relevance", relevance)}


def _summary(of: str, scores: Sequence[float | None]) -> dict[str, float | None]:
    known = [score for score in scores if score is not None]
    return {
        f"lowest_{of}_score": min(known, default=None),
        f"average_{of}_score": fmean(known) if known else None,
    }
