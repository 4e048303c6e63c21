"""Every row of the table of retrieval rules, and the scenarios behind its reasons."""

from collections import Counter
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.policy_selection import CombinedDecision, PolicySet
from policies.registry import CATEGORIES, parse_rules
from policies.types import Action, Phase, PolicyInputs
from tests.support.policy_builders import chunk, found, policy

ALL_DROPPED = "RETRIEVAL_ALL_DROPPED"
SUFFIX = " (it cannot be dropped, since the gateway does not write the prompt)"


def check(rules: dict[str, Any], *chunks: Any, phase: Phase = Phase.BEFORE_WORKFLOW, **fields: Any) -> Any:
    return found("retrieval", phase, rules, PolicyInputs(chunks=chunks, **fields))


VIOLATIONS: list[tuple[str, dict[str, Any], dict[str, Any], str, str, dict[str, Any]]] = [
    (
        "relevance",
        {},
        {"relevance_score": 0.41},
        "Retrieval relevance (0.41) below threshold (0.70)",
        "RETRIEVAL_LOW_RELEVANCE",
        {"relevance_score": 0.41, "threshold": 0.70},
    ),
    (
        "age",
        {},
        {"age_days": 400},
        "Source age (400 days) exceeds max (90 days)",
        "RETRIEVAL_STALE_SOURCE",
        {"age_days": 400, "max_age": 90},
    ),
    (
        "collection",
        {"allowed_collections": ["knowledge_base"]},
        {"collection": "internal-hr"},
        "Collection 'internal-hr' not in allowed list",
        "RETRIEVAL_COLLECTION",
        {"collection": "internal-hr", "allowed": ["knowledge_base"]},
    ),
    (
        "source",
        {"blocked_sources": ["deprecated-kb"]},
        {"source": "deprecated-kb"},
        "Retrieved from blocked source 'deprecated-kb'",
        "RETRIEVAL_BLOCKED_SOURCE",
        {"blocked_source": "deprecated-kb"},
    ),
]


@pytest.mark.parametrize(("name", "rules", "document", "reason", "code", "metadata"), VIOLATIONS)
def test_document_violations_read_as_documented(
    name: str, rules: dict[str, Any], document: dict[str, Any], reason: str, code: str, metadata: dict[str, Any]
) -> None:
    (violation,) = check(rules, chunk(0, collection="knowledge_base"), chunk(1, **document))
    assert violation.reason == reason
    assert violation.reason_code == code
    assert violation.metadata == metadata | {"document_id": "d1", "document_index": 1}
    assert violation.action is (Action.WARN if name == "relevance" else Action.BLOCK)


@pytest.mark.parametrize(
    ("rule", "rules", "document", "actions"),
    [
        ("action_on_low_relevance", {}, {"relevance_score": 0.1}, ["warn", "block", "drop"]),
        ("action_on_stale_source", {}, {"age_days": 91}, ["warn", "block", "drop"]),
        ("action_on_blocked_source", {"blocked_sources": ["x"]}, {"source": "x"}, ["block", "drop"]),
        ("action_on_disallowed_collection", {"allowed_collections": ["a"]}, {"collection": "b"}, ["block", "drop"]),
        ("on_missing_metadata", {}, {"age_days": None}, ["warn", "block"]),
    ],
)
def test_each_action_is_applied(rule: str, rules: dict[str, Any], document: dict[str, Any], actions: list[str]) -> None:
    for action in actions:
        fine = chunk(1, collection="a")
        (violation,) = check(rules | {rule: action}, chunk(0, **document), fine, injectable=True)
        assert violation.action == action
        assert violation.drop == ({0} if action == "drop" else frozenset())


def test_drop_becomes_block_if_the_caller_wrote_the_prompt() -> None:
    (violation,) = check({"action_on_low_relevance": "drop"}, chunk(relevance_score=0.41))
    assert violation.action is Action.BLOCK
    assert violation.reason == "Retrieval relevance (0.41) below threshold (0.70)" + SUFFIX
    assert not violation.drop


