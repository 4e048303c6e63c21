"""Calibration with the judge's, the callers' and the retrieval's scores, each separately."""

import json
from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.run_client import Run

REPLY = "Permanent staff receive 25 days of annual leave."


def calibrated(gateway: Gateway, agent: str, runs: int, **params: Any) -> dict[str, Any]:
    """The calibration of ``agent``, as soon as it has this many runs."""

    def look() -> dict[str, Any] | None:
        response = gateway.admin.get("/calibration", params={"agent": agent, **params})
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found if found["totals"]["runs"] >= runs else None

    return eventually(look, f"{runs} runs with scores")


def ask(gateway: Gateway, agent: str, run_id: str | None = None, **reported: Any) -> str:
    gateway.upstream.script(answer(REPLY, stream=False))
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "How much leave is there?"}],
        "documents": [
            {"text": REPLY, "source": "hr.pdf", "relevance_score": 0.6},
            {"text": "Bicycles may be parked.", "source": "house.pdf", "relevance_score": 0.8},
        ],
        "grounding": {"agent": agent, "run_id": run_id, "reported": reported},
    }
    with gateway.call(body) as call:
        json.loads(call.read_all())
        return call.request_id


@pytest.fixture
def agent(gateway: Gateway) -> str:
    return gateway.agent(grounding={"min_citations": 0, "min_grounding_score": 0.5, "score_source": "reported"})


def test_ten_runs_with_reported_scores_give_a_threshold(gateway: Gateway, agent: str) -> None:
    for number in range(10):
        with Run(gateway, agent) as run:
            run.grounded(grounding_scores=[0.95, 0.7 + number / 100])
            run.grounded(grounding_scores=[0.9])
            run.complete({"answer": "…"})
    found = calibrated(gateway, agent, 10, source="reported", percentile=10)
    assert (found["source"], found["runs"], found["threshold"]) == ("reported", {"good": 10, "bad": 0}, 0.7)
    average = calibrated(gateway, agent, 10, source="reported", score="average", percentile=10)
    assert average["threshold"] == pytest.approx((0.95 + 0.7 + 0.9) / 3)
    for other in ("judge", "retrieval"):
        assert calibrated(gateway, agent, 0, source=other)["totals"]["runs"] == 0


def test_each_score_source_is_separate(gateway: Gateway, agent: str) -> None:
    ask(gateway, agent, grounding_scores=[0.75, 0.85])
    found = {source: calibrated(gateway, agent, 1, source=source) for source in ("judge", "reported", "retrieval")}
    assert {source: each["threshold"] for source, each in found.items()} == {
        "judge": pytest.approx(0.97, abs=0.05),
        "reported": 0.75,
        "retrieval": 0.6,
    }
    assert gateway.admin.get("/calibration", params={"source": "astrology"}).status_code == 422


def test_requests_and_records_of_a_run_are_one_run(gateway: Gateway, agent: str) -> None:
    with Run(gateway, agent) as run:
        run.retrieved(source="faq.pdf", relevance_score=0.3)
        ask(gateway, agent, run.id, grounding_scores=[0.9])
        eventually(lambda: run.view()["requests"] or None, "request of the run")
        run.grounded(grounding_scores=[0.2])
        run.complete()
    reported = calibrated(gateway, agent, 1, source="reported")
    assert (reported["totals"]["runs"], reported["runs"]) == (1, {"good": 0, "bad": 1})
    assert calibrated(gateway, agent, 1, source="retrieval")["totals"]["runs"] == 1


def test_feedback_on_any_step_of_a_run_counts(gateway: Gateway, agent: str) -> None:
    with Run(gateway, agent) as run:
        step = run.grounded(grounding_scores=[0.9])
        run.complete()
    assert calibrated(gateway, agent, 1, source="reported")["runs"] == {"good": 1, "bad": 0}
    gateway.trace(step["request_id"])
    marked = gateway.admin.post("/feedback", json={"request_id": step["request_id"], "correct": False})
    assert marked.status_code == 201
    assert calibrated(gateway, agent, 1, source="reported")["runs"] == {"good": 0, "bad": 1}
