"""``POST /v1/grounding/check``: checks text against sources over HTTP."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from judges.types import Label
from tests.support.gateways.live_gateway import Gateway, eventually

TEXT = "The API rate limit is 1000 req/min."
SOURCE = "Premium users get 1000 requests per minute."
StartGateway = Callable[..., Gateway]
Body = dict[str, Any]


def post(gateway: Gateway, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Body:
    with gateway.call(body, path="/v1/grounding/check", headers=headers) as call:
        answer = call.read_all()
        assert call.status == status, answer
    return dict(json.loads(answer))


def test_text_supported_by_its_source_is_grounded(gateway: Gateway) -> None:
    answer = post(gateway, {"text": TEXT, "sources": [SOURCE]})
    (claim,) = answer.pop("claims")
    assert claim["best_source"].pop("score") == claim.pop("confidence") >= 0.7
    assert claim == {
        "claim": TEXT,
        "verdict": "supported",
        "best_source": {"chunk_id": "source-1", "content": SOURCE},
        "escalated": False,
        "span": {"start": 0, "end": len(TEXT)},
    }
    assert answer.pop("judge")["name"] == "scripted"
    request_id = answer.pop("request_id")
    assert answer == {
        "grounded": True,
        "verdict": "supported",
        "total_claims": 1,
        "supported_count": 1,
        "contradicted_count": 0,
        "unverifiable_count": 0,
        "unverifiable_ratio": 0.0,
        "trust_score": 1.0,
        "is_trusted": True,
        "coverage": 1.0,
        "unjudged": [],
        "summary": "1/1 claims supported",
        "claims_skipped": 0,
        "action": "allow",
        "decisions": [],
    }
    trace = gateway.trace(request_id)
    assert (trace.request["api"], trace.request["verdict"]) == ("grounding.check", "supported")
    assert [claim["label"] for claim in trace.claims] == ["supported"]
    assert (trace.documents[0]["document_id"], trace.request["reply"]) == ("source-1", TEXT)


def test_documents_are_accepted_in_every_format(gateway: Gateway) -> None:
    documents = [{"page_content": "Cats purr.", "metadata": {"source": "cats.md"}}, {"id": "rates", "content": SOURCE}]
    gateway.judge.labels = {"rate limit": Label.SUPPORTED}
    answer = post(gateway, {"text": TEXT, "documents": documents})
    assert answer["claims"][0]["best_source"]["chunk_id"] in {"doc-1", "rates"}


@pytest.mark.parametrize(
    ("labels", "grounded", "verdict"),
    [
        ({"B": Label.CONTRADICTED}, False, "has_contradictions"),
        ({"B": Label.UNVERIFIABLE}, True, "has_unverifiable"),
        ({"B": Label.UNVERIFIABLE, "C": Label.UNVERIFIABLE}, False, "has_unverifiable"),
    ],
)
def test_grounded_result_follows_the_verdicts(
    gateway: Gateway, labels: dict[str, Label], grounded: bool, verdict: str
) -> None:
    gateway.judge.labels = labels
    answer = post(gateway, {"text": "Town A has trees. Town B has trees. Town C has trees.", "sources": ["Trees."]})
    assert (answer["grounded"], answer["verdict"]) == (grounded, verdict)


def test_share_of_unverifiable_claims_is_an_option(gateway: Gateway) -> None:
    gateway.judge.labels = {"B": Label.UNVERIFIABLE}
    body = {"text": "Town A has trees. Town B has trees.", "sources": ["Trees."]}
    answers = [post(gateway, {**body, "options": {"max_unverifiable_ratio": share}}) for share in (0.5, 0.4)]
    assert [answer["grounded"] for answer in answers] == [True, False]


def test_options_are_policy_rules_and_leave_no_decision_in_the_log(gateway: Gateway) -> None:
    options = {"entailment_threshold": 0.99, "max_claims": 1, "min_citations": 1, "action_on_violation": "block"}
    answer = post(gateway, {"text": f"{TEXT} It is free.", "sources": [SOURCE], "options": options})
    assert [claim["verdict"] for claim in answer["claims"]] == ["unverifiable"]
    assert (answer["total_claims"], answer["claims_skipped"], answer["action"]) == (1, 1, "block")
    assert "Citations (0) below minimum (1)" in answer["decisions"][-1]["reason"]
    assert gateway.trace(answer["request_id"]).decisions == []


LAMP = "The Orion lamp costs 20 euros. It is delivered within three days. The lamp is made of brass."


@pytest.mark.parametrize("action", ["warn", "block"])
@pytest.mark.parametrize("rules", [{"min_citations": 1}, {"min_citations": 0, "min_grounding_score": 1.0}])
def test_text_that_violates_its_policy_is_not_grounded(gateway: Gateway, rules: Body, action: str) -> None:
    policy = gateway.policy("grounding", {**rules, "action_on_violation": action}, scope={"agents": ["nobody"]})
    answer = post(gateway, {"text": TEXT, "sources": [SOURCE], "policy": policy["id"]})
    assert (answer["verdict"], answer["action"], answer["grounded"]) == ("supported", action, False)


def test_options_require_no_citation_or_score_by_default(gateway: Gateway) -> None:
    gateway.judge.labels = {"B": Label.UNVERIFIABLE}
    body = {"text": "Town A has trees. Town B has trees. Town C has trees.", "sources": ["Trees."]}
    for options in (None, {}, {"action_on_violation": "block"}):
        answer = post(gateway, {**body, "options": options})
        assert (answer["grounded"], answer["action"]) == (True, "allow")


@pytest.mark.parametrize(
    ("text", "options", "kind"),
    [
        ("The Orion lamp costs 20 euros.\n\n```\nprice = 9000\n```\n", {}, "code"),
        ("The Orion lamp costs [20 euros](https://shop.example/9000).", {}, "link"),
        ("The Orion lamp costs 20 euros. It is delivered within nine days.", {"max_claims": 1}, "skipped"),
    ],
)
def test_partly_unjudged_text_is_not_grounded(gateway: Gateway, text: str, options: Body, kind: str) -> None:
    answer = post(gateway, {"text": text, "sources": [LAMP], "options": options})
    assert (answer["verdict"], answer["grounded"], answer["is_trusted"]) == ("supported", False, False)
    assert {part["kind"] for part in answer["unjudged"]} == {kind}
    assert answer["coverage"] < 1
    assert "unverifiable" not in {claim["verdict"] for claim in answer["claims"]}
    assert answer["action"] == "warn"
    blocking = {**options, "unjudged_action": "block"}
    assert post(gateway, {"text": text, "sources": [LAMP], "options": blocking})["action"] == "block"


def test_marker_of_a_given_source_states_nothing(gateway: Gateway) -> None:
    document = {"id": "d1", "text": LAMP, "source": "faq.pdf"}
    answer = post(gateway, {"text": "The Orion lamp costs 20 euros [1] (faq.pdf).", "documents": [document]})
    assert (answer["grounded"], answer["unjudged"], answer["coverage"]) == (True, [], 1.0)


@pytest.mark.parametrize("tag", ["think", "thinking"])
def test_inline_reasoning_is_judged_only_if_the_rules_say_so(gateway: Gateway, tag: str) -> None:
    gateway.judge.labels = {"nine": Label.CONTRADICTED}
    said = "The Orion lamp costs 20 euros."
    text = f"<{tag}>It costs nine euros.</{tag}>\n\n{said}"
    for options in (None, {"reasoning_action": "pass"}, {"reasoning_action": "drop"}):
        answer = post(gateway, {"text": text, "sources": [LAMP], "options": options})
        assert (answer["grounded"], answer["coverage"]) == (True, 1.0)
        (claim,) = answer["claims"]
        assert text[claim["span"]["start"] : claim["span"]["end"]] == said
    judged = post(gateway, {"text": text, "sources": [LAMP], "options": {"reasoning_action": "judge"}})
    assert "contradicted" in {claim["verdict"] for claim in judged["claims"]}
    assert judged["grounded"] is False


def test_unjudged_claim_has_no_confidence(start_gateway: StartGateway) -> None:
    gateway = start_gateway(judge_timeout_ms=100)
    gateway.judge.hold()
    answer = post(gateway, {"text": "Town A has trees.", "sources": ["Rivers flow."]})
    gateway.judge.release()
    (claim,) = answer["claims"]
    assert (claim["verdict"], claim["reason"], claim["confidence"]) == ("unverifiable", "timeout", None)
    assert (answer["grounded"], answer["is_trusted"]) == (False, False)


@pytest.mark.parametrize("by", ["id", "name"])
def test_named_policy_decides_and_its_decisions_are_logged(gateway: Gateway, by: str) -> None:
    gateway.judge.labels = {"free": Label.CONTRADICTED}
    scope = {"agents": ["nobody"]}
    policy = gateway.policy("grounding", {"contradiction_action": "block", "min_citations": 1}, scope=scope)
    text = f"{TEXT} [1] It is free."
    answer = post(gateway, {"text": text, "sources": [SOURCE], "policy": policy[by]})
    assert answer["action"] == "block"
    assert [(d["phase"], d["action"]) for d in answer["decisions"]] == [
        ("before_workflow", "allow"),
        ("mid_execution", "block"),
        ("after_workflow", "block"),
    ]
    assert answer["decisions"][1]["reason_code"] == "GROUNDING_CONTRADICTION"
    trace = gateway.trace(answer["request_id"])
    assert [decision["policy_id"] for decision in trace.decisions] == [policy["id"]] * 3
    assert [claim["verdict"] for claim in answer["claims"]] == ["supported", "contradicted"]


@pytest.mark.parametrize("sources", [None, []])
def test_nothing_is_checked_without_sources(gateway: Gateway, sources: list[str] | None) -> None:
    answer = post(gateway, {"text": TEXT, "sources": sources})
    assert (answer["grounded"], answer["verdict"]) == (False, "no_sources")
    assert (answer["reason_code"], answer["claims"], answer["trust_score"]) == ("GROUNDING_NO_SOURCES", [], None)
    assert gateway.judge.claims == []


@pytest.mark.parametrize("text", ["", "   ", "Hello!", "How can I help you?"])
def test_text_without_claims_is_grounded(gateway: Gateway, text: str) -> None:
    answer = post(gateway, {"text": text, "sources": [SOURCE]})
    assert (answer["grounded"], answer["verdict"], answer["total_claims"]) == (True, "no_claims", 0)


def test_without_a_judge_nothing_is_grounded_and_a_policy_may_block(start_gateway: StartGateway) -> None:
    gateway = start_gateway(real_judge=True, judge="none")
    rules = {"on_judge_unavailable": "block", "min_citations": 0}
    policy = gateway.policy("grounding", rules)
    answer = post(gateway, {"text": TEXT, "sources": [SOURCE], "policy": policy["name"]})
    assert (answer["grounded"], answer["verdict"], answer["action"]) == (False, "not_checked", "block")
    assert (answer["reason_code"], answer["judge"]["name"]) == ("GROUNDING_NOT_CHECKED", None)


def test_long_text_is_checked_completely(gateway: Gateway) -> None:
    text = " ".join(f"Town {number} has trees." for number in range(1200))
    answer = post(gateway, {"text": text, "sources": ["Trees grow in towns."]})
    assert (answer["total_claims"], answer["supported_count"]) == (1200, 1200)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"sources": [SOURCE]}, "text"),
        ({"text": None, "sources": [SOURCE]}, "text"),
        ({"text": 7, "sources": [SOURCE]}, "text"),
        ({"text": "x" * 1_000_001, "sources": [SOURCE]}, "text"),
        ({"text": TEXT, "sources": SOURCE}, "sources"),
        ({"text": TEXT, "sources": [SOURCE, 7]}, "sources[1]"),
        ({"text": TEXT, "sources": [SOURCE, " "]}, "sources[1]"),
        ({"text": TEXT, "sources": [SOURCE], "documents": []}, "sources"),
        ({"text": TEXT, "documents": [{"text": SOURCE, "relevance_score": 3}]}, "documents[0].relevance_score"),
        ({"text": TEXT, "documents": [{"title": "x"}]}, "documents[0].text"),
        ({"text": TEXT, "source": SOURCE}, "source"),
        ({"text": TEXT, "policy": "no such policy"}, "policy"),
        ({"text": TEXT, "policy": 7}, "policy"),
        ({"text": TEXT, "policy": "a", "options": {}}, "options"),
        ({"text": TEXT, "options": []}, "options"),
        ({"text": TEXT, "options": {"entailment": 0.5}}, "options.entailment"),
        ({"text": TEXT, "options": {"entailment_threshold": 2}}, "options.entailment_threshold"),
        ([], None),
    ],
)
def test_bad_field_is_named(gateway: Gateway, body: Any, param: str | None) -> None:
    error = post(gateway, body, status=400)["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


def test_retrieval_policy_cannot_judge_a_text(gateway: Gateway) -> None:
    policy = gateway.policy("retrieval", {}, scope={"agents": ["nobody"]})
    error = post(gateway, {"text": TEXT, "policy": policy["id"]}, status=400)["error"]
    assert (error["param"], error["message"].endswith("has the category retrieval, which doesn't check replies.")) == (
        "policy",
        True,
    )


def test_client_disconnect_ends_the_check(gateway: Gateway) -> None:
    before = gateway.tasks()
    gateway.judge.hold()
    with gateway.call({"text": f"{TEXT} Left alone.", "sources": [SOURCE]}, path="/v1/grounding/check") as call:
        eventually(lambda: gateway.judge.asked or None, "the judge being asked")
        call.abort()
    gateway.judge.release()
    eventually(lambda: gateway.tasks() <= before or None, "the end of its tasks")


def test_paths_below_are_not_forwarded(gateway: Gateway) -> None:
    seen = len(gateway.upstream.exchanges)
    with httpx.Client(base_url=gateway.base_url) as client:
        assert [client.get(f"/grounding/{path}").status_code for path in ("check", "other")] == [404, 404]
    assert len(gateway.upstream.exchanges) == seen


def test_key_for_certain_collections_can_check_only_against_them(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    key = gateway.admin.post("/keys", json={"name": "kb", "collections": ["kb"]}).json()["key"]
    headers = {"authorization": f"Bearer {key}"}
    documents = [{"text": SOURCE, "collection": "kb"}, {"text": SOURCE, "collection": "hr"}]
    assert post(gateway, {"text": TEXT, "documents": documents[:1]}, headers=headers)["grounded"]
    error = post(gateway, {"text": TEXT, "documents": documents}, headers=headers, status=403)["error"]
    assert (error["code"], error["param"]) == ("collection_not_allowed", "documents[1]")


@pytest.mark.slow
def test_judge_with_two_encoders_checks_text(start_gateway: StartGateway) -> None:
    gateway = start_gateway(real_judge=True, judge="embedded-large", judge_timeout_ms=60_000)
    sources = ["Refunds are paid within 30 days.", "The canteen opens at 8:00. It is closed on public holidays."]
    text = "Refunds are paid within 30 days. Refunds are paid within 90 days. The gym in Lisbon is free."
    answer = post(gateway, {"text": text, "sources": sources})
    assert [claim["verdict"] for claim in answer["claims"]] == ["supported", "contradicted", "unverifiable"]
    name, _, digests = answer["judge"]["name"].partition("@")
    assert (name, [len(digest) for digest in digests.split("+")]) == ("embedded-large", [8, 8])
