"""Each library with its integration, as its users run it: the results of a chain, a pipeline, an engine."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from groundlane.integrations import REPLACEMENT

from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.system.clients.registry import missing_module
from tests.system.clients.scenario import ABSTENTION, CLOSED, LIE, PLANS, SUPPORT
from tests.system.clients.workers import Worker, python_with

pytestmark = [pytest.mark.clients]

Call = Callable[..., Any]
TEXTS = [PLANS, SUPPORT]
AWAY = "http://127.0.0.1:9"
"""The URL of no gateway."""
PACKAGES = {
    "langchain": "langchain_openai",
    "haystack": "haystack",
    "llamaindex": "llama_index",
    "guardrails": "guardrails",
    "litellm": "litellm_proxy_extras",
}


@pytest.fixture
def call(worker: Callable[[str, str], Worker]) -> Call:
    """Call a function of a library's driver, in that library's process."""

    def call(library: str, function: str, **given: Any) -> Any:
        python = python_with(PACKAGES[library])
        if python is None:
            pytest.skip(str(missing_module(PACKAGES[library])))
        return worker(python, PACKAGES[library]).call(f"tests.system.integrations.drivers.{library}", function, **given)

    return call


ASKED, YES = "Does the plan include a boat?", "Yes."
"""A question, and an answer to it that the judge of ``lies`` contradicts."""


@pytest.fixture
def lies(gateway: Gateway) -> Iterator[Gateway]:
    """The gateway, whose judge knows that there is no boat."""
    gateway.judge.labels = {"boat": Label.CONTRADICTED, "moon": Label.UNVERIFIABLE}
    return gateway


# LangChain


@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize("as_message", [False, True], ids=["text", "message"])
def test_chain_delivers_supported_text(lies: Gateway, call: Call, mode: str, as_message: bool) -> None:
    text = f"{PLANS} {SUPPORT}"
    seen = call("langchain", "ask", mode=mode, base_url=lies.base_url, answer=text, texts=TEXTS, as_message=as_message)
    assert "".join(seen["answers"]) == text
    assert (seen["verdict"], seen["blocked"], seen["messages"]) == ("supported", False, as_message)
    assert seen["keys"] == ["answer", "context", "grounding", "input"]
    if "stream" in mode:
        assert seen["answers"] == [f"{PLANS} ", SUPPORT], "each sentence when it is checked"


@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream", "astream"])
def test_chain_never_delivers_a_contradiction(lies: Gateway, call: Call, mode: str) -> None:
    given = {"base_url": lies.base_url, "answer": f"{PLANS} {LIE} {SUPPORT}", "texts": TEXTS}
    seen = call("langchain", "ask", mode=mode, replacement=ABSTENTION, **given)
    assert "".join(seen["answers"]) == (f"{PLANS} {ABSTENTION}" if "stream" in mode else ABSTENTION)
    assert (seen["verdict"], seen["blocked"]) == ("has_contradictions", True)
    raised = call("langchain", "ask", mode=mode, replacement=None, **given)
    assert raised["verdict"] == "has_contradictions"
    assert "boat" not in raised["ungrounded"]


def test_chain_blocks_by_its_rules(lies: Gateway, call: Call) -> None:
    given = {"base_url": lies.base_url, "texts": TEXTS, "mode": "stream", "answer": f"{PLANS} The moon is blue."}
    assert call("langchain", "ask", **given)["blocked"] is False
    strict = call("langchain", "ask", options={"max_unverifiable_ratio": 0.2}, block_on="ungrounded", **given)
    assert (strict["blocked"], len(strict["answers"])) == (True, 1)
    by_rules = call(
        "langchain", "ask", options={"unverifiable_action": "block", "max_unverifiable_ratio": 0.2}, **given
    )
    assert (by_rules["blocked"], len(by_rules["answers"])) == (True, 1), "held, because the rules decide at the end"
    lie = {**given, "answer": LIE}
    assert call("langchain", "ask", block_on="never", **lie)["answers"] == [LIE]


@pytest.mark.parametrize("as_chunk", [False, True], ids=["message", "chunk"])
def test_blocked_message_has_nothing_of_the_model(lies: Gateway, call: Call, as_chunk: bool) -> None:
    given = {"base_url": lies.base_url, "texts": TEXTS, "as_chunk": as_chunk, "replacement": ABSTENTION}
    assert call("langchain", "message", text=PLANS, **given)["same"] is True
    seen = call("langchain", "message", text=LIE, **given)
    assert "boat" not in json.dumps(seen)
    assert (seen["content"], seen["id"], seen["tool_calls"]) == (ABSTENTION, "message-1", [])
    assert (seen["kind"], seen["response_metadata"]) == (
        "AIMessageChunk" if as_chunk else "AIMessage",
        {"model_name": "says"},
    )
    assert seen["usage_metadata"]["total_tokens"] == 3


@pytest.mark.parametrize("mode", ["stream", "astream"])
def test_tool_calls_and_reasoning_of_a_stream_wait_for_its_verdict(lies: Gateway, call: Call, mode: str) -> None:
    given = {"base_url": lies.base_url, "texts": TEXTS, "mode": mode, "replacement": ABSTENTION, "arguments": LIE}
    seen = call("langchain", "pieces", answers=[f"{PLANS} ", SUPPORT], **given)
    assert [piece["content"] for piece in seen] == [f"{PLANS} ", SUPPORT, "", ""]
    assert seen[2]["additional_kwargs"] == {"reasoning_content": LIE}
    assert seen[3]["tool_call_chunks"][0]["args"] == LIE
    for answers in ([f"{PLANS} ", LIE], [f"{PLANS} ", f"{LIE} ", SUPPORT]):
        blocked = call("langchain", "pieces", answers=answers, **given)
        assert [piece["content"] for piece in blocked] == [f"{PLANS} ", ABSTENTION]
        assert "boat" not in json.dumps(blocked)


@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        (ASKED, "has_contradictions"),
        ({"content": ASKED}, "has_contradictions"),
        ({"content": [{"type": "text", "text": ASKED}]}, "has_contradictions"),
        ({"content": [{"type": "text", "text": ASKED}, {"type": "image_url", "image_url": "x"}]}, "has_unverifiable"),
        (3, "has_unverifiable"),
        ("", "has_unverifiable"),
    ],
)
def test_chain_judges_a_short_answer_with_its_question(
    lies: Gateway, call: Call, question: Any, verdict: str, mode: str
) -> None:
    given = {"mode": mode, "texts": TEXTS, "base_url": lies.base_url}
    said = "Blocked." if verdict == "has_contradictions" else YES
    assert call("langchain", "answered", question=question, **given) == [said, verdict]
    other = call("langchain", "answered", question=question, question_key="other", **given)
    assert other == [YES, "has_unverifiable"]


def test_question_of_a_chain_may_arrive_in_pieces(lies: Gateway, call: Call) -> None:
    given = {"mode": "stream", "texts": TEXTS, "base_url": lies.base_url}
    pieces = ["Does the plan ", "include a boat?"]
    assert call("langchain", "answered", question=pieces, **given) == ["Blocked.", "has_contradictions"]
    messages = [{"content": "Hello!"}, {"content": ASKED}]
    assert call("langchain", "answered", question=messages, **given) == [YES, "has_unverifiable"]


@pytest.mark.parametrize("mode", ["invoke", "astream"])
def test_chain_without_a_gateway_fails_or_continues(call: Call, mode: str) -> None:
    given = {"mode": mode, "base_url": AWAY, "answer": PLANS, "texts": TEXTS, "max_retries": 0}
    closed = call("langchain", "ask", **given)
    assert closed["error"] == "GatewayUnreachableError"
    assert AWAY in closed["message"]
    opened = call("langchain", "ask", on_error="open", **given)
    assert ("".join(opened["answers"]), opened["verdict"], opened["blocked"]) == (PLANS, "not_checked", False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_chat_model_through_the_gateway_has_the_verdict(lies: Gateway, call: Call, stream: bool) -> None:
    lies.upstream.script(answer(f"{PLANS} {LIE}", stream=stream))
    agent = lies.agent(grounding=CLOSED)
    seen = call("langchain", "chat", base_url=lies.base_url, stream=stream, texts=TEXTS, agent=agent)
    assert seen["text"] == (f"{PLANS} {ABSTENTION}" if stream else ABSTENTION)
    assert (seen["finish"], seen["verdict"]) == ("content_filter", "has_contradictions")


# Haystack


def test_pipeline_delivers_supported_text(lies: Gateway, call: Call) -> None:
    seen = call("haystack", "ask", base_url=lies.base_url, replies=[PLANS, SUPPORT], texts=TEXTS)
    assert seen["replies"] == seen["answers"] == [PLANS, SUPPORT]
    assert (seen["verdict"], seen["trust_score"], seen["is_trusted"]) == ("supported", 1.0, True)
    assert [(claim["reply"], claim["claim"]) for claim in seen["claims"]] == [(0, PLANS), (1, SUPPORT)]


@pytest.mark.parametrize("how", ["run", "run_async"])
def test_component_reports_removals_that_it_cannot_correct(lies: Gateway, call: Call, how: str) -> None:
    given = {"base_url": lies.base_url, "replies": [f"{PLANS} {LIE}", f"{LIE} {SUPPORT}"], "texts": TEXTS}
    seen = call("haystack", "logged", how=how, block_contradicted=True, **given)
    assert seen["verified_replies"] == [PLANS, SUPPORT]
    (told,) = seen["logged"]
    assert told.startswith("Contradicted claims are removed, not corrected: ")


@pytest.mark.parametrize("how", ["run", "run_async"])
def test_component_does_not_trust_unchecked_text(lies: Gateway, call: Call, how: str) -> None:
    given = {"base_url": lies.base_url, "replies": [f"{PLANS} {LIE} {LIE}"], "texts": TEXTS}
    seen = call("haystack", "logged", how=how, max_claims=1, **given)
    assert ([claim["verdict"] for claim in seen["claims"]], seen["claims_skipped"]) == (["supported"], 2)
    assert (seen["trust_score"], seen["is_trusted"]) == (1.0, False)


@pytest.mark.parametrize("how", ["run", "run_async", "pipeline"])
def test_component_judges_a_short_answer_with_its_question(lies: Gateway, call: Call, how: str) -> None:
    given = {"how": how, "texts": TEXTS, "base_url": lies.base_url, "block_contradicted": True}
    assert call("haystack", "answered", query=ASKED, **given) == [REPLACEMENT, "has_contradictions"]
    assert call("haystack", "answered", query=None, **given) == [YES, "has_unverifiable"]


def test_pipeline_removes_contradictions_if_configured(lies: Gateway, call: Call) -> None:
    given = {"base_url": lies.base_url, "replies": [f"{PLANS} {LIE} {SUPPORT}", LIE], "texts": TEXTS}
    seen = call("haystack", "ask", block_contradicted=True, replacement=ABSTENTION, **given)
    assert seen["replies"] == seen["answers"] == [f"{PLANS} {SUPPORT}", ABSTENTION]
    assert seen["meta"] == ["says", "says"]
    assert (seen["verdict"], seen["trust_score"], seen["is_trusted"]) == ("has_contradictions", 0.5, False)
    seen = call("haystack", "ask", **given)
    assert seen["replies"] == given["replies"]
    assert seen["is_trusted"] is False
    assert [claim["verdict"] for claim in seen["claims"]] == ["supported", "contradicted", "supported", "contradicted"]


@pytest.mark.parametrize("said", [f"{PLANS} {LIE}", LIE])
def test_changed_reply_has_nothing_else_of_the_model(lies: Gateway, call: Call, said: str) -> None:
    given = {"base_url": lies.base_url, "texts": TEXTS, "block_contradicted": True, "replacement": ABSTENTION}
    assert call("haystack", "message", text=PLANS, **given)["same"] is True
    seen = call("haystack", "message", text=said, **given)
    assert "boat" not in json.dumps(seen)
    assert seen["content"] == [{"text": PLANS if PLANS in said else ABSTENTION}]
    assert seen["meta"] == {"model": "says", "index": 0}


def test_pipeline_replaces_a_reply_that_a_rule_withholds(lies: Gateway, call: Call) -> None:
    given = {"base_url": lies.base_url, "replies": [f"{PLANS} The moon is blue. {LIE}", PLANS], "texts": TEXTS}
    options = {"unverifiable_action": "strip", "contradiction_action": "flag"}
    for block_contradicted in (False, True):
        seen = call("haystack", "ask", block_contradicted=block_contradicted, options=options, **given)
        assert (seen["replies"][0], seen["replies"][1]) == (REPLACEMENT, PLANS)


@pytest.mark.parametrize("how", ["again", "async"])
def test_pipeline_restored_from_yaml_or_run_concurrently_does_the_same(lies: Gateway, call: Call, how: str) -> None:
    options = {"max_claims": 3, "block_contradicted": True, "replacement": ABSTENTION, "trust_threshold": 0.5}
    given = {"base_url": lies.base_url, "replies": [f"{PLANS} {LIE}", SUPPORT], "texts": TEXTS, **options}
    seen, plainly = call("haystack", "ask", how=how, **given), call("haystack", "ask", **given)
    assert seen["replies"] == [PLANS, SUPPORT]
    assert {**seen, "yaml": None} == {**plainly, "yaml": None}
    yaml, again = seen["yaml"]
    assert sorted(yaml.splitlines()) == sorted(again.splitlines())
    assert "groundlane.integrations.haystack.GroundednessChecker" in yaml
    assert "GROUNDLANE_API_KEY" in yaml, "the name of the variable, never its value"


def test_every_document_counts(lies: Gateway, call: Call) -> None:
    texts = [f"Filler {number}. " * 200 for number in range(20)] + [PLANS]
    seen = call("haystack", "plain", base_url=lies.base_url, replies=[PLANS], texts=texts)
    assert (seen["verified_replies"], seen["verdict"]) == ([PLANS], "supported")
    assert seen["claims"][0]["evidence"] == PLANS, "the evidence lies beyond every truncation"


def test_pipeline_without_a_gateway_fails_or_trusts_nothing(call: Call) -> None:
    given = {"base_url": AWAY, "replies": [PLANS], "texts": TEXTS, "timeout": 1.0}
    assert call("haystack", "ask", **given) == {"error": "GatewayUnreachableError"}
    seen = call("haystack", "ask", raise_on_failure=False, **given)
    assert (seen["replies"], seen["verdict"], seen["is_trusted"], seen["trust_score"]) == (
        [PLANS],
        "not_checked",
        False,
        None,
    )


def test_claim_beyond_the_limit_is_not_judged(lies: Gateway, call: Call) -> None:
    given = {"base_url": lies.base_url, "replies": [f"{PLANS} {SUPPORT} {LIE}"], "texts": TEXTS}
    assert len(call("haystack", "plain", max_claims=2, **given)["claims"]) == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_claims": 0}, "max_claims"),
        ({"trust_threshold": 2}, "trust_threshold"),
        ({"policy": "p", "max_claims": 3}, "policy"),
    ],
)
def test_bad_argument_is_named(call: Call, options: dict[str, Any], named: str) -> None:
    assert named in call("haystack", "bad", **options)


# LlamaIndex


def test_engine_removes_nodes_rejected_by_a_policy(gateway: Gateway, call: Call) -> None:
    agent = gateway.agent(retrieval={"min_relevance_score": 0.5, "action_on_low_relevance": "drop"})
    given = [
        {"text": PLANS, "score": 0.9, "metadata": {"source": "a.md", "age_days": 3}},
        {"text": "Irrelevant.", "score": 0.1, "metadata": {"age_days": 3}},
        {"text": "Old.", "score": 0.9, "metadata": {"age_days": 400}},
    ]
    seen = call("llamaindex", "retrieve", base_url=gateway.base_url, agent=agent, given=given)
    assert seen == {"texts": [PLANS]}
    raised = call("llamaindex", "retrieve", base_url=gateway.base_url, agent=agent, given=given, on_violation="raise")
    assert (raised["error"], raised["param"]) == ("PolicyViolationError", "documents[1]")


@pytest.mark.parametrize("how", ["query", "aquery", "stream", "astream"])
def test_engine_never_shows_a_contradiction(lies: Gateway, call: Call, how: str) -> None:
    given = {"base_url": lies.base_url, "given": [{"text": text, "score": 0.8} for text in TEXTS], "how": how}
    good = call("llamaindex", "checked", text=f"{PLANS} {SUPPORT}", **given)
    assert good["pieces"] == ([f"{PLANS} ", SUPPORT] if "stream" in how else [f"{PLANS} {SUPPORT}"])
    assert (good["verdict"], good["blocked"], good["sources"]) == ("supported", False, 2)
    bad = call("llamaindex", "checked", text=f"{PLANS} {LIE} {SUPPORT}", replacement=ABSTENTION, **given)
    assert "".join(bad["pieces"]) == (f"{PLANS} {ABSTENTION}" if "stream" in how else ABSTENTION)
    assert (bad["verdict"], bad["blocked"]) == ("has_contradictions", True)
    raised = call("llamaindex", "checked", text=LIE, replacement=None, **given)
    assert raised == {"ungrounded": "has_contradictions"}


@pytest.mark.parametrize("how", ["query", "aquery", "stream", "astream"])
def test_engine_judges_a_short_answer_with_its_question(lies: Gateway, call: Call, how: str) -> None:
    given = {"base_url": lies.base_url, "given": [{"text": text} for text in TEXTS], "how": how, "text": YES}
    bad = call("llamaindex", "checked", query=ASKED, replacement=ABSTENTION, **given)
    assert (bad["pieces"], bad["verdict"]) == ([ABSTENTION], "has_contradictions")
    unknown = call("llamaindex", "checked", **given)
    assert (unknown["pieces"], unknown["verdict"]) == ([YES], "has_unverifiable")


@pytest.mark.parametrize(
    ("begun", "rest", "pieces", "unread"),
    [
        (PLANS[:8], [PLANS[8:], " ", SUPPORT], [f"{PLANS} ", SUPPORT], []),
        (f"{PLANS} ", ["", SUPPORT], [f"{PLANS} ", SUPPORT], []),
        (f"{LIE} ", [SUPPORT, PLANS], [ABSTENTION], [SUPPORT, PLANS]),
        ("", [f"{LIE} ", SUPPORT], [ABSTENTION], [SUPPORT]),
    ],
)
def test_stream_that_was_read_in_part_ends_at_a_contradiction(
    lies: Gateway, call: Call, begun: str, rest: list[str], pieces: list[str], unread: list[str]
) -> None:
    given = {"base_url": lies.base_url, "texts": TEXTS, "replacement": ABSTENTION}
    assert call("llamaindex", "delivered", begun=begun, rest=rest, **given) == [pieces, unread]


@pytest.mark.parametrize("how", ["whole", "streamed", "read"])
def test_blocked_response_keeps_only_the_metadata_of_its_nodes(lies: Gateway, call: Call, how: str) -> None:
    nodes = [{"text": text, "metadata": {"source": "a.md"}} for text in TEXTS]
    given = {"base_url": lies.base_url, "given": nodes, "how": how, "replacement": ABSTENTION}
    known = {"n0": {"source": "a.md"}}
    good = call("llamaindex", "described", text=PLANS, **given)
    assert (good["text"], good["metadata"]) == (PLANS, {**known, "selector_result": PLANS})
    bad = call("llamaindex", "described", text=LIE, **given)
    assert (bad["text"], bad["metadata"]) == (ABSTENTION, known)
    assert "selector_result" not in bad["before"]


@pytest.mark.parametrize("how", ["response", "async", "contexts"])
def test_evaluator_passes_supported_and_fails_unsupported_text(lies: Gateway, call: Call, how: str) -> None:
    given = [{"text": text, "score": 0.8} for text in TEXTS]
    good = call("llamaindex", "evaluate", base_url=lies.base_url, text=PLANS, given=given, how=how)
    assert (good["passing"], good["score"], good["feedback"]) == (True, 1.0, "1/1 claims supported")
    bad = call("llamaindex", "evaluate", base_url=lies.base_url, text=f"{PLANS} {LIE}", given=given, how=how)
    assert (bad["passing"], bad["score"]) == (False, 0.5)
    assert f"contradicted: {LIE}" in bad["feedback"]
    assert bad["contexts"] == TEXTS


@pytest.mark.parametrize("how", ["response", "async", "contexts"])
def test_evaluator_judges_a_short_answer_with_its_question(lies: Gateway, call: Call, how: str) -> None:
    given = {"base_url": lies.base_url, "text": YES, "given": [{"text": text} for text in TEXTS], "how": how}
    assert f"contradicted: {ASKED} {YES}" in call("llamaindex", "evaluate", query=ASKED, **given)["feedback"]
    assert f"unverifiable: {YES}" in call("llamaindex", "evaluate", query=None, **given)["feedback"]


def test_evaluator_without_a_gateway_raises_or_gives_no_result(call: Call) -> None:
    given = {"base_url": AWAY, "text": PLANS, "given": [{"text": PLANS}], "how": "response", "max_retries": 0}
    assert call("llamaindex", "evaluate", **given) == {"error": "GatewayUnreachableError"}
    seen = call("llamaindex", "evaluate", on_error="open", **given)
    assert (seen["passing"], seen["score"], seen["invalid_result"]) == (None, None, True)
    assert AWAY in seen["invalid_reason"]


# Guardrails AI


def test_validator_fails_contradictions(lies: Gateway, call: Call) -> None:
    text = f"{PLANS} {LIE} {SUPPORT}"
    given = {"base_url": lies.base_url, "documents": [{"text": PLANS, "source": "a.md"}, SUPPORT]}
    assert call("guardrails", "validate", text=PLANS, **given)["passed"] is True
    failed = call("guardrails", "validate", text=text, **given)
    assert (failed["passed"], failed["why"]) == (
        False,
        "Not grounded in the documents: 1 of 3 claims contradicted.",
    )
    assert failed["spans"] == [[len(PLANS) + 1, len(PLANS) + 1 + len(LIE)]]
    assert call("guardrails", "validate", text=text, on_fail="fix", **given)["output"] == f"{PLANS} {SUPPORT}"
    assert "contradicted" in call("guardrails", "validate", text=text, on_fail="exception", **given)["exception"]


@pytest.mark.parametrize(("question", "passed"), [(ASKED, False), (None, True), ("", True), ([ASKED], True)])
def test_validator_judges_a_short_answer_with_its_question(
    lies: Gateway, call: Call, question: Any, passed: bool
) -> None:
    given = {"base_url": lies.base_url, "documents": TEXTS, "question": question}
    assert call("guardrails", "validate", text=YES, **given)["passed"] is passed


def test_only_the_first_part_of_a_validated_stream_answers_the_question(lies: Gateway, call: Call) -> None:
    given = {"base_url": lies.base_url, "documents": TEXTS, "question": ASKED, "replacement": "Blocked."}
    first = call("guardrails", "stream", text=f"{YES} {PLANS} {SUPPORT}", **given)
    assert "Blocked." in "".join(filter(None, first))
    later = call("guardrails", "stream", text=f"{PLANS} {SUPPORT} Is it cheap? {YES} {PLANS}", **given)
    assert "Blocked." not in "".join(filter(None, later))
    assert YES in "".join(filter(None, later))
    for text in (f"{YES} {PLANS}", f"{PLANS} {YES}"):
        whole = call("guardrails", "stream", text=text, block_on="ungrounded", **given)
        assert YES not in "".join(filter(None, whole))


def test_validator_never_delivers_a_streamed_contradiction(lies: Gateway, call: Call) -> None:
    text = f"{PLANS} {LIE} {SUPPORT}"
    pieces = call("guardrails", "stream", base_url=lies.base_url, text=text, documents=TEXTS)
    said = "".join(piece for piece in pieces if piece)
    assert "boat" not in said
    assert (PLANS in said, SUPPORT in said) == (True, True)


@pytest.mark.parametrize(
    ("rules", "more"),
    [
        ({"max_unsupported_claims": 0, "action_on_violation": "block", "min_grounding_score": 0}, "The moon is blue."),
        ({"unjudged_action": "block"}, "\n```\nrm -rf /\n```\n"),
        ({"unjudged_action": "strip"}, "\n```\nrm -rf /\n```\n"),
        ({"unverifiable_action": "strip"}, "The moon is blue."),
    ],
)
def test_validator_repairs_nothing_that_a_rule_withholds(
    lies: Gateway, call: Call, rules: dict[str, Any], more: str
) -> None:
    policy = lies.policy("grounding", {"min_citations": 0, **rules}, scope={"agents": ["nobody"]})
    given = {"base_url": lies.base_url, "documents": TEXTS, "policy": policy["name"], "replacement": ABSTENTION}
    for text in (f"{PLANS} {more} {SUPPORT}", f"{PLANS} {more} {LIE}"):
        assert call("guardrails", "validate", text=text, on_fail="fix", **given)["output"] == ABSTENTION
        assert "".join(filter(None, call("guardrails", "stream", text=text, **given))) == ABSTENTION
    assert (
        "".join(filter(None, call("guardrails", "stream", text=f"{PLANS} {SUPPORT}", **given))) == f"{PLANS} {SUPPORT}"
    )


# Without a gateway

DOSE = "Adults take one tablet twice a day. Do not take more than 4 tablets in 24 hours."
OVERDOSE = "Adults take one tablet twice a day. Do not take more than 8 tablets in 24 hours."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "function", "given", "find"),
    [
        ("langchain", "ask", {"mode": "astream", "answer": OVERDOSE, "texts": [DOSE]}, "blocked"),
        ("llamaindex", "checked", {"how": "stream", "text": OVERDOSE, "given": [{"text": DOSE}]}, "blocked"),
        ("haystack", "ask", {"how": "async", "replies": [OVERDOSE], "texts": [DOSE]}, "verdict"),
        ("guardrails", "validate", {"text": OVERDOSE, "documents": [DOSE]}, "passed"),
    ],
)
def test_in_process_judge_needs_no_gateway(
    call: Call, library: str, function: str, given: dict[str, Any], find: str
) -> None:
    """With the embedded judge, if the gateway's package is installed beside the library."""
    if python_with("onnxruntime") != python_with(PACKAGES[library]):
        pytest.skip("needs the package groundlane beside the client libraries")
    seen = call(library, function, in_process=True, **given)
    assert seen[find] == {"blocked": True, "verdict": "has_contradictions", "passed": False}[find]


