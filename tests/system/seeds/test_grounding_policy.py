"""The original proposal "Grounding Policy", section by section, with its own examples."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from groundlane import AsyncGroundlane, PolicyViolationError

from judges.testing import contradicts
from judges.types import Label
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway, eventually
from tests.support.gateways.run_client import Run
from tests.system.policies.asking import LAMP, ask
from tests.system.seeds.llm import Llm, gateway_with

both = pytest.mark.parametrize("stream", [False, True])
REPLY = "The Orion lamp costs 20 euros."

RAG_PIPELINE = """{
"min_grounding_score": 0.7,
"score_relevance_floor": 0.5,
"score_eval_mode": "all",
"min_citations": 1,
"action_on_violation": "block"
}"""
LENIENT_AVERAGE = """{
"min_grounding_score": 0.7,
"score_relevance_floor": 0.4,
"score_eval_mode": "average",
"action_on_violation": "warn"
}"""
STRICT_RESEARCH = """{
"require_source_grounding": true,
"min_grounding_score": 0.8,
"min_citations": 2,
"max_unsupported_claims": 0,
"abstention_threshold": 0.5,
"abstention_response": "I don't have sufficient grounded evidence to answer this accurately.",
"action_on_violation": "block"
}"""
MEDICAL = """{
"require_source_grounding": true,
"min_grounding_score": 0.9,
"min_citations": 3,
"max_unsupported_claims": 0,
"abstention_threshold": 0.7,
"abstention_response": "I cannot provide a reliable answer based on available evidence. Please consult a qualified professional.",
"action_on_violation": "block"
}"""  # noqa: E501 - as the proposal has it
LENIENT = """{
"require_source_grounding": false,
"min_grounding_score": 0.6,
"min_citations": 1,
"max_unsupported_claims": 3,
"abstention_threshold": null,
"action_on_violation": "warn"
}"""
CITATION_ONLY = """{
"require_source_grounding": true,
"min_citations": 1,
"max_unsupported_claims": 2,
"action_on_violation": "block"
}"""
WITH_LLM_JUDGE = """{
"require_source_grounding": true,
"min_grounding_score": 0.7,
"min_citations": 2,
"max_unsupported_claims": 0,
"abstention_threshold": 0.5,
"action_on_violation": "block",
"llm_grounding_check": true,
"llm_grounding_model": "gpt-4o-mini",
"llm_grounding_threshold": 0.7,
"llm_grounding_phase": "after_workflow"
}"""
CRISIS = [0.92, 0.87, 0.85, 0.35, 0.22]
"""Scores of the five results for "2008 financial crisis"."""
NONE_RELEVANT = "No grounding scores above relevance floor — all retrieved results appear irrelevant"


def rules_of(policy: str) -> dict[str, Any]:
    return dict(json.loads(policy))


def last(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer["decisions"][-1])


# Rules


def test_rules_and_their_defaults(gateway: Gateway) -> None:
    properties = gateway.admin.get("/policies/schema").json()["grounding"]["properties"]
    defaults = {
        "require_source_grounding": False,
        "min_grounding_score": 0.7,
        "min_citations": 1,
        "max_unsupported_claims": None,
        "factual_consistency_check": False,
        "abstention_threshold": None,
        "abstention_response": None,
        "action_on_violation": "warn",
        "score_relevance_floor": None,
        "score_eval_mode": "all",
        "score_top_n": 3,
        "llm_grounding_check": False,
        "llm_grounding_model": "gpt-4o-mini",
        "llm_grounding_threshold": 0.7,
        "llm_grounding_criteria": "",
        "llm_grounding_phase": "mid_execution",
    }
    assert {name: properties[name]["default"] for name in defaults} == defaults


# How it works: the phases of a run


def test_rules_are_recorded_before_the_workflow(gateway: Gateway) -> None:
    agent = gateway.agent(grounding=rules_of(STRICT_RESEARCH))
    with Run(gateway, agent) as run:
        (bound,) = run.started["decisions"]
    assert (bound["phase"], bound["action"]) == ("before_workflow", "allow")


def test_scores_are_checked_at_each_record(gateway: Gateway) -> None:
    """No scores: allow. The first score below the threshold is the violation."""
    with Run(gateway, gateway.agent(grounding=rules_of(STRICT_RESEARCH))) as run:
        assert last(run.grounded(citations=["Source A"]))["action"] == "allow"
        decision = last(run.grounded(grounding_scores=[0.9, 0.42, 0.3]))
    assert (decision["phase"], decision["action"]) == ("mid_execution", "block")
    assert decision["reason"] == "Grounding score (0.42) below threshold (0.8)"
    assert decision["metadata"] == {"score": 0.42, "threshold": 0.8}


def test_after_the_workflow_every_violation_is_collected(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(grounding=rules_of(STRICT_RESEARCH))) as run:
        run.grounded(unsupported_claims=["A.", "B."], output_confidence=0.42)
        decision = last(run.complete({"answer": "…"}))
    assert decision["reason"].split("; ") == [
        "Citations (0) below minimum (2)",
        "No source citations provided (grounding required)",
        "Unsupported claims (2) exceeds max (0)",
        "Output confidence (0.42) below abstention threshold (0.5)",
    ]
    assert decision["metadata"]["warnings"] == decision["reason"].split("; ")
    assert decision["metadata"]["citation_count"] == 0


def test_valid_text_is_allowed_with_its_citation_count(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(grounding=rules_of(STRICT_RESEARCH))) as run:
        run.grounded(
            grounding_scores=[0.9, 0.85, 0.92], citations=["Source A", "Source B", "Source C"], output_confidence=0.88
        )
        decision = last(run.complete({"answer": "…"}))
    assert (decision["action"], decision["reason"]) == ("allow", "Grounding audit passed (3 citations)")
    assert decision["metadata"] == {"citation_count": 3}


# Filtering for RAG pipelines


def test_relevance_floor(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(grounding=rules_of(RAG_PIPELINE))) as run:
        assert last(run.grounded(grounding_scores=CRISIS))["action"] == "allow"
    without = {name: rule for name, rule in rules_of(RAG_PIPELINE).items() if name != "score_relevance_floor"}
    with Run(gateway, gateway.agent(grounding=without)) as run:
        decision = last(run.grounded(grounding_scores=CRISIS))
    assert (decision["action"], decision["reason"]) == ("block", "Grounding score (0.35) below threshold (0.7)")


@both
def test_relevance_floor_of_a_request(gateway: Gateway, stream: bool) -> None:
    """Scores of documents and reported scores are filtered; the judge's scores of claims never are."""
    documents = [{**LAMP, "id": f"d{i}", "relevance_score": score} for i, score in enumerate(CRISIS)]
    cited = f"{REPLY[:-1]} [1]."
    for source, grounding in (("retrieval", {}), ("reported", {"reported": {"grounding_scores": CRISIS}})):
        agent = gateway.agent(grounding={**rules_of(RAG_PIPELINE), "score_source": source})
        found = ask(gateway, agent, cited, stream=stream, documents=documents, grounding=grounding)
        assert (found.action, found.text) == ("allow", cited)
    gateway.judge.default = Label.UNVERIFIABLE
    agent = gateway.agent(grounding=rules_of(RAG_PIPELINE))
    judged = ask(gateway, agent, "It was designed in 1962 [1].", stream=stream, documents=documents)
    assert judged.action == "block"


