"""The original proposal "GroundednessChecker", a runtime guardrail for pipelines, with its own example."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judges.types import Label
from tests.support.gateways.live_gateway import Gateway
from tests.system.clients.conftest import worker
from tests.system.policies.asking import ask
from tests.system.seeds.llm import Llm, gateway_with

__all__ = ["worker"]

both = pytest.mark.parametrize("stream", [False, True])
REPLY = "Revenue was $2.4B in Q3."
CONTEXT = "Revenue was $2.1B in Q3."


def correcting(prompt: str) -> str:
    """A model that corrects revenue according to its source."""
    if "verdict" not in prompt:
        return json.dumps({"claims": re.findall(r"Revenue [^\n]*\.", prompt)[:1]})
    return json.dumps(
        {
            "reasoning": "Context says $2.1B",
            "verdict": "contradicted",
            "confidence": 0.95,
            "correction": CONTEXT,
        }
    )


@both
def test_contradicted_claim_is_replaced_by_its_correction(tmp_path: Path, stream: bool) -> None:
    """The output of the example, in the reply of any client."""
    with gateway_with(Llm(correcting), tmp_path, real_judge=True) as gateway:
        agent = gateway.agent(grounding={"contradiction_action": "correct", "min_citations": 0})
        found = ask(gateway, agent, REPLY, stream=stream, documents=[{"id": "q3", "text": CONTEXT}])
    assert found.text == "Revenue was [CORRECTED: $2.1B] in Q3."
    assert (found.grounding["verdict"], found.grounding["is_trusted"]) == ("has_contradictions", False)
    (claim,) = found.grounding["claims"]
    assert (claim["verdict"], claim["correction"]) == ("contradicted", CONTEXT)


def call(worker: Callable[[str, str], Any], function: str, **given: Any) -> Any:
    from tests.system.clients.registry import missing_module
    from tests.system.clients.workers import python_with

    python = python_with("haystack")
    if python is None:
        pytest.skip(str(missing_module("haystack")))
    return worker(python, "haystack").call("tests.system.integrations.drivers.haystack", function, **given)


@pytest.mark.clients
def test_component_reports_each_claim(gateway: Gateway, worker: Callable[[str, str], Any]) -> None:
    """``verified_replies``, ``trust_score``, ``verdict``, ``claims`` and ``is_trusted``, over several replies."""
    gateway.judge.labels = {"$2.4B": Label.CONTRADICTED}
    seen = call(worker, "ask", base_url=gateway.base_url, replies=[REPLY, CONTEXT], texts=[CONTEXT])
    assert seen["replies"] == [REPLY, CONTEXT]
    assert (seen["trust_score"], seen["verdict"], seen["is_trusted"]) == (0.5, "has_contradictions", False)
    assert [claim["verdict"] for claim in seen["claims"]] == ["contradicted", "supported"]


@pytest.mark.clients
@pytest.mark.parametrize("texts", [[], [""]])
def test_component_without_documents(gateway: Gateway, worker: Callable[[str, str], Any], texts: list[str]) -> None:
    seen = call(worker, "plain", base_url=gateway.base_url, replies=[REPLY], texts=texts)
    assert seen["is_trusted"] is False


# Positional context


def test_most_relevant_documents_are_first_and_last(tmp_path: Path) -> None:
    """Nothing is cut off: every document is in the prompt, the best first and the second best last."""
    llm = Llm(lambda prompt: '{"reasoning": "", "score": 1.0}')
    scores = [0.5, 0.9, 0.3, 0.8]
    documents = [
        {"id": f"d{i}", "text": f"Fact {i}. " + CONTEXT * 40, "relevance_score": s} for i, s in enumerate(scores)
    ]
    with gateway_with(llm, tmp_path) as gateway:
        rules = {"llm_grounding_check": True, "llm_grounding_model": "referee/gpt-4o-mini", "min_citations": 0}
        ask(gateway, gateway.agent(grounding=rules), CONTEXT, stream=False, documents=documents)
    (prompt,) = llm.prompts
    order = [int(number) for number in re.findall(r"Fact (\d)", prompt)]
    assert (order[0], order[-1], sorted(order)) == (1, 3, [0, 1, 2, 3])
