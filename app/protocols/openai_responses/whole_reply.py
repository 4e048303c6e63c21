"""Converts a whole response to the events of a stream."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.protocols.openai_responses.event_types import (
    ANNOTATION,
    COMPLETED,
    FAILED,
    INCOMPLETE,
    ITEM_ADDED,
    ITEM_DONE,
    PART_ADDED,
    PART_DONE,
    TEXT_DELTA,
    TEXT_DONE,
    begun,
    is_text,
    objects_in,
    text_of,
)

_LAST = {"failed": FAILED, "incomplete": INCOMPLETE}


def events_of(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the numbered events of ``response``."""
    if response.get("error") and not isinstance(response.get("output"), list):
        yield dict(response)
        return
    for number, event in enumerate(_events(response)):
        yield {**event, "sequence_number": number}


def _events(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    first = {**begun(response), "status": "in_progress", "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": first}
    yield {"type": "response.in_progress", "response": first}
    for index, item in objects_in(response.get("output")):
        yield from _item(index, item)
    yield {"type": _LAST.get(str(response.get("status")), COMPLETED), "response": dict(response)}


def _item(index: int, item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    first = {**item, "status": "in_progress"} if "status" in item else dict(item)
    if item.get("type") == "message":
        first["content"] = []
    yield {"type": ITEM_ADDED, "output_index": index, "item": first}
    if item.get("type") == "message":
        for place, part in objects_in(item.get("content")):
            yield from _part({"item_id": item.get("id"), "output_index": index, "content_index": place}, part)
    yield {"type": ITEM_DONE, "output_index": index, "item": dict(item)}


def _part(position: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if not is_text(part):
        yield {"type": PART_ADDED, **position, "part": dict(part)}
        yield {"type": PART_DONE, **position, "part": dict(part)}
        return
    text, tokens = text_of(part), part.get("logprobs") or []
    first = {**part, "text": "", "annotations": []}
    if "logprobs" in part:
        first["logprobs"] = []
    yield {"type": PART_ADDED, **position, "part": first}
    if text:
        yield {"type": TEXT_DELTA, **position, "delta": text, "logprobs": tokens}
    for number, (_, annotation) in enumerate(objects_in(part.get("annotations"))):
        yield {"type": ANNOTATION, **position, "annotation_index": number, "annotation": annotation}
    yield {"type": TEXT_DONE, **position, "text": text, "logprobs": tokens}
    yield {"type": PART_DONE, **position, "part": dict(part)}
