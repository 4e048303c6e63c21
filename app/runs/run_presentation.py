"""The JSON representation of runs and steps for clients."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.runs.reported_names import shown
from app.runs.repository import RunRow, action_of
from app.runs.run_service import RunView, StepResult
from app.runs.steps import RunRecord, RunStep, StepKind
from judges.types import Chunk
from policies.evaluation import strictest
from policies.types import Action, Policy

_RATIO_DIGITS = 4


def step_to_dict(result: StepResult) -> dict[str, Any]:
    """Build the response to a call: its decisions and the state of the run."""
    outcome = result.outcome
    answer = {
        "run_id": result.run.run_id,
        "status": result.run.status,
        "action": outcome.action.value,
        "decisions": outcome.decisions,
        "blocked_by": outcome.blocked_by,
        "abstention_response": outcome.abstention_response,
        "step": result.step,
        "recorded": dict(result.run.counts),
        "request_id": result.request_id,
    }
    if result.step == 0:
        answer |= {"agent": result.run.agent, "model": result.run.model, "policies": _policies(result.policies)}
    return answer


def run_row_to_dict(run: RunRow) -> dict[str, Any]:
    """Build the JSON for a run in a list."""
    return {
        "run_id": run.run_id,
        "agent": run.agent,
        "model": run.model,
        "key_prefix": run.key_prefix,
        "status": run.status,
        "action": run.action,
        "step": run.version,
        "recorded": dict(run.counts),
        "created_at": run.created_at,
        "updated_at": run.updated_at,
    }


def run_trace_to_dict(view: RunView) -> dict[str, Any]:
    """Build the JSON for a run that an operator sees, which includes all steps."""
    chunks = RunRecord.of(view.steps).chunks
    steps = [
        {
            "step": step.seq,
            "ts": step.ts,
            "kind": step.kind,
            "request_id": step.data.get("request_id"),
            "action": action_of(step.decisions),
            "decisions": list(step.decisions),
            "data": _data(step, chunks),
        }
        for step in view.steps
    ]
    return {**run_to_dict(view), "key_prefix": view.run.key_prefix, "steps": steps}


def _data(step: RunStep, chunks: Sequence[Chunk]) -> dict[str, Any]:
    data = {name: value for name, value in step.data.items() if name not in ("request_id", "call_digest")}
    return {**data, "citations": shown(data["citations"], chunks)} if "citations" in data else data


def run_to_dict(view: RunView) -> dict[str, Any]:
    """Build the JSON for a run, with all its records and all decisions so far."""
    record = RunRecord.of(view.steps)
    decisions = [_decision(decision, step) for step in view.steps for decision in step.decisions]
    end = next((step for step in view.steps if step.kind == StepKind.COMPLETE), None)
    return {
        "run_id": view.run.run_id,
        "agent": view.run.agent,
        "model": view.run.model,
        "status": view.run.status,
        "action": strictest([Action(decision["action"]) for decision in decisions]).value,
        "step": view.run.version,
        "created_at": view.run.created_at,
        "updated_at": view.run.updated_at,
        "policies": _policies(view.policies),
        "recorded": dict(view.run.counts),
        "documents": [_document(chunk) for chunk in record.chunks],
        "grounding_scores": list(record.scores),
        "citations": list(dict.fromkeys(shown(record.cited, record.chunks))),
        "unsupported_claims": list(record.unsupported),
        "output_confidence": record.output_confidence,
        "trust_score": _ratio(record.trust_score),
        "requests": list(record.requests),
        "result": None if end is None else end.data["result"],
        "decisions": decisions,
    }


def _policies(policies: Sequence[Policy]) -> list[dict[str, Any]]:
    return [
        {"id": policy.id, "name": policy.name, "category": policy.category, "version": policy.version}
        for policy in policies
    ]


def _document(chunk: Chunk) -> dict[str, Any]:
    fields = ("id", "source", "collection", "relevance_score", "age_days", "title", "url")
    return {name: getattr(chunk, name) for name in fields}


def _decision(decision: Mapping[str, Any], step: RunStep) -> dict[str, Any]:
    return {**decision, "step": step.seq, "ts": step.ts, "request_id": step.data.get("request_id")}


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, _RATIO_DIGITS)