@both
def test_no_relevant_document(gateway: Gateway, stream: bool) -> None:
    with Run(gateway, gateway.agent(grounding=rules_of(RAG_PIPELINE))) as run:
        decision = last(run.grounded(grounding_scores=[0.35, 0.22]))
    assert (decision["action"], decision["reason"]) == ("block", NONE_RELEVANT)
    agent = gateway.agent(grounding={**rules_of(RAG_PIPELINE), "score_source": "reported"})
    found = ask(gateway, agent, REPLY, stream=stream, grounding={"reported": {"grounding_scores": [0.35, 0.22]}})
    assert (found.calls, found.last["reason"]) == (0, NONE_RELEVANT)


@pytest.mark.parametrize(
    ("rules", "scores", "reason"),
    [
        (rules_of(LENIENT_AVERAGE), [0.9, 0.6, 0.65, 0.1], None),
        (
            rules_of(LENIENT_AVERAGE),
            [0.6, 0.5, 0.55, 0.1],
            "Average grounding score (0.55) below threshold (0.7)",
        ),
        ({"score_eval_mode": "top_n", "score_top_n": 3}, CRISIS, None),
        (
            {"score_eval_mode": "top_n", "score_top_n": 4},
            CRISIS,
            "Grounding score (0.35) below threshold (0.7)",
        ),
    ],
)
def test_evaluation_modes(gateway: Gateway, rules: dict[str, Any], scores: list[float], reason: str | None) -> None:
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        decision = last(run.grounded(grounding_scores=scores))
    assert decision["action"] == ("warn" if reason else "allow")
    assert reason is None or decision["reason"] == reason