@pytest.mark.parametrize("field", ["relevance_score", "age_days", "collection", "source"])
def test_missing_metadata_names_rule_and_document(field: str) -> None:
    rule = {
        "relevance_score": "min_relevance_score",
        "age_days": "max_source_age_days",
        "collection": "allowed_collections",
        "source": "blocked_sources",
    }[field]
    rules = {"allowed_collections": ["a"], "blocked_sources": ["x"]}
    document = chunk(0, **({"collection": "a", "source": "s"} | {field: None}))
    assert check(rules, document) == ()
    (violation,) = check(rules | {"on_missing_metadata": "block"}, document)
    assert violation.reason_code == "RETRIEVAL_MISSING_METADATA"
    assert violation.metadata["rule"] == rule
    assert violation.metadata["document_id"] == "d0"


def test_metadata_is_optional_without_a_rule() -> None:
    """A missing collection or source is only a violation if a rule requires it."""
    assert check({"on_missing_metadata": "block"}, chunk(collection=None, source=None)) == ()


@pytest.mark.parametrize(
    "document",
    [
        {"relevance_score": 0.70},
        {"relevance_score": 0.85},
        {"age_days": 90},
        {"age_days": 45},
        {"collection": "knowledge_base"},
    ],
)
def test_value_equal_to_a_limit_passes(document: dict[str, Any]) -> None:
    assert (
        check({"allowed_collections": ["knowledge_base"]}, chunk(**({"collection": "knowledge_base"} | document))) == ()
    )


def test_blocked_sources_match_exactly() -> None:
    assert check({"blocked_sources": ["deprecated-kb"]}, chunk(source="deprecated-kb.pdf")) == ()


def test_reason_shows_fractions_of_a_day() -> None:
    (violation,) = check({}, chunk(age_days=90.5))
    assert violation.reason == "Source age (90.5 days) exceeds max (90 days)"


def test_request_without_documents_is_not_evaluated() -> None:
    assert CATEGORIES["retrieval"].evaluate(Phase.BEFORE_WORKFLOW, parse_rules("retrieval", {}), PolicyInputs()) is None


@pytest.mark.parametrize(("minimum", "limit"), [(0, 1), (1, 1), (3, 3)])
def test_documents_can_be_required(minimum: int, limit: int) -> None:
    rules = {"require_documents": True, "min_chunks": minimum, "action_on_chunk_violation": "block"}
    (violation,) = check(rules)
    assert violation.action is Action.BLOCK
    assert violation.reason == f"Retrieved chunks (0) below minimum ({limit})"
    assert violation.metadata == {"chunk_count": 0, "limit": limit}
    assert violation.reason_code == "RETRIEVAL_CHUNK_COUNT"


@pytest.mark.parametrize("action", ["warn", "block"])
def test_too_many_documents(action: str) -> None:
    (violation,) = check({"action_on_chunk_violation": action}, *(chunk(i) for i in range(12)))
    assert violation.action == action
    assert violation.reason == "Retrieved chunks (12) above maximum (10)"
    assert violation.metadata == {"chunk_count": 12, "limit": 10}


def test_drop_keeps_the_most_relevant_documents() -> None:
    """Equal scores keep their order, and missing ones come last."""
    scores = [0.8, None, 0.9, 0.8, 0.95]
    chunks = [chunk(i, relevance_score=score) for i, score in enumerate(scores)]
    (violation,) = check({"max_chunks": 3, "action_on_chunk_violation": "drop"}, *chunks, injectable=True)
    assert violation.action is Action.DROP
    assert violation.drop == {1, 3}


def test_drop_only_warns_of_too_few_documents() -> None:
    (violation,) = check({"min_chunks": 2, "action_on_chunk_violation": "drop"}, chunk(), injectable=True)
    assert violation.action is Action.WARN


def test_diversity_is_checked() -> None:
    chunks = [chunk(i, source="doc.pdf") for i in range(3)] + [chunk(3, source="other.pdf")]
    (violation,) = check({"require_source_diversity": True}, *chunks)
    assert violation.action is Action.WARN
    assert violation.reason == "Source 'doc.pdf' dominates at 75% (max 60%)"
    assert violation.metadata == {"source": "doc.pdf", "ratio": 0.75, "max": 0.6}
    assert violation.reason_code == "RETRIEVAL_DIVERSITY"


def test_share_equal_to_the_limit_passes() -> None:
    chunks = [chunk(i, source="a") for i in range(3)] + [chunk(i, source="b") for i in (3, 4)]
    assert check({"require_source_diversity": True}, *chunks) == ()


