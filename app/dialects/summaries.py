"""One ``grounding`` object for a reply of several choices."""

from collections.abc import Mapping, Sequence
from typing import Any

_ACTIONS = ("allow", "warn", "block")
_WORST_FIRST = ("has_contradictions", "has_unverifiable", "not_checked", "no_sources", "supported", "no_claims")


def merge_summaries(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ``grounding`` objects of all choices as one: counts added up, the worst verdict and the strictest action.

    There must be one at least; one alone stays as it is.
    """
    merged = dict(summaries[0])
    if len(summaries) == 1:
        return merged
    merged["action"] = max((s["action"] for s in summaries), key=_ACTIONS.index)
    merged["verdict"] = min((s["verdict"] for s in summaries), key=_WORST_FIRST.index)
    scores = [s["trust_score"] for s in summaries if s["trust_score"] is not None]
    merged["trust_score"] = min(scores, default=None)
    merged["is_trusted"] = all(s["is_trusted"] for s in summaries)
    for name in ("total_claims", "supported_count", "contradicted_count", "unverifiable_count"):
        merged[name] = sum(s[name] for s in summaries)
    total = merged["total_claims"]
    merged["unverifiable_ratio"] = round(merged["unverifiable_count"] / total, 4) if total else 0.0
    merged["coverage"] = min(s["coverage"] for s in summaries)
    merged["summary"] = f"{merged['supported_count']}/{total} claims supported"
    for name in ("claims", "decisions"):
        if name in merged:
            merged[name] = [item for s in summaries for item in s[name]]
    return merged