# SDK integration


def record(gateway: Gateway, agent: str, *reports: dict[str, Any]) -> str | None:
    """The example of the proposal: report grounding data, then set the result. Return the violation."""

    async def main() -> str | None:
        try:
            async with AsyncGroundlane(gateway.base_url) as client, client.run(agent, enforce_policy=True) as ctx:
                for report in reports:
                    await ctx.record_grounding(**report)
                ctx.set_result({"answer": "…", "citations": []})
        except PolicyViolationError as error:
            return str(error)
        return None

    return asyncio.run(main())


SOURCES = ["Source A", "Source B", "Source C"]


def report(**fields: Any) -> dict[str, Any]:
    return {
        "grounding_scores": [0.9, 0.85, 0.92],
        "citations": SOURCES,
        "unsupported_claims": [],
        "output_confidence": 0.88,
        **fields,
    }


def test_recording_grounding_data(gateway: Gateway) -> None:
    assert record(gateway, gateway.agent(grounding=rules_of(STRICT_RESEARCH)), report()) is None


@pytest.mark.parametrize(
    ("rules", "fields", "message"),
    [
        (
            {"action_on_violation": "block"},
            {"grounding_scores": [0.9, 0.42]},
            "Grounding score (0.42) below threshold (0.7)",
        ),
        (
            {"max_unsupported_claims": 0, "action_on_violation": "block"},
            {"citations": [], "unsupported_claims": ["A.", "B."]},
            "Citations (0) below minimum (1); Unsupported claims (2) exceeds max (0)",
        ),
    ],
)
def test_handling_violations(gateway: Gateway, rules: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    assert record(gateway, gateway.agent(grounding=rules), report(**fields)) == message


def test_accumulating_grounding_data(gateway: Gateway) -> None:
    """Each record is checked separately; the citations of all of them count at the end."""
    with Run(gateway, gateway.agent(grounding=rules_of(MEDICAL) | {"min_grounding_score": 0.8})) as run:
        first = run.grounded(
            grounding_scores=[0.92, 0.87],
            citations=["Federal Reserve Report", "IMF Analysis"],
            output_confidence=0.89,
        )
        second = run.grounded(grounding_scores=[0.91], citations=["Historical Review"], output_confidence=0.88)
        decision = last(run.complete({"answer": "…"}))
    assert [last(answer)["action"] for answer in (first, second)] == ["allow", "allow"]
    assert decision["reason"] == "Grounding audit passed (3 citations)"


# Example policies


@pytest.mark.parametrize(
    ("policy", "fields", "action"),
    [
        (STRICT_RESEARCH, {}, "allow"),
        (STRICT_RESEARCH, {"grounding_scores": [0.79]}, "block"),
        (STRICT_RESEARCH, {"citations": ["Source A"]}, "block"),
        (STRICT_RESEARCH, {"unsupported_claims": ["A."]}, "block"),
        (STRICT_RESEARCH, {"output_confidence": 0.49}, "block"),
        (MEDICAL, {"grounding_scores": [0.95]}, "allow"),
        (MEDICAL, {"grounding_scores": [0.89]}, "block"),
        (MEDICAL, {"grounding_scores": [0.95], "citations": SOURCES[:2]}, "block"),
        (LENIENT, {"grounding_scores": [0.5], "citations": [], "unsupported_claims": ["A."] * 4}, "warn"),
        (CITATION_ONLY, {"grounding_scores": [], "unsupported_claims": ["A."] * 2}, "allow"),
        (CITATION_ONLY, {"grounding_scores": [], "citations": []}, "block"),
        (CITATION_ONLY, {"grounding_scores": [], "unsupported_claims": ["A."] * 3}, "block"),
        (RAG_PIPELINE, {"grounding_scores": CRISIS}, "allow"),
        (RAG_PIPELINE, {"grounding_scores": CRISIS, "citations": []}, "block"),
    ],
)
def test_example_policies_for_a_run(gateway: Gateway, policy: str, fields: dict[str, Any], action: str) -> None:
    with Run(gateway, gateway.agent(grounding=rules_of(policy))) as run:
        decisions = [*run.grounded(**report(**fields))["decisions"], *run.complete({"answer": "…"})["decisions"]]
    strictest = max((decision["action"] for decision in decisions), key=["allow", "warn", "block"].index)
    assert strictest == action


@both
@pytest.mark.parametrize(
    ("policy", "reply", "labels", "action"),
    [
        (STRICT_RESEARCH, f"{REPLY[:-1]} [1][2].", {}, "allow"),
        (STRICT_RESEARCH, f"{REPLY[:-1]} [1].", {}, "block"),
        (STRICT_RESEARCH, f"{REPLY[:-1]} [1][2]. It glows.", {"glows": Label.UNVERIFIABLE}, "block"),
        (MEDICAL, f"{REPLY[:-1]} [1][2][3].", {}, "allow"),
        (MEDICAL, REPLY, {}, "block"),
        (LENIENT, REPLY, {"Orion": Label.UNVERIFIABLE}, "warn"),
        (CITATION_ONLY, f"{REPLY[:-1]} [1].", {}, "allow"),
        (CITATION_ONLY, REPLY, {}, "block"),
    ],
)
def test_example_policies_for_a_reply(
    gateway: Gateway, policy: str, reply: str, labels: dict[str, Label], action: str, stream: bool
) -> None:
    """The same rules for a judge's findings, with the policy's text instead of a blocked reply."""
    gateway.judge.labels = labels
    documents = [{**LAMP, "id": f"d{i}", "source": f"faq-{i}.pdf"} for i in range(3)]
    rules = rules_of(policy)
    found = ask(gateway, gateway.agent(grounding=rules), reply, stream=stream, documents=documents)
    assert found.action == action
    if action != "block":
        assert (found.text, found.finish) == (reply, "stop")
    elif "abstention_response" in rules:
        assert (found.text, found.finish) == (rules["abstention_response"], "content_filter")


def test_templates_have_the_values_of_the_examples(gateway: Gateway) -> None:
    templates = {each["name"]: each["rules"] for each in gateway.admin.get("/policies/templates").json()["items"]}
    named = {
        "RAG pipeline grounding": RAG_PIPELINE,
        "Strict research assistant": STRICT_RESEARCH,
        "Medical Q&A": MEDICAL,
        "Lenient RAG": LENIENT,
        "Citation-only": CITATION_ONLY,
        "Grounding with LLM judge": WITH_LLM_JUDGE,
    }
    for name, policy in named.items():
        assert templates[name].items() >= rules_of(policy).items() - {("abstention_threshold", None)}


@both
def test_abstention_response(gateway: Gateway, stream: bool) -> None:
    """The confidence is known before the call, which is then not made."""
    agent = gateway.agent(grounding=rules_of(MEDICAL))
    found = ask(gateway, agent, REPLY, stream=stream, grounding={"reported": {"output_confidence": 0.42}})
    assert found.text == rules_of(MEDICAL)["abstention_response"]
    assert found.last["reason"] == "Output confidence (0.42) below abstention threshold (0.7)"
    assert found.calls == 0


# Creating via API, observability


def test_creating_via_the_api(gateway: Gateway) -> None:
    body = """{
"name": "Strict Research Grounding",
"category": "grounding",
"rules": {
"require_source_grounding": true,
"min_grounding_score": 0.8,
"min_citations": 2,
"max_unsupported_claims": 0,
"abstention_threshold": 0.5,
"action_on_violation": "block"
},
"scope": {
"agents": ["research-agent"]
},
"enabled": true
}"""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}
    made = httpx.post(f"http://127.0.0.1:{gateway.port}/admin/v1/policies/", content=body, headers=headers)
    assert made.status_code == 201
    with Run(gateway, "research-agent") as run:
        run.grounded(grounding_scores=[0.42])
        run.complete({"answer": "…"})
        rows = run.events(3)
    gateway.admin.delete(f"/policies/{made.json()['id']}")
    assert {row["policy_name"] for row in rows} == {"Strict Research Grounding"}
    assert [(row["phase"], row["action"]) for row in rows] == [
        ("before_workflow", "allow"),
        ("mid_execution", "block"),
        ("after_workflow", "block"),
    ]
    assert rows[1]["reason"] == "Grounding score (0.42) below threshold (0.8)"
    assert rows[2]["reason"] == "Citations (0) below minimum (2); No source citations provided (grounding required)"