def test_drop_removes_the_least_relevant_of_a_dominant_source() -> None:
    chunks = [chunk(i, source="a", relevance_score=score) for i, score in enumerate((0.9, 0.7, 0.8))]
    chunks += [chunk(3, source="b")]
    rules = {"require_source_diversity": True, "max_single_source_ratio": 0.5, "action_on_domination": "drop"}
    (violation,) = check(rules, *chunks, injectable=True)
    assert violation.action is Action.DROP
    assert violation.drop == {1, 2}
    assert violation.metadata["dropped"] == ["d1", "d2"]


def test_diversity_is_measured_after_drops() -> None:
    chunks = [chunk(0, source="a"), chunk(1, source="b"), chunk(2, source="b", relevance_score=0.1)]
    rules = {"require_source_diversity": True, "action_on_low_relevance": "drop"}
    assert [v.reason_code for v in check(rules, *chunks, injectable=True)] == ["RETRIEVAL_LOW_RELEVANCE"]


def test_drops_leaving_too_few_documents_are_reported() -> None:
    rules = {"min_chunks": 2, "action_on_low_relevance": "drop", "action_on_chunk_violation": "block"}
    low, few = check(rules, chunk(0), chunk(1, relevance_score=0.1), injectable=True)
    assert (low.action, few.action) == (Action.DROP, Action.BLOCK)
    assert few.reason == "Retrieved chunks (1) below minimum (2)"


def test_too_few_is_reported_once() -> None:
    rules = {"min_chunks": 3, "action_on_low_relevance": "drop"}
    violations = check(rules, chunk(0), chunk(1, relevance_score=0.1), injectable=True)
    assert [v.reason_code for v in violations] == ["RETRIEVAL_CHUNK_COUNT", "RETRIEVAL_LOW_RELEVANCE"]


def test_violations_are_collected_in_order_of_evaluation() -> None:
    rules = {
        "max_chunks": 1,
        "blocked_sources": ["x"],
        "allowed_collections": ["a"],
        "require_source_diversity": True,
        "max_single_source_ratio": 0.5,
    }
    bad = {"relevance_score": 0.1, "source": "x", "collection": "b", "age_days": 100}
    violations = check(rules, chunk(0, **bad), chunk(1, source="x", collection="a"))
    assert [v.reason_code for v in violations] == [
        "RETRIEVAL_CHUNK_COUNT",
        "RETRIEVAL_LOW_RELEVANCE",
        "RETRIEVAL_BLOCKED_SOURCE",
        "RETRIEVAL_COLLECTION",
        "RETRIEVAL_STALE_SOURCE",
        "RETRIEVAL_BLOCKED_SOURCE",
        "RETRIEVAL_DIVERSITY",
    ]


def test_valid_documents_are_allowed_and_logged() -> None:
    combined = PolicySet((policy("retrieval"),)).evaluate_documents(PolicyInputs(chunks=[chunk(i) for i in range(3)]))
    (decision,) = combined.decisions
    assert combined.action is decision.action is Action.ALLOW
    assert decision.reason == "Retrieval quality within policy (3 chunks)"
    assert decision.reason_code is None
    assert decision.metadata == {"chunk_count": 3}


def test_run_checks_only_the_newest_document() -> None:
    old, new = chunk(0, age_days=400), chunk(1, relevance_score=0.1)
    (violation,) = check({}, old, new, phase=Phase.MID_EXECUTION, final=False)
    assert violation.metadata["document_index"] == 1


def test_run_stops_at_the_first_block() -> None:
    rules = {"action_on_low_relevance": "block", "blocked_sources": ["x"]}
    document = chunk(0, relevance_score=0.1, source="x", age_days=400)
    (violation,) = check(rules, document, phase=Phase.MID_EXECUTION, final=False)
    assert violation.reason_code == "RETRIEVAL_LOW_RELEVANCE"


def test_run_continues_after_a_warning() -> None:
    violations = check({}, chunk(0, relevance_score=0.1, age_days=400), phase=Phase.MID_EXECUTION, final=False)
    assert [v.action for v in violations] == [Action.WARN, Action.BLOCK]


def test_run_is_counted_at_its_end() -> None:
    """Too few documents and domination are only known when a run completes; too many are known at each step."""
    rules = {"min_chunks": 2, "require_source_diversity": True, "max_chunks": 1}
    document = chunk(0, source="a")
    assert check(rules, document, phase=Phase.MID_EXECUTION, final=False) == ()
    codes = [v.reason_code for v in check(rules, document, phase=Phase.AFTER_WORKFLOW)]
    assert codes == ["RETRIEVAL_CHUNK_COUNT", "RETRIEVAL_DIVERSITY"]
    (many,) = check(rules, document, document, phase=Phase.MID_EXECUTION, final=False)
    assert many.reason == "Retrieved chunks (2) above maximum (1)"


