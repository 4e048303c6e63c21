"""Finds the text parts of a reply by any identifier that an upstream uses, and numbers them as choices."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.protocols.common.stream_events import ChoiceFinish, Frame, Passthrough, ReplyPart, TextDelta, UpstreamCitation
from app.protocols.common.upstream_citations import cited_in
from app.protocols.openai_responses.event_types import (
    Place,
    TextPart,
    is_text,
    object_of,
    objects_in,
    place_of,
    text_of,
)

Event = Mapping[str, Any]

_NO_CONTENT = frozenset({"message", "file_search_call", "web_search_call", "mcp_list_tools", "compaction"})
_TOOLS = frozenset(
    {"function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call",
     "mcp_approval_request"}
)  # fmt: skip
"""Calls that the client must carry out."""


class TextParts:
    """The text parts of one reply. ``parts`` contains them in order of arrival. ``unchecked`` names reply content that
    is not text. The iterators that methods return yield parts for the pipeline."""

    def __init__(self) -> None:
        self.parts: list[TextPart] = []
        self.unchecked: set[str] = set()
        self._finished = False

    def name(self, item: Mapping[str, Any]) -> None:
        """Record what an output item contains other than text."""
        kind = str(item.get("type"))
        if kind not in _NO_CONTENT:
            self.unchecked.add("tool_calls" if kind in _TOOLS else kind)
        elif kind == "message":
            parts = [part for _, part in objects_in(item.get("content")) if not is_text(part)]
            self.unchecked.update(str(part["type"]) for part in parts)

    def find(self, place: Place, item_id: Any) -> TextPart | None:
        """Return the text part of the item with the id ``item_id``, even if the item's index differs from ``place``. If
        there is none, return the part at ``place``."""
        for part in self.parts:
            if item_id and part.item_id == item_id and part.place[1] == place[1]:
                return part
        return next((part for part in self.parts if part.place == place), None)

    def about(self, event: Event) -> TextPart | None:
        """Return the text part that an event refers to, if it exists."""
        return self.find(place_of(event), event.get("item_id"))

    def at(self, place: Place, item_id: Any) -> TextPart:
        """Like ``find``, but add a new part if it does not exist."""
        part = self.find(place, item_id)
        if part is None:
            part = TextPart(choice=len(self.parts), place=place, item_id=str(item_id or f"msg_{place[0]}"))
            self.parts.append(part)
        return part

    def of(self, event: Event) -> TextPart:
        """Return the text part that an event refers to. If it doesn't exist yet, add it."""
        return self.at(place_of(event), event.get("item_id"))

    def add(self, event: Event, text: Any) -> Iterator[ReplyPart]:
        """Add a piece of text. Text after the end of a part is left out, because it can no longer be judged."""
        if not isinstance(text, str) or not text:
            return
        part = self.of(event)
        if not part.closed:
            part.received.append(text)
            yield TextDelta(choice=part.choice, text=text, frame=Frame(json=event, tokens=_tokens(event)))

    def reach(self, part: TextPart, text: str, event: Event) -> Iterator[ReplyPart]:
        """Yield the end of ``text`` that hasn't arrived yet. ``text`` is the complete text of the part so far."""
        received = part.text
        if not part.closed and len(text) > len(received) and text.startswith(received):
            rest = text[len(received) :]
            part.received.append(rest)
            yield TextDelta(choice=part.choice, text=rest, frame=Frame(json=event))

    def cite(self, part: TextPart, annotations: Any) -> Iterator[UpstreamCitation]:
        """Yield the citations of a part that haven't been reported yet. Events with complete objects repeat the
        citations of earlier events."""
        new = [one for _, one in objects_in(annotations) if not part.closed and one not in part.annotations]
        part.annotations += new
        yield from cited_in(new, part.choice)

    def end(self, part: TextPart, text: str, event: Event, reason: str, *, cut: bool = False) -> Iterator[ReplyPart]:
        """End a part whose complete text is ``text``. ``cut`` means that the text stops mid-sentence."""
        if part.closed:
            return
        yield from self.reach(part, text, event)
        yield from self._marks(part.choice)
        part.closed = self._finished = True
        yield ChoiceFinish(choice=part.choice, reason=reason, frame=Frame(json=event), final=True, cut=cut)

    def end_item(
        self, index: int, item: Mapping[str, Any], event: Event, reason: str, *, cut: bool = False
    ) -> Iterator[ReplyPart]:
        """End every text part of an output item."""
        if item.get("type") == "message":
            for place, content in objects_in(item.get("content")):
                if is_text(content):
                    part = self.at((index, place), item.get("id"))
                    yield from self.cite(part, content.get("annotations"))
                    yield from self.end(part, text_of(content), event, reason, cut=cut)

    def end_all(self, response: Mapping[str, Any], reason: str, *, cut: bool = False) -> Iterator[ReplyPart]:
        """End the reply with the complete ``response``. If it has no text, an empty choice ends."""
        for index, item in objects_in(object_of(response).get("output")):
            yield from self.end_item(index, item, {}, reason, cut=cut)
        for part in self.parts:
            yield from self.end(part, "", {}, reason, cut=cut)
        if not self._finished:
            self._finished = True
            reason = "tool_calls" if reason == "stop" and "tool_calls" in self.unchecked else reason
            yield from self._marks(0)
            yield ChoiceFinish(choice=0, reason=reason, frame=Frame(json={}), final=True)

    def _marks(self, choice: int) -> Iterator[Passthrough]:
        """Report the names of unchecked content. They are not reported earlier, because a report opens its choice, and
        a choice ignores evidence that arrives after it was opened."""
        return (Passthrough(raw=b"", choice=choice, unchecked=kind) for kind in sorted(self.unchecked))


def _tokens(event: Event) -> list[Mapping[str, Any]] | None:
    tokens = event.get("logprobs")
    return [token for _, token in objects_in(tokens)] if isinstance(tokens, list) else None
