"""Sums up LLM judge usage for replies and the event log."""

from collections.abc import Sequence
from typing import Any

from judges.llm_types import LlmCall

_MS_DIGITS = 1
_USD_DIGITS = 8


def llm_usage(calls: Sequence[LlmCall]) -> dict[str, Any]:
    """Sum up LLM calls: their number, models, tokens, cost and duration. ``cost_usd`` is None if a model's price is
    unknown."""
    costs = [call.cost_usd for call in calls]
    known = [cost for cost in costs if cost is not None]
    return {
        "models": sorted({call.model for call in calls}),
        "calls": len(calls),
        "failed": sum(call.outcome not in ("ok", "unreadable") for call in calls),
        "prompt_tokens": sum(call.prompt_tokens for call in calls),
        "completion_tokens": sum(call.completion_tokens for call in calls),
        "cost_usd": round(sum(known), _USD_DIGITS) if len(known) == len(costs) else None,
        "latency_ms": round(sum(call.latency_ms for call in calls), _MS_DIGITS),
    }