# LiteLLM, whose proxy has separate tests


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"event_hook": "post_call"}, "mode must include pre_call"),
        ({"event_hook": ["pre_call"]}, "mode must include pre_call"),
        ({"event_hook": ["pre_call", "post_call"], "on_block": "shout"}, "on_block must be replace or error"),
        ({"event_hook": ["pre_call", "post_call"], "block_on": "mood"}, "block_on must be one of"),
        ({"event_hook": ["pre_call", "post_call"], "in_process": True, "agent": "a"}, "agent: "),
        ({"event_hook": ["pre_call", "post_call"]}, ""),
    ],
)
def test_ineffective_guardrail_is_rejected(call: Call, options: dict[str, Any], said: str) -> None:
    found = call("litellm", "refused", **options)
    assert found.startswith(said) if said else not found


@pytest.mark.parametrize("finish", [None, "stop"])
def test_each_choice_of_a_stream_gets_its_own_verdict(lies: Gateway, call: Call, finish: str | None) -> None:
    """Also if the upstream gives no finish reason."""
    tool = {"id": "call-1", "function": {"name": "send", "arguments": "{}"}, "index": 0}
    pairs = [(PLANS, PLANS), (" ", " "), (SUPPORT, LIE)]
    said = [[{"index": index, "delta": {"content": text}} for index, text in enumerate(pair)] for pair in pairs]
    calls = [{"index": index, "delta": {"tool_calls": [dict(tool)]}} for index in (0, 1)]
    end: list[Any] = [{"index": index, "delta": {}, "finish_reason": finish} for index in (0, 1)]
    given = {"base_url": lies.base_url, "chunks": [calls, *said, end], "documents": TEXTS, "replacement": ABSTENTION}
    seen = call("litellm", "stream", **given)
    for index, text in enumerate([f"{PLANS} {SUPPORT}", f"{PLANS} {ABSTENTION}"]):
        mine = [choice for choice in seen if choice["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == text
        assert sum(len(choice["delta"].get("tool_calls", ())) for choice in mine) == (0 if index else 1)
        finishes = [choice["finish_reason"] for choice in mine if "finish_reason" in choice]
        assert finishes == (["content_filter"] if index else [finish] * (finish is not None))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("body", "blocked"),
    [
        ({"messages": [{"role": "user", "content": ASKED}]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ASKED}]}]}, True),
        ({"messages": [{"role": "user", "content": ASKED}, {"role": "tool", "content": "9"}]}, False),
        ({"messages": "Does the plan include a boat?"}, False),
        ({}, False),
    ],
)
def test_guardrail_judges_a_short_answer_with_its_question(
    lies: Gateway, call: Call, body: dict[str, Any], blocked: bool, stream: bool
) -> None:
    given = {"base_url": lies.base_url, "documents": TEXTS, "replacement": ABSTENTION, "stream": stream}
    assert call("litellm", "answered", body=body, **given) == (ABSTENTION if blocked else YES)
    strict = call(
        "litellm", "answered", body=body, block_on="ungrounded", options={"max_unverifiable_ratio": 0}, **given
    )
    assert strict == ABSTENTION


# The fields of a library's documents that are sent


@pytest.mark.parametrize(
    ("library", "documents"),
    [
        (
            "langchain",
            [
                {"id": "7", "text": "Known.", "source": "a.md", "relevance_score": 0.5, "updated_at": "2024-05-01"},
                {"text": "A distance."},
                {"text": "Plain."},
            ],
        ),
        (
            "haystack",
            [
                {"id": "7", "text": "Known.", "source": "a.md", "relevance_score": 0.5, "age_days": 3.0},
                {"id": "8", "text": "BM25."},
            ],
        ),
        (
            "llamaindex",
            [
                {"id": "n0", "text": "Known.", "source": "a.md", "relevance_score": 0.5, "updated_at": "2024-05-01"},
                {"id": "n1", "text": "A distance."},
            ],
        ),
    ],
)
def test_documents_carry_source_age_and_relevance(call: Call, library: str, documents: list[dict[str, Any]]) -> None:
    assert call(library, "documents") == documents
