"""Grounding rules do what their table says, streamed and whole."""

from collections.abc import Callable
from typing import Any

import pytest

from judges.types import Label
from tests.support.gateways.live_gateway import Gateway
from tests.system.policies.asking import LAMP, ask

PRICE = "The Orion lamp costs 20 euros"
DELIVERY = "It is delivered within three days."
INVENTED = "It was designed in 1962 by the Danish architect Poul Larsen."
BLOCK = {"action_on_violation": "block"}
DEFAULT_REPLACEMENT = "I can't answer that from the documents provided."
both = pytest.mark.parametrize("stream", [False, True])
StartGateway = Callable[..., Gateway]


def template(gateway: Gateway, name: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = gateway.admin.get("/policies/templates").json()["items"]
    return dict(next(item for item in items if item["name"] == name)["rules"])


# Scores


@both
@pytest.mark.parametrize(
    ("reply", "labels"),
    [
        (f"{PRICE} [1]. {INVENTED}", {"1962": Label.UNVERIFIABLE}),
        (f"{PRICE} [1]. It is delivered within nine days.", {"nine": Label.CONTRADICTED}),
    ],
)
def test_floor_hides_no_fabrication(gateway: Gateway, reply: str, labels: dict[str, Label], stream: bool) -> None:
    gateway.judge.labels = labels
    rules = {"min_grounding_score": 0.7, "score_relevance_floor": 0.5, "score_eval_mode": "all", "min_citations": 1}
    found = ask(gateway, gateway.agent(grounding={**rules, **BLOCK}), reply, stream=stream)
    assert (found.action, found.text, found.finish) == ("block", DEFAULT_REPLACEMENT, "content_filter")
    assert found.last["reason_code"] == "GROUNDING_LOW_SCORE"
    assert found.last["metadata"]["score"] < 0.1


@both
def test_floor_applies_to_reported_and_retrieval_scores(gateway: Gateway, stream: bool) -> None:
    rules = {"score_relevance_floor": 0.5, "min_citations": 0, **BLOCK}
    reported = gateway.agent(grounding={**rules, "score_source": "reported"})
    scores = {"reported": {"grounding_scores": [0.92, 0.87, 0.85, 0.35, 0.22]}}
    assert ask(gateway, reported, f"{PRICE}.", stream=stream, grounding=scores).action == "allow"
    documents = [{**LAMP, "id": f"d{index}", "relevance_score": score} for index, score in enumerate((0.9, 0.3))]
    retrieval = gateway.agent(grounding={**rules, "score_source": "retrieval"})
    assert ask(gateway, retrieval, f"{PRICE}.", stream=stream, documents=documents).action == "allow"


@both
@pytest.mark.parametrize(
    ("rules", "reported", "reason"),
    [
        ({}, {"grounding_scores": [0.9, 0.6999]}, "Grounding score (0.6999) below threshold (0.7)"),
        (
            {"score_eval_mode": "average"},
            {"grounding_scores": [0.7, 0.699]},
            "Average grounding score (0.6995) below threshold (0.7)",
        ),
        (
            {"abstention_threshold": 0.5},
            {"output_confidence": 0.49999},
            "Output confidence (0.49999) below abstention threshold (0.5)",
        ),
    ],
)
def test_reasons_do_not_contradict_themselves(
    gateway: Gateway, rules: dict[str, Any], reported: dict[str, Any], reason: str, stream: bool
) -> None:
    agent = gateway.agent(grounding={"score_source": "reported", "min_citations": 0, **rules})
    found = ask(gateway, agent, f"{PRICE}.", stream=stream, grounding={"reported": reported})
    assert reason in found.reasons


# Known before the call


@both
@pytest.mark.parametrize(
    ("rules", "reported", "reason"),
    [
        ({}, {"output_confidence": 0.3}, "Output confidence (0.30) below abstention threshold (0.7)"),
        ({"score_source": "reported"}, {"grounding_scores": [0.4]}, "Grounding score (0.40) below threshold (0.9)"),
        ({}, {"unsupported_claims": ["It glows."]}, "Unsupported claims (1) exceeds max (0)"),
    ],
)
def test_violations_known_before_the_call_prevent_it(
    gateway: Gateway, rules: dict[str, Any], reported: dict[str, Any], reason: str, stream: bool
) -> None:
    """The decision names what was known, and nothing about the reply that was never requested."""
    medical = {**template(gateway, "Medical Q&A"), **rules}
    agent = gateway.agent(grounding=medical)
    found = ask(gateway, agent, f"{PRICE}.", stream=stream, grounding={"reported": reported})
    assert (found.calls, found.action, found.finish) == (0, "block", "content_filter")
    assert found.text == medical["abstention_response"]
    assert found.last["reason"] == reason


@both
def test_missing_documents_are_known_before_the_call(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding={"require_source_grounding": True, **BLOCK})
    found = ask(gateway, agent, f"{PRICE}.", stream=stream, documents=None)
    assert (found.calls, found.action) == (0, "block")
    assert found.last["reason"] == "Citations (0) below minimum (1); No source citations provided (grounding required)"


@both
def test_no_uncited_text_is_sent_under_a_blocking_template(gateway: Gateway, stream: bool) -> None:
    medical = template(gateway, "Medical Q&A")
    found = ask(gateway, gateway.agent(grounding=medical), f"{PRICE}. {DELIVERY}", stream=stream)
    assert (found.text, found.finish) == (medical["abstention_response"], "content_filter")


# Citations


@both
def test_without_documents_there_are_no_citations(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding={"min_citations": 1, **BLOCK})
    found = ask(gateway, agent, f"{PRICE}.", stream=stream, documents=None)
    assert (found.action, found.text, found.finish) == ("block", DEFAULT_REPLACEMENT, "content_filter")
    assert (found.last["reason"], found.last["reason_code"]) == (
        "Citations (0) below minimum (1)",
        "GROUNDING_CITATIONS",
    )


@both
@pytest.mark.parametrize("name", [None, "Medical Q&A", "Strict research assistant", "Citation-only"])
@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("How may I park my bike?", "The handbook does not say."),
        ("How may I park my bike?", "I don't know."),
        ("Who designed the lamp?", "The documents do not mention who designed the lamp."),
        ("Hi", "Hello! How can I help you?"),
        ("Wer hat die Lampe entworfen?", "Das steht nicht in den Dokumenten."),
    ],
)
def test_reply_that_claims_nothing_needs_no_citation(
    gateway: Gateway, name: str | None, question: str, reply: str, stream: bool
) -> None:
    gateway.judge.default = Label.UNVERIFIABLE
    rules = template(gateway, name) if name else {"min_citations": 1, "require_source_grounding": True, **BLOCK}
    found = ask(gateway, gateway.agent(grounding=rules), reply, stream=stream, question=question)
    assert (found.text, found.finish) == (reply, "stop")
    assert (found.action, found.grounding["verdict"]) == ("allow", "no_claims")


