"""Span attributes for a request, named after the GenAI semantic conventions where possible. The attributes contain no
prompts, replies or documents."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Span, Status, StatusCode

from app.events.records import RequestRow

_OPERATIONS = {"chat.completions": "chat", "responses": "chat", "messages": "chat", "completions": "text_completion"}
_FAILED = frozenset({"failed", "upstream_error", "incomplete"})


def operation(row: RequestRow) -> str:
    return _OPERATIONS.get(row.api, row.api)


def request_attributes(row: RequestRow) -> dict[str, Any]:
    return without_none(
        {
            "gen_ai.agent.name": row.agent,
            "gen_ai.request.model": row.model,
            "gen_ai.request.stream": row.stream,
            "groundlane.request_id": row.request_id,
            "groundlane.run_id": row.run_id,
            "groundlane.api": row.api,
            "groundlane.status": row.status,
            "groundlane.action": row.action,
            "groundlane.verdict": row.verdict,
            "groundlane.trust_score": row.trust_score,
        }
    )


def model_attributes(row: RequestRow) -> dict[str, Any]:
    """Return the attributes defined by the GenAI semantic conventions."""
    return without_none(
        {
            "gen_ai.operation.name": operation(row),
            "gen_ai.provider.name": "anthropic" if row.api == "messages" else "openai",
            "gen_ai.request.model": row.model,
            "gen_ai.request.stream": row.stream,
            "gen_ai.response.model": row.resolved_model,
            "gen_ai.response.finish_reasons": [row.finish_reason] if row.finish_reason else None,
            "gen_ai.usage.input_tokens": row.prompt_tokens,
            "gen_ai.usage.output_tokens": row.completion_tokens,
        }
    )


def note_failure(span: Span, row: RequestRow) -> None:
    if row.status in _FAILED:
        span.set_attribute("error.type", row.status)
        span.set_status(Status(StatusCode.ERROR, row.error))


def without_none(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}
