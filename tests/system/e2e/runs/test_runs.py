"""Properties of every run: its policies are those in force when it starts, no record is lost, and errors name the
cause."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.run_client import Body, Run, blocked

UNKNOWN = "run_" + "0" * 32
StartGateway = Callable[..., Gateway]


def error_of(run: Run, what: str, body: Any, status: int, **options: Any) -> tuple[str | None, str | None]:
    """Param and code of the error in a response."""
    error = run.tell(what, body, status=status, **options)["error"]
    assert error["type"] == "invalid_request_error"
    return error["param"], error["code"]


# Policies


def test_run_uses_the_policies_of_its_start(gateway: Gateway) -> None:
    agent = "agent-bound"
    policy = gateway.policy("retrieval", {"max_source_age_days": 30}, scope={"agents": [agent]})
    with Run(gateway, agent) as before:
        patch = {"rules": {"max_source_age_days": 365}}
        assert gateway.admin.patch(f"/policies/{policy['id']}", json=patch).json()["version"] == 2
        with Run(gateway, agent) as after:
            answers = [run.retrieved(age_days=100) for run in (before, after)]
        assert gateway.admin.delete(f"/policies/{policy['id']}").status_code == 204
        last = before.retrieved(age_days=100)
    assert [answer["action"] for answer in answers] == ["block", "allow"]
    assert [answer["decisions"][0]["policy_version"] for answer in (*answers, last)] == [1, 2, 1]
    assert [run.started["policies"][0]["version"] for run in (before, after)] == [1, 2]


def test_policy_changes_during_a_run_apply_to_later_runs(gateway: Gateway) -> None:
    with Run(gateway, "agent-late") as run:
        assert run.retrieved(age_days=400)["decisions"] == []
        policy = gateway.policy("retrieval", {"max_source_age_days": 300}, scope={"agents": ["agent-late"]})
        assert run.retrieved(age_days=400)["action"] == "block"
        assert run.retrieved(age_days=100)["action"] == "allow"
        with Run(gateway, "agent-late") as second:
            patch = {"rules": {"max_source_age_days": 30}}
            assert gateway.admin.patch(f"/policies/{policy['id']}", json=patch).status_code == 200
            answer = second.retrieved(age_days=100)
        assert [decision["policy_version"] for decision in answer["decisions"]] == [1, 2]
        assert answer["action"] == "block"


def test_policy_for_a_model_applies_to_runs_of_that_model(gateway: Gateway) -> None:
    gateway.policy("retrieval", {}, scope={"agents": ["agent-model"], "models": ["gpt-4*"]})
    with Run(gateway, "agent-model") as without, Run(gateway, "agent-model", model="gpt-4o-mini") as of_model:
        assert len(without.started["policies"]) == len(of_model.started["policies"]) == 1
        assert without.retrieved(age_days=400)["decisions"] == []
        assert of_model.retrieved(age_days=400)["action"] == "block"
        (event,) = of_model.events(1)
    assert event["model"] == "gpt-4o-mini"


def test_first_blocking_policy_is_named_and_the_strictest_action_wins(gateway: Gateway) -> None:
    scope = {"agents": ["agent-several"]}
    gateway.policy("grounding", {"min_grounding_score": 0.95}, scope=scope, priority=3)
    strict = {"action_on_violation": "block", "abstention_response": "No."}
    first = gateway.policy("grounding", {**strict, "min_grounding_score": 0.5}, scope=scope, priority=2)
    gateway.policy("grounding", {**strict, "min_grounding_score": 0.4}, scope=scope, priority=1)
    with Run(gateway, "agent-several") as run:
        answer = run.grounded(grounding_scores=[0.3])
    assert [decision["action"] for decision in answer["decisions"]] == ["warn", "block", "block"]
    assert answer["blocked_by"]["policy_id"] == first["id"]
    assert answer["abstention_response"] == "No."


def test_shadow_policy_decides_invisibly_on_a_run(gateway: Gateway) -> None:
    gateway.policy("retrieval", {}, scope={"agents": ["agent-shadow"]}, mode="shadow")
    with Run(gateway, "agent-shadow") as run:
        answer = run.retrieved(age_days=400)
        (event,) = run.events(1, shadow=True)
    assert (answer["action"], answer["decisions"]) == ("allow", [])
    assert (event["action"], event["shadow"], event["reason_code"]) == ("block", True, "RETRIEVAL_STALE_SOURCE")


# Reading


def test_run_shows_all_records_and_decisions(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval={}, grounding={"action_on_violation": "block"})
    with Run(gateway, agent) as run:
        run.retrieved(relevance_score=0.9, source="a.pdf", url="https://example.com/a", age_days=3, text="Long text.")
        run.grounded(grounding_scores=[0.4], citations=["a.pdf"], unsupported_claims=["It rains."])
        open_view = run.view()
        run.complete({"answer": "Yes."})
        view = run.view()
    assert (open_view["status"], open_view["result"], open_view["step"]) == ("open", None, 2)
    (document,) = view["documents"]
    assert document == {
        "id": "document-1",
        "source": "a.pdf",
        "collection": None,
        "relevance_score": 0.9,
        "age_days": 3,
        "title": None,
        "url": "https://example.com/a",
    }
    assert (view["status"], view["action"], view["agent"]) == ("completed", "block", agent)
    assert view["result"] == {"answer": "Yes."}
    assert view["unsupported_claims"] == ["It rains."]
    assert [(d["step"], d["phase"]) for d in view["decisions"]] == [
        (0, "before_workflow"),
        (1, "mid_execution"),
        (2, "mid_execution"),
        (3, "after_workflow"),
        (3, "after_workflow"),
    ]


def test_each_call_is_a_request_in_the_event_log(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={})) as run:
        answer = run.retrieved(age_days=400, source="old.pdf")
        trace = gateway.trace(answer["request_id"])
    assert (trace.request["api"], trace.request["run_id"]) == ("runs.retrieval", run.id)
    assert (trace.request["status"], trace.request["action"]) == ("blocked", "block")
    assert [document["source"] for document in trace.documents] == ["old.pdf"]
    assert trace.phases("retrieval") == ["mid_execution"]


def test_agent_can_be_sent_as_a_header(gateway: Gateway) -> None:
    headers = {"X-Groundlane-Agent": "agent-by-header"}
    with httpx.Client(base_url=gateway.base_url) as client:
        assert client.post("/runs", headers=headers).json()["agent"] == "agent-by-header"
        assert client.post("/runs", json={"agent": "named"}, headers=headers).json()["agent"] == "named"


# No record is lost


def test_concurrent_workers_lose_no_record(start_gateway: StartGateway) -> None:
    first = start_gateway()
    second = start_gateway(database_url=first.settings.database_url)
    with Run(first, None) as run:
        clients = [run.client, httpx.Client(base_url=second.base_url, timeout=20)]
        gate = threading.Barrier(8)

        def record(worker: int) -> list[int]:
            gate.wait(10)
            steps = []
            for number in range(6):
                body = {"citations": [f"source {worker}.{number}"], "grounding_scores": [0.9]}
                response = clients[worker % 2].post(f"/runs/{run.id}/grounding", json=body)
                response.raise_for_status()
                steps.append(response.json()["step"])
            return steps

        with ThreadPoolExecutor(8) as pool:
            steps = [step for found in pool.map(record, range(8)) for step in found]
        view = run.view()
        clients[1].close()
    assert sorted(steps) == list(range(1, 49))
    assert sorted(view["citations"]) == sorted(f"source {w}.{n}" for w in range(8) for n in range(6))
    assert view["recorded"]["grounding_scores"] == 48


def test_run_survives_a_restart(tmp_path: Path) -> None:
    first = Gateway(tmp_path).start()
    with closing(first):
        agent = first.agent(grounding={"min_citations": 2, "action_on_violation": "block"})
        with Run(first, agent) as run:
            run.grounded(citations=["a"])
    second = Gateway(tmp_path).start()
    with closing(second), httpx.Client(base_url=second.base_url) as client:
        client.post(f"/runs/{run.id}/grounding", json={"citations": ["b"]}).raise_for_status()
        end = client.post(f"/runs/{run.id}/complete", json={}).json()
    assert (end["action"], end["decisions"][0]["reason"]) == ("allow", "Grounding audit passed (2 citations)")
    assert end["decisions"][0]["policy_version"] == 1


def test_call_repeated_with_its_key_is_recorded_once(gateway: Gateway) -> None:
    key = {"Idempotency-Key": "call-1"}
    with Run(gateway, gateway.agent(retrieval={})) as run:
        answers = [run.tell("retrieval", {"age_days": 400}, headers=key) for _ in range(2)]
        run.retrieved(age_days=3)
        answers.append(run.tell("retrieval", {"age_days": 400}, headers=key))
        ends = [run.tell("complete", {}, headers={"Idempotency-Key": "end"}) for _ in range(2)]
        assert run.view()["recorded"]["documents"] == 2
    now = ("request_id", "recorded")
    first, *rest = ({name: value for name, value in answer.items() if name not in now} for answer in answers)
    assert rest == [first, first]
    assert [answer["recorded"]["documents"] for answer in answers] == [1, 1, 2]
    assert blocked(answers[2])[1] == "RETRIEVAL_STALE_SOURCE"
    assert ends[0]["decisions"] == ends[1]["decisions"]
    assert (ends[1]["status"], ends[1]["step"]) == ("completed", 3)


def test_repeated_start_returns_the_same_run(gateway: Gateway) -> None:
    key = {"Idempotency-Key": "start-1"}
    with Run(gateway, None) as other:
        answers = [other.post("/runs", {"agent": "a"}, status=201, headers=key) for _ in range(2)]
        error = other.post("/runs", {"agent": "b"}, status=409, headers=key)["error"]
    first, second = answers
    assert second == {**first, "request_id": None}
    assert first["request_id"] is not None
    assert error["param"] == "Idempotency-Key"


def test_idempotency_key_is_for_one_kind_of_call(gateway: Gateway) -> None:
    key = {"Idempotency-Key": "call-1"}
    with Run(gateway, None) as run:
        run.tell("retrieval", {"age_days": 3}, headers=key)
        assert error_of(run, "grounding", {}, 409, headers=key) == ("Idempotency-Key", None)


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("retrieval", {"source": "good.pdf"}, {"source": "bad.pdf"}),
        ("grounding", {"citations": ["a"]}, {"citations": ["b"]}),
        ("complete", {"result": "a"}, {"result": "b"}),
    ],
)
def test_idempotency_key_is_for_one_body(
    gateway: Gateway, kind: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    key = {"Idempotency-Key": "call-1"}
    with Run(gateway, None) as run:
        run.tell(kind, first, headers=key)
        assert error_of(run, kind, second, 409, headers=key) == ("Idempotency-Key", None)
        run.tell(kind, first, headers=key)


# Errors


@pytest.mark.parametrize("run_id", [UNKNOWN, "run_1", "nightly", "%00", "run_" + "A" * 32])
def test_unknown_run_is_404(gateway: Gateway, run_id: str) -> None:
    with httpx.Client(base_url=gateway.base_url) as client:
        answers = [client.get(f"/runs/{run_id}")]
        answers += [client.post(f"/runs/{run_id}/{what}", json={}) for what in ("retrieval", "grounding", "complete")]
    for answer in answers:
        assert answer.status_code == 404
        assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == ("run_id", "run_not_found")


def test_complete_run_accepts_no_more_calls(gateway: Gateway) -> None:
    with Run(gateway, None) as run:
        assert run.complete()["status"] == "completed"
        for what in ("retrieval", "grounding", "complete"):
            assert error_of(run, what, {}, 409) == ("run_id", "run_completed")


@pytest.mark.parametrize(
    ("what", "body", "param"),
    [
        ("retrieval", {"relevance_score": 1.2}, "relevance_score"),
        ("retrieval", {"relevance_score": "0.9"}, "relevance_score"),
        ("retrieval", {"age_days": -1}, "age_days"),
        ("retrieval", {"source": 7}, "source"),
        ("retrieval", {"metadata": {"collection": ["a"]}}, "metadata.collection"),
        ("retrieval", {"source": "x" * 3000}, "source"),
        ("grounding", {"grounding_scores": [0.9, "x"]}, "grounding_scores[1]"),
        ("grounding", {"grounding_scores": [0.9, 1.1]}, "grounding_scores[1]"),
        ("grounding", {"citations": "a.pdf"}, "citations"),
        ("grounding", {"unsupported_claims": 2}, "unsupported_claims"),
        ("grounding", {"output_confidence": 2}, "output_confidence"),
        ("grounding", {"confidence": 0.5}, "confidence"),
        ("complete", {"answer": "x"}, "answer"),
        ("complete", {"result": {"count": [10**30]}}, "result"),
        ("complete", [], None),
    ],
)
def test_invalid_field_is_named_and_nothing_is_recorded(
    gateway: Gateway, what: str, body: Any, param: str | None
) -> None:
    with Run(gateway, None) as run:
        assert error_of(run, what, body, 400)[0] == param
        view = run.view()
    assert (view["step"], view["status"]) == (0, "open")


@pytest.mark.parametrize("body", [{"agent": ""}, {"agent": 7}, {"agent": "x" * 201}, {"agents": ["a"]}])
def test_invalid_start_is_rejected(gateway: Gateway, body: Body) -> None:
    with httpx.Client(base_url=gateway.base_url) as client:
        answer = client.post("/runs", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(body)))


def test_run_size_is_limited(start_gateway: StartGateway) -> None:
    gateway = start_gateway(max_documents=2)
    with Run(gateway, None) as run:
        for _ in range(2):
            run.retrieved(age_days=3)
        assert error_of(run, "retrieval", {"age_days": 3}, 400) == ("run_id", "run_full")
        assert error_of(run, "grounding", {"citations": ["x" * 1_100_000]}, 413)[0] == "body"
        for _ in range(5):
            run.tell("grounding", {"citations": ["x" * 900_000]})
        assert error_of(run, "grounding", {}, 400) == ("run_id", "run_full")
        assert run.complete()["status"] == "completed"


@pytest.mark.parametrize(("method", "path"), [("GET", "/runs"), ("DELETE", f"/runs/{UNKNOWN}"), ("PUT", "/runs/a/b")])
def test_paths_below_runs_are_not_forwarded(gateway: Gateway, method: str, path: str) -> None:
    seen = len(gateway.upstream.exchanges)
    with httpx.Client(base_url=gateway.base_url) as client:
        assert client.request(method, path).status_code == 404
    assert len(gateway.upstream.exchanges) == seen


# Texts and keys


@pytest.mark.parametrize(("store_text", "kept"), [("full", "It rains."), ("hash", "sha256:"), ("none", "")])
def test_texts_of_a_complete_run_are_stored_as_the_settings_say(
    start_gateway: StartGateway, store_text: str, kept: str
) -> None:
    gateway = start_gateway(store_text=store_text)
    rules = {"max_unsupported_claims": 0, "min_citations": 0}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        run.grounded(unsupported_claims=["It rains."])
        assert run.view()["unsupported_claims"] == ["It rains."]
        end = run.complete("Take an umbrella: It rains.")
        view = run.view()
        (event,) = run.events(1, action="warn")
    assert end["decisions"][0]["metadata"]["claims"] == ["It rains."]
    (text,) = view["unsupported_claims"]
    assert text.startswith(kept)
    shown = "It rains." if store_text == "full" else "…"
    assert view["decisions"][-1]["metadata"]["claims"] == event["metadata"]["claims"] == [shown]
    database = b"".join(path.read_bytes() for path in gateway.database.parent.glob("groundlane.db*"))
    assert ("umbrella" in str(view["result"])) is (store_text == "full")
    assert (b"umbrella" in database) is (store_text == "full")


def test_run_belongs_to_the_key_that_started_it(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    made = [gateway.admin.post("/keys", json={"name": name}).json()["key"] for name in ("one", "two")]
    one, two = ({"Authorization": f"Bearer {key}"} for key in made)
    gateway.policy("retrieval", {}, scope={"keys": ["one"]})
    with httpx.Client(base_url=gateway.base_url) as client:
        started = client.post("/runs", headers=one).json()
        path = f"/runs/{started['run_id']}"
        statuses = [client.get(path, headers=headers).status_code for headers in (one, two, {})]
        blocks = client.post(f"{path}/retrieval", json={"age_days": 400}, headers=one).json()["action"]
        other = client.post("/runs", headers=two).json()
    assert statuses == [200, 404, 404]
    assert (blocks, len(started["policies"]), len(other["policies"])) == ("block", 1, 0)


def test_key_for_certain_collections_can_record_only_their_documents(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    key = gateway.admin.post("/keys", json={"name": "kb", "collections": ["kb*"]}).json()["key"]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=gateway.base_url, headers=headers) as client:
        path = f"/runs/{client.post('/runs').json()['run_id']}/retrieval"
        answers = [client.post(path, json={"collection": name}) for name in ("kb-1", "internal-hr")]
    assert [answer.status_code for answer in answers] == [200, 403]
    assert answers[1].json()["error"]["code"] == "collection_not_allowed"


def test_reports_to_runs_are_not_replayed_as_replies(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval={})
    with Run(gateway, agent) as run:
        run.retrieved(age_days=3)
        run.complete()
        run.events(2)
    candidate = {"name": "stricter", "category": "retrieval", "rules": {"min_chunks": 9}}
    answer = gateway.admin.post("/policies/simulate", json={"policy": candidate, "requests": {"agent": agent}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["requests"] == 0