@both
@pytest.mark.parametrize("reply", [f"I don't know. {PRICE}.", "I don't know.\n```\nprint(1962)\n```"])
def test_refusal_followed_by_a_statement_needs_a_citation(gateway: Gateway, reply: str, stream: bool) -> None:
    agent = gateway.agent(grounding={"min_citations": 1, **BLOCK})
    found = ask(gateway, agent, reply, stream=stream)
    assert (found.action, found.text) == ("block", DEFAULT_REPLACEMENT)
    assert "GROUNDING_CITATIONS" in found.codes


@both
@pytest.mark.parametrize(
    "marker",
    [
        "(faq.pdf)", "[faq.pdf]", "[[faq.pdf]]", "{faq.pdf}", "<faq.pdf>", "【faq.pdf】", "（faq.pdf）", "〔faq.pdf〕",
        "⟨faq.pdf⟩", "([faq.pdf])", "(`faq.pdf`)", "(*faq.pdf*)", '("faq.pdf")', "(see faq.pdf)", "(source: faq.pdf)",
        "(cf. faq.pdf, p. 3)", "(faq)", "([1])", "[1]", "([1], [faq.pdf])",
    ],
)  # fmt: skip
def test_source_name_in_any_brackets_is_a_marker(gateway: Gateway, marker: str, stream: bool) -> None:
    """It is a citation, and not part of the judged text."""
    agent = gateway.agent(grounding={"min_citations": 1, "require_valid_citations": True})
    gateway.judge.calls.clear()
    found = ask(gateway, agent, f"{PRICE} {marker}.", stream=stream)
    (claim,) = found.grounding["claims"]
    assert (claim["claim"], claim["citations"]) == (f"{PRICE}.", ["faq"])
    assert (found.action, found.last["reason"]) == ("allow", "Grounding audit passed (1 citations)")
    assert set(gateway.judge.claims) == {f"{PRICE}."}


@both
@pytest.mark.parametrize("text", ["(other.pdf)", "<1>", "{20}", "(in Denmark, faq.pdf)"])
def test_other_brackets_are_judged(gateway: Gateway, text: str, stream: bool) -> None:
    found = ask(gateway, gateway.agent(grounding={}), f"{PRICE} {text}.", stream=stream)
    (claim,) = found.grounding["claims"]
    assert claim["claim"] == f"{PRICE} {text}."


# Actions


