"""Leaves out blocks that a policy drops from a message: thinking, or tool calls and their results."""

from collections.abc import Mapping
from typing import Any

from app.protocols.anthropic_messages.event_types import block_of, delta_of, index_of
from app.protocols.common.known_fields import REASONING, TOOL_CALLS, KnownFields

_THINKING = frozenset({"thinking", "redacted_thinking"})


class DroppedBlocks:
    """Filters the events of one message. The remaining blocks are renumbered without gaps."""

    def __init__(self, fields: KnownFields) -> None:
        self._fields = fields
        self._dropped: set[int] = set()

    def kept(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return the event as if the upstream hadn't sent the dropped blocks, or None if it belongs to one of them."""
        kind = event.get("type")
        if kind == "content_block_start":
            return self._start(event)
        if kind in ("content_block_delta", "content_block_stop"):
            if index_of(event) not in self._dropped:
                return self._numbered(event)
            self._count(delta_of(event))
            return None
        if TOOL_CALLS in self._fields.drops and kind == "message_delta":
            return _without_call(event, "delta")
        return _without_call(event, "message") if TOOL_CALLS in self._fields.drops else event

    def _start(self, event: dict[str, Any]) -> dict[str, Any] | None:
        block, index = block_of(event), index_of(event)
        kind = str(block.get("type"))
        if _kind_of(kind) not in self._fields.drops:
            self._dropped.discard(index)
            return self._numbered(event)
        self._dropped.add(index)
        self._count(block)
        if kind.endswith("tool_use"):
            self._fields.dropped[TOOL_CALLS] += 1
        return None

    def _count(self, said: Mapping[str, Any]) -> None:
        for text in (said.get("thinking"), said.get("data")):
            if isinstance(text, str) and text:
                self._fields.dropped[REASONING] += len(text)

    def _numbered(self, event: dict[str, Any]) -> dict[str, Any]:
        index = index_of(event)
        before = sum(dropped < index for dropped in self._dropped)
        return {**event, "index": index - before} if before else event


def _kind_of(block_type: str) -> str | None:
    if block_type in _THINKING:
        return REASONING
    return TOOL_CALLS if block_type.endswith(("tool_use", "tool_result")) else None


def _without_call(event: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the event, with the stop reason ``tool_use`` replaced with ``end_turn``."""
    end = event.get(name)
    if not isinstance(end, dict) or end.get("stop_reason") != "tool_use":
        return event
    return {**event, name: {**end, "stop_reason": "end_turn"}}
