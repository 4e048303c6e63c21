"""What an upstream's events say, in the terms of the pipeline."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from app.dialects.messages.events import (
    EMPTY_TEXT,
    TextBlock,
    block_of,
    delta_of,
    event_bytes,
    index_of,
    input_tokens,
)
from app.dialects.messages.references import References
from app.parts import Break, Cited, Done, Event, Failure, Finish, Frame, Part, Passing, Text, Usage
from app.trace import Trace

_CUT = frozenset({"max_tokens", "model_context_window_exceeded"})
_Json = dict[str, Any]


class Reader:
    """Reads the events of one message, in order. Keeps its text blocks in ``texts``, by the upstream's index.

    Whether the text goes on behind a text block is known by the next event only. So the end of the block waits for
    that: text that goes on is one text; anything else is preceded by a ``Break``.
    """

    def __init__(self, trace: Trace, references: References, texts: dict[int, TextBlock]) -> None:
        self._trace = trace
        self._references = references
        self._texts = texts
        self._chars = 0
        self._stop: tuple[bytes, Sequence[Cited]] | None = None
        self._behind: list[Event] = []
        self._by_type: dict[str, Callable[[bytes, _Json], Iterator[Event]]] = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
        }

    def read(self, raw: bytes, event: _Json) -> Iterator[Event]:
        """The pipeline's events for an upstream's, which came as ``raw``."""
        read = self._by_type.get(str(event.get("type")))
        if read is None:
            yield from self.let_by(raw)
            return
        yield from self.settle(goes_on=event["type"] == "content_block_start" and block_of(event).get("type") == "text")
        yield from read(raw, event)

    def let_by(self, raw: bytes) -> Iterator[Event]:
        """Bytes that say nothing of the reply: a ping, a comment, what nobody knows."""
        event = Event(raw=raw, parts=(Passing(raw=raw),))
        if self._stop is not None:
            self._behind.append(event)
        else:
            yield event

    def settle(self, *, goes_on: bool = False) -> Iterator[Event]:
        """The end of the last text block, if it waits. ``goes_on``: what follows is text."""
        if self._stop is None:
            return
        raw, cited = self._stop
        self._stop = None
        if goes_on:
            yield Event(raw=raw, parts=cited)
        else:
            yield Event(raw=b"", parts=(*cited, Break(choice=0)))
            yield Event(raw=raw, parts=(Passing(raw=raw, choice=0),))
        yield from self._behind
        self._behind = []

    def _message_start(self, raw: bytes, event: _Json) -> Iterator[Event]:
        message = event.get("message")
        if isinstance(message, dict):
            if isinstance(message.get("model"), str):
                self._trace.resolved_model = message["model"]
            self._trace.prompt_tokens = input_tokens(message.get("usage"))
        yield Event(raw=raw, parts=(Passing(raw=raw),))

    def _block_start(self, raw: bytes, event: _Json) -> Iterator[Event]:
        block, index = block_of(event), index_of(event)
        if block.get("type") != "text":
            yield Event(raw=raw, parts=(Passing(raw=raw, choice=0, unchecked=str(block.get("type"))),))
            return
        citations = block.get("citations")
        start = {**block, "text": "", **({"citations": []} if citations else {})}
        text_block = self._texts[index] = TextBlock(start=start)
        for citation in citations or ():
            delta = {"type": "citations_delta", "citation": citation}
            text_block.tail.append({"type": "content_block_delta", "index": index, "delta": delta})
        yield Event(raw=raw, parts=self._text(index, text_block, block.get("text")))

    def _block_delta(self, raw: bytes, event: _Json) -> Iterator[Event]:
        delta, index = delta_of(event), index_of(event)
        block = self._texts.get(index)
        if delta.get("type") == "text_delta":
            if block is None:
                block = self._texts[index] = TextBlock(start=EMPTY_TEXT, announced=False)
            yield Event(raw=raw, parts=self._text(index, block, delta.get("text")))
        elif block is None:
            yield Event(raw=raw, parts=(Passing(raw=raw, choice=0),))
        else:
            block.tail.append(event)
            citation = delta.get("citation")
            if isinstance(citation, dict):
                known = self._references.renumbered(citation)
                raw = raw if known is citation else event_bytes({**event, "delta": {**delta, "citation": known}})
            yield Event(raw=raw, parts=())

    def _text(self, index: int, block: TextBlock, text: Any) -> Sequence[Part]:
        if not isinstance(text, str) or not text:
            return ()
        if block.place is None and text.strip():
            block.place = self._chars + len(text) - len(text.lstrip())
        self._chars += len(text)
        return (Text(choice=0, text=text, frame=Frame(json={"index": index})),)

    def _block_stop(self, raw: bytes, event: _Json) -> Iterator[Event]:
        block = self._texts.get(index_of(event))
        if block is None:
            yield Event(raw=raw, parts=(Passing(raw=raw, choice=0),))
            return
        cited = []
        for position, tail in enumerate(block.tail):
            delta = delta_of(tail)
            if isinstance(delta.get("citation"), dict):
                if block.place is not None:
                    cited.append(self._references.cited(delta["citation"], block.place))
                known = self._references.renumbered(delta["citation"])
                block.tail[position] = {**tail, "delta": {**delta, "citation": known}}
        self._stop = raw, cited

    def _message_delta(self, raw: bytes, event: _Json) -> Iterator[Event]:
        reason, usage = delta_of(event).get("stop_reason"), event.get("usage")
        tokens = usage.get("output_tokens") if isinstance(usage, dict) else None
        frame = Frame(json=event)
        prompt = input_tokens(usage)
        counted = Usage(
            prompt_tokens=self._trace.prompt_tokens if prompt is None else prompt,
            completion_tokens=tokens if isinstance(tokens, int) else None,
            frame=frame if reason else None,
        )
        if reason:
            yield Event(raw=raw, parts=(Finish(choice=0, reason=str(reason), frame=frame, cut=reason in _CUT), counted))
        else:
            yield Event(raw=raw, parts=(Passing(raw=raw), counted))

    def _message_stop(self, raw: bytes, event: _Json) -> Iterator[Event]:
        yield Event(raw=raw, parts=(Done(raw),))

    def _error(self, raw: bytes, event: _Json) -> Iterator[Event]:
        error = event.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        yield Event(raw=raw, parts=(Failure(message=str(message), raw=raw),))