@both
@pytest.mark.parametrize(
    ("rules", "action"),
    [
        (BLOCK, "warn"),
        ({**BLOCK, "unverifiable_action": "block"}, "block"),
        ({"unverifiable_action": "block"}, "block"),
    ],
)
def test_unverifiable_action_applies_to_unverifiable_claims(
    gateway: Gateway, rules: dict[str, Any], action: str, stream: bool
) -> None:
    """``action_on_violation`` doesn't."""
    gateway.judge.default = Label.UNVERIFIABLE
    agent = gateway.agent(grounding={"min_citations": 0, "min_grounding_score": 0.0, **rules})
    found = ask(gateway, agent, f"{INVENTED} Cats sleep for sixteen hours a day.", stream=stream)
    assert (found.action, found.codes) == (action, ["GROUNDING_UNVERIFIABLE"])
    assert found.last["reason"] == "Unverifiable claims 100% (max 50%)"


STRIP = {
    "unverifiable_action": "strip",
    "unjudged_action": "strip",
    "max_unverifiable_ratio": 1.0,
    "min_citations": 0,
    "abstention_response": "The documents don't say.",
}


@both
@pytest.mark.parametrize(
    ("reply", "before"),
    [
        (INVENTED, ""),
        (f"**{INVENTED}** [1]", ""),
        (f"- {INVENTED}\n- {INVENTED}", ""),
        (f"# Lamp\n{INVENTED}", "# Lamp"),
        ("```\nprint(1962)\n```", ""),
        (f"---\n{INVENTED}", "--- "),
        (f"| Year | Designer |\n|---|---|\n| 1962 | {INVENTED} |", None),
        (f"{INVENTED}\n\n[1]: faq.pdf", ""),
    ],
)
def test_emptied_reply_is_replaced(gateway: Gateway, reply: str, before: str | None, stream: bool) -> None:
    gateway.judge.default = Label.UNVERIFIABLE
    found = ask(gateway, gateway.agent(grounding=STRIP), reply, stream=stream)
    assert found.finish == "stop"
    if before is not None and "#" not in before:
        assert found.text == before + STRIP["abstention_response"]
    elif before is None:
        assert found.text.endswith(STRIP["abstention_response"])


# Decisions


@both
def test_several_violations_keep_their_metadata_separate(gateway: Gateway, stream: bool) -> None:
    gateway.judge.labels = {"nine": Label.CONTRADICTED}
    rules = {
        "min_citations": 2,
        "require_source_grounding": True,
        "max_unsupported_claims": 0,
        "min_grounding_score": 0.0,
    }
    agent = gateway.agent(grounding={**rules, **BLOCK})
    found = ask(gateway, agent, f"{PRICE}. It is delivered within nine days.", stream=stream)
    metadata = found.last["metadata"]
    violations = metadata.pop("violations")
    assert [each["reason_code"] for each in violations] == [
        "GROUNDING_CITATIONS",
        "GROUNDING_REQUIRED",
        "GROUNDING_UNSUPPORTED",
        "GROUNDING_CONTRADICTION",
    ]
    assert metadata == {"warnings": [each["reason"] for each in violations], "citation_count": 0}
    assert found.last["reason_code"] == "GROUNDING_CITATIONS"
    assert set(violations[2]["metadata"]) == {"citation_count", "claims"}
    assert set(violations[3]["metadata"]) == {"claim", "verdict", "sentence_index", "best_source"}


@both
def test_error_has_the_reason_code_of_the_decision(gateway: Gateway, stream: bool) -> None:
    """The blocking violation determines it, although a milder one comes first."""
    gateway.judge.labels = {"nine": Label.CONTRADICTED}
    rules = {"min_citations": 1, "contradiction_action": "block", "on_block": "error", "stream_mode": "final"}
    found = ask(gateway, gateway.agent(grounding=rules), "It is delivered within nine days.", stream=stream)
    error = found.error
    assert (found.status, error["type"]) == (200 if stream else 400, "grounding_policy_violation")
    (blocking,) = [each for each in error["violations"] if each["action"] == "block"]
    assert error["code"] == blocking["reason_code"] == "GROUNDING_CONTRADICTION"
    assert error["message"] == blocking["reason"]


@both
def test_missing_judge_is_a_warning(start_gateway: StartGateway, stream: bool) -> None:
    gateway = start_gateway(real_judge=True, judge="none")
    found = ask(gateway, gateway.agent(grounding={"min_citations": 0}), f"{PRICE}.", stream=stream)
    assert (found.text, found.action, found.grounding["verdict"]) == (f"{PRICE}.", "warn", "not_checked")
    assert (found.last["action"], found.last["reason_code"]) == ("warn", "GROUNDING_NOT_CHECKED")
    assert found.last["reason"].startswith("Reply not checked: no judge is available")


@both
def test_citations_are_counted_without_a_judge(start_gateway: StartGateway, stream: bool) -> None:
    gateway = start_gateway(real_judge=True, judge="none")
    agent = gateway.agent(grounding={"min_citations": 1, **BLOCK})
    assert ask(gateway, agent, f"{PRICE}.", stream=stream).action == "block"
    cited = ask(gateway, agent, f"{PRICE} [1].", stream=stream)
    assert (cited.action, cited.text) == ("warn", f"{PRICE} [1].")