def test_start_of_a_run_has_no_decision() -> None:
    rules = parse_rules("retrieval", {"require_documents": True})
    assert CATEGORIES["retrieval"].evaluate(Phase.BEFORE_WORKFLOW, rules, PolicyInputs(final=False)) is None


def test_one_policy_counts_after_the_drops_of_another() -> None:
    dropping = policy("retrieval", "a", action_on_low_relevance="drop", min_chunks=0)
    counting = policy("retrieval", "b", min_chunks=2, min_relevance_score=0, action_on_chunk_violation="block")
    inputs = PolicyInputs(chunks=[chunk(0), chunk(1, relevance_score=0.1)], injectable=True)
    combined = PolicySet((dropping, counting)).evaluate_documents(inputs)
    assert combined.action is Action.BLOCK
    assert combined.cause is not None
    assert combined.cause.reason == "Retrieved chunks (1) below minimum (2)"
    assert dict(combined.dropped) == {1: "Retrieval relevance (0.10) below threshold (0.70)"}


ACTIONS = st.sampled_from(["warn", "block", "drop"])
RULES = st.fixed_dictionaries(
    {
        "min_relevance_score": st.sampled_from([0.0, 0.5, 0.7]),
        "min_chunks": st.integers(0, 3),
        "max_chunks": st.integers(1, 4),
        "blocked_sources": st.sampled_from([[], ["a"]]),
        "require_source_diversity": st.booleans(),
        "max_single_source_ratio": st.sampled_from([0.0, 0.3, 0.5, 0.6, 1.0]),
        "action_on_low_relevance": ACTIONS,
        "action_on_stale_source": ACTIONS,
        "action_on_chunk_violation": ACTIONS,
        "action_on_domination": ACTIONS,
        "action_on_blocked_source": st.sampled_from(["block", "drop"]),
        "on_missing_metadata": st.sampled_from(["ignore", "warn", "block"]),
    }
)
CHUNKS = st.lists(
    st.builds(
        chunk,
        st.integers(0, 99),
        relevance_score=st.sampled_from([None, 0.1, 0.5, 0.7, 0.9]),
        age_days=st.sampled_from([None, 0, 90, 91]),
        source=st.sampled_from([None, "a", "b", "c"]),
    ),
    min_size=1,
    max_size=7,
)


def reasons(combined: CombinedDecision) -> list[str]:
    return sorted(reason for decision in combined.decisions for reason in decision.reason.split("; "))


def kept(combined: CombinedDecision, chunks: list[Any]) -> list[Any]:
    return [one for index, one in enumerate(chunks) if index not in combined.dropped]


def unscored(*sources: str | None, **fields: Any) -> list[Any]:
    return [chunk(i, source=source, **({"relevance_score": None} | fields)) for i, source in enumerate(sources)]


DIVERSE: dict[str, Any] = {"max_chunks": 2, "action_on_chunk_violation": "drop", "require_source_diversity": True}


@given(rules=RULES, chunks=CHUNKS, injectable=st.booleans(), data=st.data())
def test_order_of_documents_does_not_matter(
    rules: dict[str, Any], chunks: list[Any], injectable: bool, data: st.DataObject
) -> None:
    """The same action for the same reasons, with as many documents left, of the same sources and scores, in
    whatever order a retriever returned equal ones."""
    shuffled = data.draw(st.permutations(chunks))
    first, second = (
        PolicySet((policy("retrieval", **rules),)).evaluate_documents(PolicyInputs(chunks=order, injectable=injectable))
        for order in (chunks, shuffled)
    )
    assert first.action is second.action
    assert reasons(first) == reasons(second)
    assert len(kept(first, chunks)) == len(kept(second, shuffled))
    assert Counter(one.relevance_score for one in kept(first, chunks)) == Counter(
        one.relevance_score for one in kept(second, shuffled)
    )


