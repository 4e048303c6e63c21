"""``unjudged_action`` and ``min_coverage``."""

from typing import Any

import pytest

from judges.types import Label, Part, Sentence, SentenceVerdict, Span, Standing
from policies.grounding.sentence_checks import unjudged_texts
from policies.policy_selection import PolicySet, ReplyEvaluation
from policies.reason_texts import without_text
from policies.types import Action, Citation, Phase, PolicyInputs, UnjudgedText, Violation
from tests.support.policy_builders import chunk, claim, found, policy

ANSWER = (chunk(0, source="faq.pdf"),)
CITED = (Citation(marker="[1]", document_index=0, sentence_index=0),)
CODE = "rm -rf / --no-preserve-root  # safe to run"
OPEN: dict[str, Any] = {"min_grounding_score": 0.0, "min_citations": 0}


def unjudged(text: str = CODE, *, kind: str = "code", start: int = 0, sentence: int = 0) -> UnjudgedText:
    return UnjudgedText(kind=kind, text=text, span=Span(start, start + len(text)), sentence_index=sentence)


def mid(rules: dict[str, Any], **fields: Any) -> tuple[Violation, ...]:
    return found("grounding", Phase.MID_EXECUTION, OPEN | rules, PolicyInputs(chunks=ANSWER, final=False, **fields))


def after(rules: dict[str, Any], **fields: Any) -> tuple[Violation, ...]:
    inputs = PolicyInputs(**{"chunks": ANSWER, "citations": CITED, **fields})
    return found("grounding", Phase.AFTER_WORKFLOW, OPEN | rules, inputs)


def evaluate(*rules: dict[str, Any], strippable: bool = True) -> ReplyEvaluation:
    policies = tuple(policy("grounding", f"p{number}", **OPEN, **each) for number, each in enumerate(rules))
    evaluation = PolicySet(policies).evaluate_reply(PolicyInputs(chunks=ANSWER, final=False, strippable=strippable))
    assert evaluation.start().action is Action.ALLOW
    return evaluation


@pytest.mark.parametrize(
    ("action", "strippable", "at_its_sentence", "at_the_end"),
    [
        ("allow", True, None, None),
        ("warn", True, None, Action.WARN),
        ("strip", True, Action.DROP, None),
        ("strip", False, None, Action.WARN),
        ("block", True, Action.BLOCK, Action.BLOCK),
        ("block", False, Action.BLOCK, Action.BLOCK),
    ],
)
def test_each_action_is_applied(
    action: str, strippable: bool, at_its_sentence: Action | None, at_the_end: Action | None
) -> None:
    fields: dict[str, Any] = {"unjudged": [unjudged()], "strippable": strippable}
    for check, expected in ((mid, at_its_sentence), (after, at_the_end)):
        violations = check({"unjudged_action": action}, **fields)
        assert [violation.action for violation in violations] == ([expected] if expected else [])
        for violation in violations:
            assert violation.reason == f'Unjudged text (code): "{CODE}"'
            assert violation.reason_code == "GROUNDING_UNJUDGED"
            assert violation.metadata == {"kind": "code", "characters": 42}


def test_default_is_to_warn() -> None:
    assert [violation.action for violation in after({}, unjudged=[unjudged()])] == [Action.WARN]


@pytest.mark.parametrize(
    "kind",
    [
        *("code", "link", "attribute", "comment", "invisible", "stray_marker", "json"),
        *("timeout", "language", "skipped", "unavailable", "no_documents"),
    ],
)
@pytest.mark.parametrize("documents", [True, False])
@pytest.mark.parametrize("judged", [True, False])
def test_unjudged_reply_blocks_for_any_reason(kind: str, documents: bool, judged: bool) -> None:
    fields: dict[str, Any] = {"chunks": ANSWER if documents else (), "judged": judged, "citations": ()}
    (violation,) = after({"unjudged_action": "block"}, unjudged=[unjudged("Take 8.", kind=kind)], **fields)
    assert (violation.action, violation.reason) == (Action.BLOCK, f'Unjudged text ({kind}): "Take 8."')


def test_reply_without_documents_does_not_warn() -> None:
    texts = [unjudged("Hi there.", kind="no_documents"), unjudged(start=20)]
    (violation,) = after({}, chunks=(), citations=(), judged=False, unjudged=texts)
    assert violation.metadata["kind"] == "code"


def test_adjacent_parts_of_one_kind_are_one_violation() -> None:
    lines = [unjudged("a = 1\n", sentence=0), unjudged("b = 2\n", start=6, sentence=1)]
    others = [unjudged("x", kind="link", start=12), unjudged("y", kind="link", start=14), unjudged("c = 3", start=15)]
    violations = after({}, unjudged=[*lines, *others])
    assert [(violation.metadata["kind"], violation.metadata["characters"]) for violation in violations] == [
        ("code", 12),
        ("link", 1),
        ("link", 1),
        ("code", 5),
    ]
    assert violations[0].reason == 'Unjudged text (code): "a = 1\nb = 2"'


@pytest.mark.parametrize(("text", "excerpt"), [("", "…"), ("x" * 200, "x" * 200), ("x" * 201, "x" * 200 + "…")])
def test_reasons_quote_the_beginning(text: str, excerpt: str) -> None:
    (violation,) = after({}, unjudged=[unjudged(text)])
    assert violation.reason == f'Unjudged text (code): "{excerpt}"'


def test_removed_text_is_not_in_the_reply() -> None:
    assert after({}, unjudged=[unjudged(sentence=3)], withheld=frozenset({3})) == ()