# LLM grounding judge


def scoring(score: str) -> Llm:
    return Llm(lambda prompt: score)


@both
@pytest.mark.parametrize(
    ("said", "action", "reason"),
    [
        ('{"reasoning": "Invented.", "score": 0.3}', "block", "LLM grounding score (0.30) below threshold (0.70)"),
        ('{"reasoning": "Traceable.", "score": 1.0}', "allow", "Grounding audit passed (2 citations)"),
        ("I would rather not say.", "block", "LLM grounding score (0.50) below threshold (0.70)"),
    ],
)
def test_llm_judge(tmp_path: Path, said: str, action: str, reason: str, stream: bool) -> None:
    """A second opinion on the whole reply; an answer that can't be parsed counts as neutral (0.5)."""
    llm = scoring(said)
    with gateway_with(llm, tmp_path) as gateway:
        rules = {**rules_of(WITH_LLM_JUDGE), "llm_grounding_model": "referee/gpt-4o-mini"}
        agent = gateway.agent(grounding={**rules, "llm_grounding_criteria": "Prices need a currency."})
        documents = [{**LAMP, "id": f"d{i}", "source": f"faq-{i}.pdf"} for i in range(2)]
        found = ask(gateway, agent, f"{REPLY[:-1]} [1][2].", stream=stream, documents=documents)
    assert (found.action, found.last["reason"]) == (action, reason)
    assert found.last["phase"] == "after_workflow"
    (prompt,) = llm.prompts
    assert "Prices need a currency." in prompt
    assert LAMP["text"] in prompt


