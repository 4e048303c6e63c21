"""Merges the ``grounding`` objects of several choices into one."""

from collections.abc import Mapping, Sequence
from typing import Any

from judges.types import VERDICTS_WORST_FIRST, ReplyVerdict
from policies.evaluation import strictest
from policies.types import Action

_BEFORE = "before_workflow"


def merge_summaries(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the ``grounding`` objects of all choices: add up the counts, and take the worst verdict and the strictest
    action. There must be at least one object. A single object is returned unchanged.
    """
    merged = dict(summaries[0])
    if len(summaries) == 1:
        return merged
    merged["action"] = strictest([Action(s["action"]) for s in summaries]).value
    merged["verdict"] = min((ReplyVerdict(s["verdict"]) for s in summaries), key=VERDICTS_WORST_FIRST.index).value
    scores = [s["trust_score"] for s in summaries if s["trust_score"] is not None]
    merged["trust_score"] = min(scores, default=None)
    merged |= _least_answering(summaries)
    merged["is_trusted"] = all(s["is_trusted"] for s in summaries)
    for name in ("total_claims", "supported_count", "contradicted_count", "unverifiable_count"):
        merged[name] = sum(s[name] for s in summaries)
    total = merged["total_claims"]
    merged["unverifiable_ratio"] = round(merged["unverifiable_count"] / total, 4) if total else 0.0
    merged["coverage"] = min(s["coverage"] for s in summaries)
    merged["summary"] = f"{merged['supported_count']}/{total} claims supported"
    if "claims" in merged:
        merged["claims"] = [claim for s in summaries for claim in s["claims"]]
    if "decisions" in merged:
        # Every summary contains the decisions that were made before the reply, so they are taken only from the first
        # one.
        later = [d for s in summaries[1:] for d in s["decisions"] if d["phase"] != _BEFORE]
        merged["decisions"] = [*summaries[0]["decisions"], *later]
    if reason := next((s["not_regenerated"] for s in summaries if "not_regenerated" in s), None):
        merged["not_regenerated"] = reason
    if kinds := {kind for s in summaries for kind in s.get("not_checked", ())}:
        merged["not_checked"] = sorted(kinds)
    for name in ("claims_skipped", "stripped_count", "corrected_count", "regenerations"):
        if count := sum(s.get(name, 0) for s in summaries):
            merged[name] = count
    merged["judge"] = _judge([s["judge"] for s in summaries])
    return merged


def _least_answering(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the lowest relevance, and the completeness of the choice that answers the fewest parts of the question."""
    found: dict[str, Any] = {}
    if scores := [s["answer_relevance"] for s in summaries if "answer_relevance" in s]:
        found["answer_relevance"] = min(scores)
    if told := [s["completeness"] for s in summaries if "completeness" in s]:
        found["completeness"] = min(told, key=lambda each: int(each["answered"]))
    return found


def _judge(judges: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    times = [judge["latency_ms"] for judge in judges if judge["latency_ms"] is not None]
    return {**judges[0], "latency_ms": round(sum(times), 1) if times else None}
