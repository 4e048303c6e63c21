"""Leaves out items that a policy drops from a response: reasoning, or tool calls and their results."""

from typing import Any

from app.protocols.common.known_fields import REASONING, TOOL_CALLS, KnownFields
from app.protocols.openai_responses.event_types import (
    ITEM_ADDED,
    ITEM_DONE,
    PART_ADDED,
    PART_DONE,
    index_of,
    object_of,
    objects_in,
    text_of,
)
from app.protocols.openai_responses.fields import CALLS

_OF_CALLS = ("_call", "mcp_", "tool_")
"""Substrings in the names of tool call events."""


class DroppedItems:
    """Filters the events of one response. The remaining items are renumbered without gaps."""

    def __init__(self, fields: KnownFields) -> None:
        self._fields = fields
        self._dropped: set[int] = set()

    def kept(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return the event as if the upstream hadn't sent the dropped items, or None if it belongs to one of them."""
        name = event.get("type")
        if name in (ITEM_ADDED, ITEM_DONE):
            if self._drops(_kind_of(object_of(event.get("item")))):
                self._drop(event, done=name == ITEM_DONE)
                return None
        elif self._drops(_kind_of_event(event)):
            return None
        response = object_of(event.get("response"))
        if isinstance(response.get("output"), list):
            output = [item for item in response["output"] if not self._drops(_kind_of(object_of(item)))]
            return {**event, "response": {**response, "output": output}}
        index = index_of(event, "output_index")
        before = sum(dropped < index for dropped in self._dropped)
        return {**event, "output_index": index - before} if before else event

    def _drops(self, kind: str | None) -> bool:
        return kind in self._fields.drops

    def _drop(self, event: dict[str, Any], *, done: bool) -> None:
        index, item = index_of(event, "output_index"), object_of(event.get("item"))
        if item.get("type") == "reasoning":
            parts = [*objects_in(item.get("summary")), *objects_in(item.get("content"))] if done else []
            self._fields.dropped[REASONING] += sum(len(text_of(part)) for _, part in parts)
        elif index not in self._dropped and not str(item.get("type")).endswith("output"):
            self._fields.dropped[TOOL_CALLS] += 1
        self._dropped.add(index)


def _kind_of(item: dict[str, Any]) -> str | None:
    if item.get("type") == "reasoning":
        return REASONING
    return TOOL_CALLS if item.get("type") in CALLS else None


def _kind_of_event(event: dict[str, Any]) -> str | None:
    name = str(event.get("type"))
    if name in (PART_ADDED, PART_DONE):
        return REASONING if object_of(event.get("part")).get("type") == "reasoning_text" else None
    if name.startswith("response.reasoning"):
        return REASONING
    return TOOL_CALLS if any(each in name for each in _OF_CALLS) else None