@both
def test_llm_judge_never_blocks_for_its_own_failures(tmp_path: Path, stream: bool) -> None:
    with gateway_with(Llm(lambda prompt: None), tmp_path) as gateway:
        rules = {**rules_of(WITH_LLM_JUDGE), "min_citations": 1}
        failing = gateway.agent(grounding={**rules, "llm_grounding_model": "referee/gpt-4o-mini"})
        cited = f"{REPLY[:-1]} [1]."
        found = ask(gateway, failing, cited, stream=stream)
        assert (found.text, found.action) == (cited, "warn")
        assert found.last["reason_code"] == "GROUNDING_LLM_SKIPPED"
        no_key = gateway.agent(grounding={**rules, "llm_grounding_model": "claude-sonnet-4-20250514"})
        found = ask(gateway, no_key, cited, stream=stream)
        assert (found.text, found.action) == (cited, "allow")
        assert found.last["metadata"]["llm"]["skipped"] in ("no_key", "unknown_model")


@pytest.mark.parametrize(
    ("phase", "phases"),
    [
        ("mid_execution", {"mid_execution"}),
        ("after_workflow", {"after_workflow"}),
        ("both", {"mid_execution", "after_workflow"}),
    ],
)
def test_phases_of_the_llm_judge(tmp_path: Path, phase: str, phases: set[str]) -> None:
    with gateway_with(scoring('{"reasoning": "", "score": 0.3}'), tmp_path) as gateway:
        rules = {"llm_grounding_check": True, "llm_grounding_model": "referee/gpt-4o-mini", "min_citations": 0}
        found = ask(gateway, gateway.agent(grounding={**rules, "llm_grounding_phase": phase}), REPLY, stream=True)
    named = {each["phase"] for each in found.grounding["decisions"] if each["reason_code"] == "GROUNDING_LLM_SCORE"}
    assert named == phases


