"""The events of a Messages stream, as bytes and as JSON, and the text blocks that they refer to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.protocols.common.known_fields import text_length, token_count
from app.protocols.common.sse import SSEParser, dump, load

_CONTENT = frozenset({"content_block_start", "content_block_delta"})
_TEXT = frozenset({"text", "text_delta", "citations_delta"})


@dataclass(slots=True, kw_only=True)
class TextBlock:
    """A text block from the upstream. ``start`` is the block in its start event, without text, and ``around`` contains
    the other fields of the start event. ``tail`` contains the events of the block's citations. ``place`` is the
    position at which its text begins in the text of the message. ``announced`` means that the upstream sent the start
    of the block. ``said`` is the text received, and ``shown`` the text released."""

    start: Mapping[str, Any]
    around: Mapping[str, Any] = field(default_factory=dict)
    tail: list[dict[str, Any]] = field(default_factory=list)
    place: int | None = None
    announced: bool = True
    said: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def withheld(self) -> Iterator[tuple[int, str]]:
        """Yield the withheld texts with their positions in ``said``."""
        said, done = "".join(self.said), 0
        for text in self.shown:
            at = said.find(text, done)
            if at > done:
                yield done, said[done:at]
            done = max(done, at + len(text)) if at >= 0 else done
        if said[done:]:
            yield done, said[done:]


EMPTY_TEXT: Mapping[str, Any] = {"type": "text", "text": ""}


def event_bytes(event: Mapping[str, Any]) -> bytes:
    """Encode the event as a frame with the event's name. Clients ignore events without a name."""
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), dump(event))


def error_event(name: str, message: str, **more: Any) -> bytes:
    """Build the event for an error in the middle of a stream. ``name`` is the type of the error."""
    return event_bytes({"type": "error", "error": {"type": name, "message": message, **more}})


def object_of(data: bytes | None) -> dict[str, Any] | None:
    """Return the JSON object in ``data``, or None if it is not a JSON object."""
    value = load(data or b"")
    return value if isinstance(value, dict) else None


def parse_event(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in the bytes of one event, or an empty object if there is none."""
    parser = SSEParser()
    parsed = [*parser.feed(raw), *parser.close()]
    return (object_of(parsed[0].data) if parsed else None) or {}


def index_of(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else 0


def block_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block in a ``content_block_start``."""
    block = event.get("content_block")
    return block if isinstance(block, dict) else {}


def delta_of(event: Mapping[str, Any]) -> dict[str, Any]:
    delta = event.get("delta")
    return delta if isinstance(delta, dict) else {}


def input_tokens(usage: Any) -> int | None:
    """Return the number of prompt tokens, including tokens read from or written to a cache."""
    if not isinstance(usage, dict) or (uncached := token_count(usage.get("input_tokens"))) is None:
        return None
    cached = (token_count(usage.get(f"cache_{how}_input_tokens")) for how in ("creation", "read"))
    return uncached + sum(filter(None, cached))


def other_chars(event: Mapping[str, Any]) -> int:
    """Return the number of generated characters in an event that aren't reply text, such as thinking and tool calls."""
    said = block_of(event) or delta_of(event) if str(event.get("type")) in _CONTENT else {}
    kind = str(said.get("type"))
    return 0 if kind in _TEXT or kind.endswith("tool_result") else text_length(said)