@pytest.mark.parametrize("order", [*permutations("aab")])
def test_surplus_equals_are_dropped_from_the_largest_source(order: tuple[str, ...]) -> None:
    """Two of three documents without a score fit: one of each source is kept, so that none dominates."""
    rules = DIVERSE | {"action_on_domination": "block"}
    combined = PolicySet((policy("retrieval", **rules),)).evaluate_documents(
        PolicyInputs(chunks=unscored(*order), injectable=True)
    )
    assert combined.action is Action.DROP
    assert combined.dropped.keys() == {2 if order[2] == "a" else 1}


def test_unique_source_cannot_be_balanced() -> None:
    """Relevance comes before diversity: a less relevant document of another source doesn't replace it."""
    chunks = [*unscored("a", "a", relevance_score=0.9), chunk(2, source="b", relevance_score=0.8)]
    rules = DIVERSE | {"action_on_domination": "block"}
    many, dominates = check(rules, *chunks, injectable=True)
    assert (many.drop, dominates.action) == ({2}, Action.BLOCK)
    assert dominates.reason == "Source 'a' dominates at 100% (max 60%)"


@pytest.mark.parametrize("ages", [(91, 1), (1, 91)])
def test_equals_dropped_anyway_make_room_for_others(ages: tuple[int, int]) -> None:
    """A stale document and a fresh one, equally relevant, with room for one: the fresh one is kept."""
    chunks = [chunk(i, age_days=age) for i, age in enumerate(ages)]
    rules: dict[str, Any] = DIVERSE | {
        "max_chunks": 1,
        "action_on_stale_source": "drop",
        "require_source_diversity": False,
    }
    combined = PolicySet((policy("retrieval", **rules),)).evaluate_documents(
        PolicyInputs(chunks=chunks, injectable=True)
    )
    assert combined.dropped.keys() == {ages.index(91)}
    assert combined.action is Action.DROP


def test_equals_keep_their_order_without_a_diversity_rule() -> None:
    """Without scores, the order is the retriever's, best first."""
    (many,) = check(DIVERSE | {"require_source_diversity": False}, *unscored("a", "a", "b"), injectable=True)
    assert many.drop == {2}


@given(rules=st.lists(RULES, min_size=1, max_size=3), chunks=CHUNKS, data=st.data())
def test_order_of_policies_does_not_matter(rules: list[dict[str, Any]], chunks: list[Any], data: st.DataObject) -> None:
    policies = [policy("retrieval", f"p{i}", **one) for i, one in enumerate(rules)]
    inputs = PolicyInputs(chunks=chunks, injectable=True)
    first, second = (
        PolicySet(tuple(order)).evaluate_documents(inputs) for order in (policies, data.draw(st.permutations(policies)))
    )
    assert first.action is second.action
    assert set(first.dropped) == set(second.dropped)


DROPS = {
    "action_on_low_relevance": "drop",
    "action_on_stale_source": "drop",
    "action_on_chunk_violation": "drop",
    "action_on_domination": "drop",
    "action_on_blocked_source": "drop",
}


@given(several=st.lists(RULES, min_size=1, max_size=3), chunks=CHUNKS)
def test_drops_leave_a_valid_set(several: list[dict[str, Any]], chunks: list[Any]) -> None:
    """The purpose of drop is met by the remaining documents, for every policy; only given documents are dropped, and
    each is named by a policy."""
    policies = [policy("retrieval", f"p{i}", **rules, **DROPS) for i, rules in enumerate(map(undecided, several))]
    combined = PolicySet(tuple(policies)).evaluate_documents(PolicyInputs(chunks=chunks, injectable=True))
    assert set(combined.dropped) <= set(range(len(chunks)))
    left = kept(combined, chunks)
    for rules in several:
        assert len(left) <= rules["max_chunks"]
        for document in left:
            assert document.relevance_score is None or document.relevance_score >= rules["min_relevance_score"]
            assert document.age_days is None or document.age_days <= 90
            assert document.source not in rules["blocked_sources"]
            if rules["require_source_diversity"] and document.source is not None:
                same = sum(other.source == document.source for other in left)
                assert same / len(left) <= rules["max_single_source_ratio"] or same in (1, len(left))


def undecided(rules: dict[str, Any]) -> dict[str, Any]:
    """``rules`` without the actions."""
    return {name: value for name, value in rules.items() if name not in DROPS}