def test_llm_judge_evaluates_the_result_of_a_run(tmp_path: Path) -> None:
    """Compared with everything recorded in the run."""
    llm = scoring('{"reasoning": "Invented.", "score": 0.3}')
    with gateway_with(llm, tmp_path) as gateway:
        rules = {"llm_grounding_check": True, "llm_grounding_model": "referee/gpt-4o-mini", "min_citations": 0}
        agent = gateway.agent(grounding={**rules, "llm_grounding_phase": "after_workflow"})
        with Run(gateway, agent) as run:
            run.retrieved(**LAMP)
            decision = last(run.complete({"answer": "The Orion lamp costs 90 euros."}))
    assert (decision["action"], decision["reason_code"]) == ("warn", "GROUNDING_LLM_SCORE")
    (prompt,) = llm.prompts
    assert LAMP["text"] in prompt
    assert "90 euros" in prompt


# Common gotchas


def test_null_disables_a_limit_and_zero_tolerates_none(gateway: Gateway) -> None:
    for limit, action in ((None, "allow"), (0, "warn")):
        with Run(gateway, gateway.agent(grounding={"max_unsupported_claims": limit})) as run:
            run.grounded(unsupported_claims=["A."], citations=["Source A"])
            assert last(run.complete({"answer": "…"}))["action"] == action


def test_abstention_needs_a_confidence(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(grounding={"abstention_threshold": 0.5})) as run:
        run.grounded(citations=["Source A"])
        assert last(run.complete({"answer": "…"}))["action"] == "allow"


@both
def test_consistency_check_works(gateway: Gateway, stream: bool) -> None:
    """An intended difference: the proposal reserves the name."""
    first, second = "The limit is 1000 requests per minute.", "The limit is 500 requests per minute."
    gateway.judge.pairs_known = {(first, second): contradicts(), (second, first): contradicts()}
    agent = gateway.agent(grounding={"factual_consistency_check": True, "min_citations": 0})
    found = ask(gateway, agent, f"{first} {second}", stream=stream)
    assert found.action == "warn"
    assert found.last["reason"] == f'Claims contradict each other: "{first}" / "{second}"'


def test_calibration_from_good_runs(gateway: Gateway) -> None:
    """Warn first, then set the threshold at the fifth percentile of the scores of good runs."""
    agent = gateway.agent(grounding={"min_citations": 0})
    for score in (0.91, 0.88, 0.93, 0.9, 0.87, 0.95, 0.92, 0.89, 0.94, 0.9):
        with Run(gateway, agent) as run:
            run.grounded(grounding_scores=[score])
            run.complete({"answer": "…"})

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = gateway.admin.get(
            "/calibration", params={"agent": agent, "source": "reported", "percentile": 5}
        ).json()
        return found if found["runs"]["good"] == 10 else None

    found = eventually(look, "ten good runs")
    assert 0.87 <= found["threshold"] <= 0.88
    assert found["would_block"]["good"] <= 1
