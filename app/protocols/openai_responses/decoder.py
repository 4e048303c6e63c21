"""Decodes upstream events of the Responses API into reply parts.

Text is read from deltas. If an upstream sends no deltas, text is read from the events that contain the complete text.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from app.errors import InvalidRequestError, UpstreamConnectError
from app.protocols.common.known_fields import UNFIT, UNREAD, KnownFields, identifier, token_count
from app.protocols.common.sse import JsonStreamDecoder
from app.protocols.common.stream_events import (
    EndOfReply,
    FoundDocuments,
    Frame,
    Passthrough,
    ReplyError,
    ReplyPart,
    ReplyStart,
    TextDelta,
    UpstreamEvent,
    Usage,
)
from app.protocols.documents import Limits
from app.protocols.documents.document_extraction import Documents
from app.protocols.openai_responses.dropped_items import DroppedItems
from app.protocols.openai_responses.event_types import (
    ANNOTATION,
    COMPLETED,
    ERROR,
    FAILED,
    INCOMPLETE,
    ITEM_ADDED,
    ITEM_DONE,
    LIFECYCLE,
    PART_ADDED,
    PART_DONE,
    TERMINAL,
    TEXT_DELTA,
    TEXT_DONE,
    OtherContent,
    begun,
    emptied,
    frame_of,
    index_of,
    is_text,
    object_of,
    objects_in,
    text_of,
)
from app.protocols.openai_responses.fields import CALLS, rebuild, rebuild_error
from app.protocols.openai_responses.normalisation import Shapes, passes
from app.protocols.openai_responses.request import take_search
from app.protocols.openai_responses.text_parts import TextParts

_REASONS = {"max_output_tokens": "length"}
"""Maps the reason why a response is incomplete to the equivalent finish reason in Chat Completions."""

_UNCHECKED = {"response.refusal.": "refusal", "response.reasoning": "reasoning", "response.audio.": "audio"}
"""For events without reply text, maps prefixes of their names to their kind of content."""
_CALL_EVENTS = ("_call", "mcp_")
"""Substrings in the names of tool call events."""
_PARTS = {"output_audio": "audio", "reasoning_text": "reasoning"}
"""Maps the types of content parts to the names of their content."""


class _Last:
    """The latest decoded event. It is kept in a separate object, to avoid a reference cycle between the
    ``ResponseDecoder`` and its ``JsonStreamDecoder``."""

    def __init__(self) -> None:
        self.event: dict[str, Any] | None = None

    def keep(self, raw: bytes, event: dict[str, Any]) -> UpstreamEvent:
        self.event = event
        return UpstreamEvent(raw=raw, parts=())


class ResponseDecoder:
    """Reads one reply. ``named`` means that the upstream's frames include event names. With ``fields``, the reply is
    rebuilt from known fields, so the bytes of an event contain only known fields."""

    def __init__(self, fields: KnownFields | None = None) -> None:
        self.fields = fields
        self._dropped = DroppedItems(fields) if fields is not None and fields.drops else None
        self._others = OtherContent(refusals=fields is None or UNREAD not in fields.drops)
        self.texts = TextParts()
        self._shapes = Shapes()
        self.response: dict[str, Any] | None = None
        """The final response. None until it arrives."""
        self.named = True
        self._last = _Last()
        self._decoder = JsonStreamDecoder(self._last.keep, fields)
        self._found = Documents(Limits(), prefix="search")
        self._waiting: list[tuple[bytes, bytes, dict[str, Any]]] = []
        self._started = self._over = False

    def feed(self, data: bytes) -> Iterator[UpstreamEvent]:
        """Yield the events that ``data`` completes. Raises UpstreamConnectError if an event is malformed."""
        for event in self._decoder.feed(data):
            yield from self._decoded(event)

    def settle(self) -> Iterator[UpstreamEvent]:
        """Yield the pending events, because no further event will arrive."""
        return self._settle("stop")

    def close(self) -> Iterator[UpstreamEvent]:
        """Yield the events at the end of the body. Raises UpstreamConnectError if the reply is not complete."""
        for event in self._decoder.close():
            yield from self._decoded(event)
        yield from self._settle("stop")
        if not self._over:
            raise UpstreamConnectError("The upstream ended its reply before it was complete.")
        yield UpstreamEvent(raw=b"", parts=(EndOfReply(),))

    def read(self, raw: bytes, event: dict[str, Any]) -> Iterator[UpstreamEvent]:
        """Yield the pipeline events for an upstream event. They keep the bytes of the upstream event, for replies that
        are forwarded unchanged. An event that ends text is held until the next event shows whether the text was cut
        off."""
        if others := self._others.chars(event):
            yield UpstreamEvent(raw=b"", parts=(), others=others)
        if self._dropped is not None:
            kept = self._dropped.kept(event)
            if kept is None:
                # Documents found by a dropped search still count as evidence.
                found = self._search(object_of(event.get("item"))) if event.get("type") == ITEM_DONE else ()
                yield UpstreamEvent(raw=b"", parts=tuple(found))
                return
            event = kept
        yield from self._read(raw, event)

    def _read(self, raw: bytes, event: dict[str, Any]) -> Iterator[UpstreamEvent]:
        if event.get("type") == ERROR or (event.get("type") is None and event.get("error")):
            yield from self._settle("stop")
            if self.fields is not None:
                event = rebuild_error(event, self.fields)
                raw = frame_of(event, named=self.named)
            yield from self._error(raw, event)
            return
        if self.fields is not None:
            known = rebuild(event, self.fields)
            raw = b"" if known is None else frame_of(known, named=self.named)
            event = known or {}
            if self.fields.news():
                self.texts.unchecked.add("unknown")
        else:
            known = self._shapes.event(event)
            if self._shapes.unknown:
                self.texts.unchecked.add("unknown")
        if known is None:
            yield from self._settle("stop")
            yield UpstreamEvent(raw=raw, parts=(Passthrough(raw=raw, opaque=self.fields is not None),))
            return
        frame = raw if self.fields is not None or passes(raw, event, known) else frame_of(known, named=self.named)
        if self._ends_text(known):
            self._waiting.append((raw, frame, known))
            return
        yield from self._settle(_reason(known), cut=known["type"] == INCOMPLETE)
        if known["type"] in TERMINAL:
            self.response = object_of(event.get("response"))
            yield from self._terminal(raw, known)
        else:
            yield UpstreamEvent(raw=raw, parts=tuple(self._ordinary(frame, known)))

    def _decoded(self, decoded: UpstreamEvent) -> Iterator[UpstreamEvent]:
        event, self._last.event = self._last.event, None
        if event is not None:
            self.named = not decoded.raw.lstrip().startswith(b"data:")
            yield from self.read(decoded.raw, event)
            return
        yield from self._settle("stop")
        if any(isinstance(part, EndOfReply) for part in decoded.parts):
            if not self._over:
                yield UpstreamEvent(raw=b"", parts=tuple(self.texts.end_all({}, "stop")))
                self._over = True
            yield UpstreamEvent(raw=decoded.raw, parts=(EndOfReply(decoded.raw),))
        else:
            yield decoded

    @staticmethod
    def _ends_text(event: Mapping[str, Any]) -> bool:
        kind = event.get("type")
        if kind == PART_DONE:
            return is_text(object_of(event.get("part")))
        if kind == ITEM_DONE:
            item = object_of(event.get("item"))
            return item.get("type") == "message" and item.get("status") == "incomplete"
        return kind == TEXT_DONE

    def _settle(self, reason: str, *, cut: bool = False) -> Iterator[UpstreamEvent]:
        waiting, self._waiting = self._waiting, []
        cut = cut or any(event.get("type") == ITEM_DONE for _, _, event in waiting)
        ended = [event for _, _, event in waiting if event.get("type") == PART_DONE]
        # Citations are yielded before the end of the text, because the policies decide at the end of the text.
        if cited := [
            c for e in ended for c in self.texts.cite(self.texts.of(e), object_of(e["part"]).get("annotations"))
        ]:
            yield UpstreamEvent(raw=b"", parts=cited)
        for raw, frame, event in waiting:
            yield UpstreamEvent(raw=raw, parts=tuple(self._end_text(frame, event, reason, cut=cut)))

    def _ordinary(self, raw: bytes, event: dict[str, Any]) -> Iterator[ReplyPart]:
        kind = str(event.get("type"))
        if kind == TEXT_DELTA:
            yield from self.texts.add(event, event.get("delta"))
        elif kind == ANNOTATION:
            yield from self._annotation(raw, event)
        elif kind in LIFECYCLE:
            yield from self._lifecycle(raw, event)
        elif kind == ITEM_ADDED:
            yield from self._item_added(raw, event)
        elif kind == PART_ADDED:
            yield from self._part_added(raw, event)
        elif kind == ITEM_DONE:
            self.texts.name(object_of(event.get("item")))
            yield from self._search(object_of(event.get("item")))
            yield from self._end_text(raw, event, "stop", cut=False)
        else:
            unchecked = next((name for begin, name in _UNCHECKED.items() if kind.startswith(begin)), None)
            if unchecked is not None:
                self.texts.unchecked.add(unchecked)
            elif kind == PART_DONE:
                unchecked = _content_of(object_of(event.get("part")))
            yield Passthrough(raw=raw, unchecked=unchecked, call=any(each in kind for each in _CALL_EVENTS))

    # Starts

    def _lifecycle(self, raw: bytes, event: dict[str, Any]) -> Iterator[ReplyPart]:
        response = object_of(event.get("response"))
        yield from self._start(response)
        if response.get("output") or response.get("output_text"):
            # The output is removed from this event, because its text arrives in separate events.
            raw = frame_of({**event, "response": begun(response)}, named=self.named)
        yield Passthrough(raw=raw)

    def _item_added(self, raw: bytes, event: dict[str, Any]) -> Iterator[ReplyPart]:
        item = object_of(event.get("item"))
        self.texts.name(item)
        if item.get("type") != "message":
            kind = item.get("type")
            yield Passthrough(raw=raw, unchecked=str(kind), call=kind in CALLS)
            return
        content = [(i, part) for i, part in objects_in(item.get("content")) if is_text(part) and text_of(part)]
        if content:
            first = [emptied(part) if is_text(part) else part for part in item["content"]]
            raw = frame_of({**event, "item": {**item, "content": first}}, named=self.named)
        yield Passthrough(raw=raw)
        for place, part in content:
            index = index_of(event, "output_index")
            yield from self.texts.reach(self.texts.at((index, place), item.get("id")), text_of(part), event)

    def _part_added(self, raw: bytes, event: dict[str, Any]) -> Iterator[ReplyPart]:
        part = object_of(event.get("part"))
        if not is_text(part):
            self.texts.unchecked.add(part["type"])
            yield Passthrough(raw=raw, unchecked=_content_of(part))
            return
        text = text_of(part)
        yield Passthrough(raw=frame_of({**event, "part": emptied(part)}, named=self.named) if text else raw)
        if text:
            yield from self.texts.reach(self.texts.of(event), text, event)

    def _annotation(self, raw: bytes, event: dict[str, Any]) -> Iterator[ReplyPart]:
        part = self.texts.of(event)
        if part.closed:
            yield Passthrough(raw=raw)
            return
        yield from self.texts.cite(part, [event.get("annotation")])
        # The annotation is sent as the remainder of a frame without text. It isn't forwarded immediately, because it
        # must be withheld if the annotated text is withheld.
        yield TextDelta(choice=part.choice, text="", frame=Frame(json=event), remainder=event)

    def _search(self, item: Mapping[str, Any]) -> Iterator[ReplyPart]:
        """Yield documents that the upstream found. They arrive before the text that is based on them."""
        if item.get("type") != "file_search_call":
            return
        before = len(self._found.chunks)
        with suppress(InvalidRequestError):  # documents beyond the limits are ignored
            take_search(self._found, item, "output", is_name=_is_name)
        if found := self._found.chunks[before:]:
            yield FoundDocuments(documents=found)

    # Ends

    def _end_text(self, raw: bytes, event: dict[str, Any], reason: str, *, cut: bool) -> Iterator[ReplyPart]:
        """Handle an event that repeats a complete text. Yield the part of the text that hasn't arrived yet, the end of
        the text, and the event itself.
        """
        kind = event.get("type")
        if kind == TEXT_DONE:
            part = self.texts.of(event)
            if not part.closed:
                # The event is passed on as part of the end of the text, so it isn't forwarded separately.
                yield from self.texts.end(part, text_of(event), event, reason, cut=cut)
                return
        elif kind == PART_DONE:
            text = text_of(object_of(event.get("part")))
            yield from self.texts.end(self.texts.of(event), text, event, reason, cut=cut)
        else:
            item = object_of(event.get("item"))
            if (of := item.get("type")) != "message":
                yield Passthrough(raw=raw, unchecked=str(of), call=of in CALLS)
                return
            yield from self.texts.end_item(index_of(event, "output_index"), item, event, reason, cut=cut)
        yield Passthrough(raw=raw)

    def _error(self, raw: bytes, event: dict[str, Any]) -> Iterator[UpstreamEvent]:
        inner = object_of(event.get("error"))
        found = (inner.get("message"), event.get("message"), event.get("error"))
        message = next((text for text in found if isinstance(text, str) and text), "error")
        yield UpstreamEvent(
            raw=raw, parts=(*self.texts.end_all({}, "failed", cut=True), ReplyError(message=message, raw=raw))
        )
        self._over = True

    def _terminal(self, raw: bytes, event: dict[str, Any]) -> Iterator[UpstreamEvent]:
        response = object_of(event.get("response"))
        self._over = True
        for _, item in objects_in(response.get("output")):
            self.texts.name(item)
        parts = [*self._start(response), *self._last_parts(event, response)]
        if event["type"] == FAILED:
            error = object_of(response.get("error"))
            message = str(error.get("message") or "the response failed")
            yield UpstreamEvent(raw=raw, parts=(*parts, ReplyError(message=message, raw=raw)))
            yield UpstreamEvent(raw=b"", parts=(EndOfReply(trailer=True),))
        else:
            yield UpstreamEvent(raw=b"", parts=tuple(parts))
            yield UpstreamEvent(raw=raw, parts=(EndOfReply(raw, trailer=True),))

    def _last_parts(self, event: dict[str, Any], response: Mapping[str, Any]) -> Iterator[ReplyPart]:
        yield from self.texts.end_all(response, _reason(event), cut=event["type"] != COMPLETED)
        usage = usage_of(response)
        if usage is not None:
            yield usage

    def _start(self, response: Mapping[str, Any]) -> Iterator[ReplyPart]:
        if not self._started and isinstance(model := response.get("model"), str):
            self._started = True
            yield ReplyStart(model=model)


def _content_of(part: Mapping[str, Any]) -> str:
    """Return the name for the content of a part that isn't text."""
    kind = str(part.get("type"))
    return _PARTS.get(kind, kind)


def _is_name(text: str) -> bool:
    """Return whether ``text`` looks like a name. Any other text may contain a statement."""
    return bool(text) and identifier(text) is not UNFIT


def usage_of(response: Mapping[str, Any]) -> Usage | None:
    """Return the token counts of a response, or None if it has none."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = token_count(usage.get("input_tokens")), token_count(usage.get("output_tokens"))
    return Usage(prompt_tokens=prompt, completion_tokens=completion, frame=Frame(json=usage))


def _reason(event: Mapping[str, Any]) -> str:
    """Return the reason why the text before ``event`` has ended."""
    if event.get("type") == FAILED:
        return "failed"
    if event.get("type") != INCOMPLETE:
        return "stop"
    details = object_of(object_of(event.get("response")).get("incomplete_details"))
    reason = str(details.get("reason") or "incomplete")
    return _REASONS.get(reason, reason)
