"""One summary for a reply of several choices."""

from typing import Any

from app.protocols.common.merge_choices import merge_summaries


def summary(**changes: Any) -> dict[str, Any]:
    return {
        "action": "allow",
        "verdict": "supported",
        "trust_score": 1.0,
        "is_trusted": True,
        "total_claims": 2,
        "supported_count": 2,
        "contradicted_count": 0,
        "unverifiable_count": 0,
        "unverifiable_ratio": 0.0,
        "coverage": 1.0,
        "summary": "2/2 claims supported",
        "claims": [{"claim": "a"}],
        "decisions": [{"phase": "before_workflow", "latency_ms": 0.1}, {"phase": "after_workflow", "latency_ms": 0.2}],
        "judge": {"name": "j", "latency_ms": 1.5},
        **changes,
    }


def test_single_choice_is_unchanged() -> None:
    assert merge_summaries([summary()]) == summary()


def test_counts_add_up_and_worst_verdict_and_strictest_action_win() -> None:
    worse = summary(
        action="block",
        verdict="has_unverifiable",
        trust_score=0.5,
        is_trusted=False,
        supported_count=1,
        unverifiable_count=1,
        coverage=0.4,
    )
    merged = merge_summaries([summary(), worse, summary(trust_score=None, action="warn")])
    assert (merged["action"], merged["verdict"], merged["trust_score"]) == ("block", "has_unverifiable", 0.5)
    assert (merged["total_claims"], merged["supported_count"], merged["unverifiable_count"]) == (6, 5, 1)
    assert (merged["unverifiable_ratio"], merged["coverage"], merged["is_trusted"]) == (0.1667, 0.4, False)
    assert merged["summary"] == "5/6 claims supported"
    assert len(merged["claims"]) == 3
    assert merged["judge"] == {"name": "j", "latency_ms": 4.5}


def test_decisions_before_the_reply_are_listed_once() -> None:
    merged = merge_summaries([summary(), summary()])
    assert [decision["phase"] for decision in merged["decisions"]] == [
        "before_workflow",
        "after_workflow",
        "after_workflow",
    ]


def test_unchecked_parts_are_named_for_all_choices() -> None:
    merged = merge_summaries([summary(not_checked=["b"], claims_skipped=1), summary(not_checked=["a", "b"])])
    assert (merged["not_checked"], merged["claims_skipped"]) == (["a", "b"], 1)


def test_findings_not_requested_are_absent() -> None:
    bare = {name: value for name, value in summary().items() if name not in ("claims", "decisions")}
    assert not {"claims", "decisions"} & set(merge_summaries([bare, bare]))