@pytest.mark.parametrize("first", ["a", "z"])
@pytest.mark.parametrize(("action", "taken"), [("warn", Action.DROP), ("block", Action.BLOCK), ("drop", Action.DROP)])
def test_one_policy_sees_the_shares_after_drops_of_another(first: str, action: str, taken: Action) -> None:
    """Two of four documents are stale; the remaining ones are from one source, whichever policy is evaluated first."""
    chunks = [chunk(0, source="x"), chunk(1, source="x", relevance_score=0.8)]
    chunks += [chunk(2, source="y", age_days=400), chunk(3, source="z", age_days=400)]
    dropping = policy("retrieval", first, action_on_stale_source="drop", min_chunks=0)
    diverse = policy(
        "retrieval",
        "m",
        max_source_age_days=10_000,
        require_source_diversity=True,
        action_on_domination=action,
        min_chunks=1,
        action_on_chunk_violation="warn",
    )
    order = sorted((dropping, diverse), key=lambda one: one.name)
    combined = PolicySet(tuple(order)).evaluate_documents(PolicyInputs(chunks=chunks, injectable=True))
    assert combined.action is taken
    assert combined.dropped.keys() == {2, 3}
    (said,) = (decision for decision in combined.decisions if decision.policy_name == "m")
    assert said.reason.startswith("Source 'x' dominates at 100% (max 60%)")
    assert said.action == ("warn" if action == "drop" else action)


@given(sources=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8), most=st.floats(0, 1))
def test_diversity_never_drops_a_whole_source(sources: list[str | None], most: float) -> None:
    chunks = [chunk(i, source=source) for i, source in enumerate(sources)]
    rules = {"require_source_diversity": True, "action_on_domination": "drop", "max_single_source_ratio": most}
    inputs = PolicyInputs(chunks=chunks, injectable=True)
    combined = PolicySet((policy("retrieval", **rules),)).evaluate_documents(inputs)
    assert {one.source for one in kept(combined, chunks)} == set(sources)


def test_single_source_is_a_warning() -> None:
    rules = {"require_source_diversity": True, "action_on_domination": "drop"}
    (violation,) = check(rules, chunk(0, source="a"), chunk(1, source="a"), injectable=True)
    assert (violation.action, violation.drop) == (Action.WARN, frozenset())
    assert violation.reason == (
        "Source 'a' dominates at 100% (max 60%) "
        "(no document is dropped, since that would not make the documents more diverse)"
    )


@pytest.mark.parametrize(("answer", "action"), [({}, Action.BLOCK), ({"on_all_dropped": "warn"}, Action.WARN)])
def test_dropping_every_document_blocks(answer: dict[str, Any], action: Action) -> None:
    rules = {"action_on_low_relevance": "drop", "min_chunks": 0, **answer}
    *dropped, last = check(rules, chunk(0, relevance_score=0.1), chunk(1, relevance_score=0.2), injectable=True)
    assert [one.drop for one in dropped] == [{0}, {1}]
    assert (last.action, last.reason, last.reason_code) == (action, "No document left (2 dropped)", ALL_DROPPED)
    assert last.metadata == {"chunk_count": 2}


@pytest.mark.parametrize("first", ["a", "z"])
def test_several_policies_dropping_every_document_block(first: str) -> None:
    """Policies that drop say so; the others don't."""
    chunks = [chunk(0, relevance_score=0.1), chunk(1, age_days=400)]
    irrelevant = policy("retrieval", first, action_on_low_relevance="drop", action_on_stale_source="warn")
    stale = policy("retrieval", "m", action_on_stale_source="drop", on_all_dropped="warn")
    neither = policy("retrieval", "n", action_on_stale_source="warn")
    order = sorted((irrelevant, stale, neither), key=lambda one: one.name)
    combined = PolicySet(tuple(order)).evaluate_documents(PolicyInputs(chunks=chunks, injectable=True))
    said = {decision.policy_name: decision for decision in combined.decisions}
    assert combined.action is Action.BLOCK
    assert (said[first].action, said[first].reason_code) == (Action.BLOCK, ALL_DROPPED)
    assert "No document left (2 dropped)" in said["m"].reason
    assert "No document left" not in said["n"].reason


@given(rules=RULES, chunks=CHUNKS)
def test_nothing_is_dropped_from_a_prompt_of_the_caller(rules: dict[str, Any], chunks: list[Any]) -> None:
    combined = PolicySet((policy("retrieval", **rules),)).evaluate_documents(PolicyInputs(chunks=chunks))
    assert not combined.dropped
    assert combined.action is not Action.DROP