@pytest.mark.parametrize(
    ("coverage", "minimum", "reason"),
    [
        (0.62, 0.9, "Coverage 62% below minimum 90%"),
        (0.0, 0.5, "Coverage 0% below minimum 50%"),
        (0.899, 0.9, "Coverage 89.9% below minimum 90%"),
        (0.99996, 1.0, "Coverage 99.996% below minimum 100%"),
        (0.9, 0.9, None),
        (1.0, 0.9, None),
        (None, 0.9, None),
        (0.0, 0.0, None),
    ],
)
@pytest.mark.parametrize("action", ["warn", "block"])
@pytest.mark.parametrize("documents", [True, False])
def test_coverage(coverage: float | None, minimum: float, reason: str | None, action: str, documents: bool) -> None:
    rules = {"min_coverage": minimum, "action_on_violation": action}
    violations = after(rules, coverage=coverage, chunks=ANSWER if documents else (), citations=())
    assert [violation.reason for violation in violations] == ([reason] if reason else [])
    for violation in violations:
        assert violation.action == action
        assert violation.reason_code == "GROUNDING_COVERAGE"
        assert violation.metadata == {"coverage": coverage, "minimum": minimum}
    assert mid(rules, coverage=coverage) == ()


class TestReply:
    def test_block_ends_the_reply_at_the_sentence(self) -> None:
        evaluation = evaluate({"unjudged_action": "block", "abstention_response": "Ask us."})
        assert evaluation.sentence([claim()]).action is Action.ALLOW
        decision = evaluation.sentence([], [unjudged(sentence=1)])
        assert (decision.action, decision.left_out) == (Action.BLOCK, ())
        assert decision.reason == f'Unjudged text (code): "{CODE}"'
        evaluation.abort()
        assert evaluation.decisions[-1].reason_code == "GROUNDING_UNJUDGED"
        assert evaluation.abstention_response == "Ask us."

    def test_parts_of_a_sentence_can_be_removed(self) -> None:
        evaluation = evaluate({"unjudged_action": "strip"})
        parts = [unjudged("`x`", start=3), unjudged("y", kind="link", start=9)]
        decision = evaluation.sentence([claim()], parts)
        assert (decision.action, decision.strip) == (Action.DROP, False)
        assert decision.left_out == tuple(parts)
        combined = evaluation.finish(PolicyInputs(chunks=ANSWER, coverage=0.9))
        assert [each.action for each in combined.decisions] == [Action.DROP, Action.ALLOW]
        assert evaluation.withheld == frozenset()

    def test_delivered_text_cannot_be_removed(self) -> None:
        evaluation = evaluate({"unjudged_action": "strip", "abstention_response": "Ask us."}, strippable=False)
        assert evaluation.sentence([], [unjudged()]).left_out == ()
        combined = evaluation.finish(PolicyInputs(chunks=ANSWER))
        assert combined.decisions[-1].action is Action.WARN
        assert evaluation.abstention_response is None

    def test_strictest_policy_decides(self) -> None:
        evaluation = evaluate({"unjudged_action": "strip"}, {"unjudged_action": "block"}, {"unjudged_action": "allow"})
        assert evaluation.sentence([], [unjudged()]).action is Action.BLOCK

    def test_emptied_reply_has_the_response_of_the_policy_that_removed_it(self) -> None:
        evaluation = evaluate(
            {"abstention_response": "Never."},
            {"unjudged_action": "strip"},
            {"unjudged_action": "strip", "abstention_response": "Ask us."},
        )
        evaluation.sentence([], [unjudged()])
        assert evaluation.abstention_response == "Ask us."

    def test_removed_sentence_does_not_count(self) -> None:
        evaluation = evaluate({})
        texts = [unjudged()]
        evaluation.sentence([], texts)
        evaluation.retract([], texts)
        combined = evaluation.finish(PolicyInputs(chunks=ANSWER))
        assert combined.action is Action.ALLOW

    def test_harmless_sentence_is_allowed(self) -> None:
        assert evaluate({"unjudged_action": "block"}).sentence([], []).action is Action.ALLOW


def test_decisions_can_be_redacted() -> None:
    evaluation = evaluate({})
    evaluation.sentence([], [unjudged("secret", start=0), unjudged('secret" tail', start=9)])
    decision = evaluation.finish(PolicyInputs(chunks=ANSWER)).decisions[-1]
    assert "secret" in decision.reason
    told = without_text(decision)
    assert told.reason == 'Unjudged text (code): "…"; Unjudged text (code): "…"'
    assert "secret" not in repr(told)
    assert told.metadata["warnings"] == ['Unjudged text (code): "…"'] * 2
    assert [each["metadata"]["characters"] for each in told.metadata["violations"]] == [6, 12]
    assert without_text(told) is told


def verdict(text: str, *parts: Part, index: int = 0, start: int = 0) -> SentenceVerdict:
    sentence = Sentence(index=index, text=text, span=Span(start, start + len(text)), plain=text)
    return SentenceVerdict(sentence=sentence, label=Label.NOT_A_CLAIM, parts=parts)


class TestStandings:
    def test_unjudged_parts_of_a_sentence_are_reported(self) -> None:
        judged = verdict(
            "See `ls` now. ",
            Part(span=Span(10, 14), standing=Standing.HARMLESS),
            Part(span=Span(14, 18), standing=Standing.UNJUDGED, kind="code"),
            Part(span=Span(18, 24), standing=Standing.JUDGED),
            index=2,
            start=10,
        )
        assert unjudged_texts(judged) == [UnjudgedText(kind="code", text="`ls`", span=Span(14, 18), sentence_index=2)]

    def test_sentence_without_parts_is_unjudged(self) -> None:
        (text,) = unjudged_texts(verdict("Take 8."))
        assert (text.kind, text.text) == ("unavailable", "Take 8.")

    def test_white_space_alone_is_allowed(self) -> None:
        assert unjudged_texts(verdict("\n\n")) == []
