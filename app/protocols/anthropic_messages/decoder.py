"""Decodes upstream events of the Messages API into reply parts."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from app.errors import UpstreamConnectError
from app.protocols.anthropic_messages import allowlist as cleaning
from app.protocols.anthropic_messages.allowlist import name_of, word_of
from app.protocols.anthropic_messages.document_numbers import DocumentNumbers
from app.protocols.anthropic_messages.dropped_blocks import DroppedBlocks
from app.protocols.anthropic_messages.event_types import (
    EMPTY_TEXT,
    TextBlock,
    block_of,
    delta_of,
    event_bytes,
    index_of,
    input_tokens,
    other_chars,
)
from app.protocols.anthropic_messages.fields import rebuild
from app.protocols.common.known_fields import KnownFields, token_count
from app.protocols.common.stream_events import (
    ChoiceFinish,
    EndOfReply,
    Frame,
    Passthrough,
    ReplyError,
    ReplyPart,
    ReplyStart,
    TextBreak,
    TextDelta,
    UpstreamEvent,
    Usage,
)

_CUT = frozenset({"max_tokens", "model_context_window_exceeded"})
_PLAIN_STOP = re.compile(rb'\s*(event:\s*message_stop\s+)?data:\s*\{\s*"type"\s*:\s*"message_stop"\s*\}\s*')
_Json = dict[str, Any]


class MessageDecoder:
    """Reads the events of one message in order, and keeps its text blocks in ``texts`` by their index in the upstream's
    reply.

    Each event keeps its original bytes, for replies that are forwarded unchanged. Under a policy, ``fields`` is set,
    and the parts of an event contain its bytes rebuilt from known fields. Without a policy, the parts keep all fields.
    Content outside the known fields is reported as unchecked.

    After a text block, the text may continue in the next block. The end of a text block is therefore held until the
    next event arrives. If that event doesn't begin another text block, a ``TextBreak`` is inserted.

    ``model`` and ``stops`` are the model and the stop sequences of the request. With ``needs_start``, ``read`` raises
    UpstreamConnectError if the start of the reply is missing.
    """

    def __init__(
        self,
        references: DocumentNumbers,
        texts: dict[int, TextBlock],
        *,
        model: str | None,
        stops: Collection[str] = (),
        needs_start: bool = False,
        fields: KnownFields | None = None,
    ) -> None:
        self.fields = fields
        self._dropped = DroppedBlocks(fields) if fields is not None and fields.drops else None
        self._model = model
        self._prompt_tokens: int | None = None
        self._references = references
        self._texts = texts
        self._stops = stops
        self._needs_start = needs_start
        self._others: set[int] = set()
        self._chars = 0
        self._usage = Usage(prompt_tokens=None, completion_tokens=None)
        self._finished = False
        self._stop: tuple[bytes, bytes, Sequence[ReplyPart]] | None = None
        self._behind: list[UpstreamEvent] = []

    def read(self, raw: bytes, event: _Json) -> Iterator[UpstreamEvent]:
        """Yield the pipeline events for an upstream event that arrived as ``raw``."""
        if others := other_chars(event):
            yield UpstreamEvent(raw=b"", parts=(), others=others)
        if self._dropped is not None:
            kept = self._dropped.kept(event)
            if kept is None:
                return
            event = kept
        if self.fields is not None:
            event = self._references.with_known_citation(event)
            known = cleaning.error(event) if event.get("type") == "error" else rebuild(event, self.fields)
            if known is None:
                yield from self._leave_out(event)
                return
            if cleaning.says_more(event, known):
                yield from self._let_by(b"", _withheld("unknown_fields"))
            raw, event = event_bytes(known), known
        kind = event.get("type")
        read = _BY_TYPE.get(kind) if isinstance(kind, str) else None
        if kind == "ping":
            clean: _Json = {"type": "ping"}
            yield from self._let_by(raw, Passthrough(raw=event_bytes(self._kept(event, clean))), *_more(event, clean))
        elif read is None:
            yield from self._let_by(raw, self._unknown(raw, name_of(kind)))
        else:
            if self._needs_start and kind not in ("message_start", "error"):
                raise UpstreamConnectError("The upstream's reply does not start with message_start.")
            yield from self.settle(goes_on=kind == "content_block_start" and block_of(event).get("type") == "text")
            yield from read(self, raw, event)

    def _leave_out(self, event: _Json) -> Iterator[UpstreamEvent]:
        """Leave out an event of an unknown type. If it starts a block, the block counts as an empty text block, so the
        client gets no number for it."""
        if event.get("type") == "content_block_start":
            yield from self.settle()
            self._texts[index_of(event)] = TextBlock(start=EMPTY_TEXT)
        yield from self._let_by(b"", _withheld(_unknown_in(event)))

    def unread(self, raw: bytes, fault: str = "unreadable") -> Iterator[UpstreamEvent]:
        """Handle an event whose data is not a JSON object, or whose data has the given ``fault``."""
        if self.fields is not None:
            self.fields.leave_out(fault)
            raw = b""
        yield from self._let_by(raw, self._unknown(raw, fault))

    def _kept(self, event: _Json, clean: _Json) -> _Json:
        """Return the event that may be sent. Under a policy, this is ``clean``; otherwise, it is the event with all its
        fields."""
        return event if self.fields is None else clean

    def _unknown(self, raw: bytes, name: str) -> Passthrough:
        """Build a part for unknown content. The content is left out under a policy, and forwarded otherwise."""
        return _withheld(name) if self.fields is not None else Passthrough(raw=raw, choice=0, unchecked=name)

    def _citation(self, index: int, citation: _Json) -> _Json:
        """Build the event for a citation."""
        clean = cleaning.cited_delta(index, citation)
        return self._kept({**clean, "delta": {"type": "citations_delta", "citation": citation}}, clean)

    def without_data(self, raw: bytes) -> Iterator[UpstreamEvent]:
        """Handle an event without data. Only its comments are forwarded, and only if no policy applies."""
        if self.fields is not None:
            self.fields.leave_out("comment")
            return
        lines = [line for line in raw.replace(b"\r", b"\n").split(b"\n") if line.startswith(b":")]
        comments = b"".join(line + b"\n" for line in lines) + b"\n"
        yield from self._let_by(raw, *([Passthrough(raw=comments)] if lines else []))

    def _let_by(self, raw: bytes, *parts: ReplyPart) -> Iterator[UpstreamEvent]:
        """Forward an event that doesn't affect the reply, and therefore doesn't show whether the last text block
        continues."""
        event = UpstreamEvent(raw=raw, parts=parts)
        if self._stop is not None:
            self._behind.append(event)
        else:
            yield event

    def settle(self, *, goes_on: bool = False) -> Iterator[UpstreamEvent]:
        """Yield the end of the last text block, if it is held. ``goes_on`` means that more text follows."""
        if self._stop is None:
            return
        raw, clean, parts = self._stop
        self._stop = None
        if goes_on:
            yield UpstreamEvent(raw=raw, parts=parts)
        else:
            yield UpstreamEvent(raw=b"", parts=(*parts, TextBreak(choice=0)))
            yield UpstreamEvent(raw=raw, parts=(Passthrough(raw=clean, choice=0),))
        yield from self._behind
        self._behind = []

    def _message_start(self, raw: bytes, event: _Json) -> Iterator[UpstreamEvent]:
        self._needs_start = False
        clean = cleaning.message_start(event, self._model, self._stops)
        message = event.get("message")
        start = ReplyStart()
        if isinstance(message, dict):
            self._prompt_tokens = input_tokens(message.get("usage"))
            start = ReplyStart(model=word_of(message.get("model")) or None, prompt_tokens=self._prompt_tokens)
        kept = Passthrough(raw=event_bytes(self._kept(event, clean)))
        yield UpstreamEvent(raw=raw, parts=(start, kept, *_more(event, clean)))

    def _block_start(self, raw: bytes, event: _Json) -> Iterator[UpstreamEvent]:
        block, index = block_of(event), index_of(event)
        if block.get("type") != "text":
            yield UpstreamEvent(raw=raw, parts=self._other_start(index, event))
            return
        clean = cleaning.text_start(block)
        text_block = self._texts[index] = TextBlock(
            start=self._kept({**block, **clean}, clean), around=self._kept(event, {"type": event["type"]})
        )
        text_block.tail += (self._citation(index, citation) for citation in cleaning.citations_of(block))
        known = {**clean, "text": block.get("text"), "citations": [delta_of(e) for e in text_block.tail]}
        more = _more(event, {"type": event["type"], "content_block": known})
        yield UpstreamEvent(raw=raw, parts=(*self._text(index, text_block, block.get("text")), *more))

    def _other_start(self, index: int, event: _Json) -> Sequence[ReplyPart]:
        """Handle a block other than text. Under a policy, a block of an unknown type is treated like an empty text
        block and left out, because it might contain text."""
        kind, clean = name_of(block_of(event).get("type")), cleaning.other_block(event)
        if clean is None and self.fields is not None:
            self._texts[index] = TextBlock(start=EMPTY_TEXT)
            return (_withheld(kind),)
        self._others.add(index)
        call = kind.endswith("tool_use")
        sent = event_bytes(self._kept(event, clean or {}))
        return (Passthrough(raw=sent, choice=0, unchecked=kind, call=call), *_more(event, clean or event))

    def _block_delta(self, raw: bytes, event: _Json) -> Iterator[UpstreamEvent]:
        delta, index = delta_of(event), index_of(event)
        kind, block = delta.get("type"), self._texts.get(index)
        if kind == "text_delta":
            if block is None:
                block = self._texts[index] = TextBlock(start=EMPTY_TEXT, announced=False)
            text = delta.get("text")
            known = {"type": event["type"], "delta": {"type": kind, "text": text if isinstance(text, str) else None}}
            yield UpstreamEvent(raw=raw, parts=(*self._text(index, block, text), *_more(event, known)))
            return
        citation = delta.get("citation")
        if block is not None and kind == "citations_delta" and isinstance(citation, dict):
            clean = cleaning.cited_delta(index, citation)
            block.tail.append(self._citation(index, citation))
            renumbered = self._references.renumbered(citation)
            if renumbered is not citation and self.fields is not None:
                raw = event_bytes({**clean, "delta": {**clean["delta"], "citation": renumbered}})
            elif renumbered is not citation:
                raw = event_bytes({**event, "delta": {**delta, "citation": renumbered}})
            yield UpstreamEvent(raw=raw, parts=_more(event, clean))
            return
        other = cleaning.other_delta(event) if block is None and index in self._others else None
        if other is not None:
            kept = Passthrough(raw=event_bytes(self._kept(event, other)), choice=0)
            yield UpstreamEvent(raw=raw, parts=(kept, *_more(event, other)))
        elif block is None and self.fields is None:
            yield UpstreamEvent(raw=raw, parts=(self._unknown(event_bytes(event), name_of(kind)),))
        else:  # this is inside a text block that may not have been sent yet
            yield UpstreamEvent(raw=raw if self.fields is None else b"", parts=(_withheld(name_of(kind)),))

    def _text(self, index: int, block: TextBlock, text: Any) -> Sequence[ReplyPart]:
        if not isinstance(text, str) or not text:
            return ()
        block.said.append(text)
        if block.place is None and text.strip():
            block.place = self._chars + len(text) - len(text.lstrip())
        self._chars += len(text)
        return (TextDelta(choice=0, text=text, frame=Frame(json={"index": index})),)

    def _block_stop(self, raw: bytes, event: _Json) -> Iterator[UpstreamEvent]:
        index = index_of(event)
        block = self._texts.get(index)
        clean = {"type": "content_block_stop", "index": index}
        more = _more(event, clean)
        clean = self._kept(event, clean)
        if block is None:
            known = [Passthrough(raw=event_bytes(clean), choice=0)] if index in self._others else []
            yield UpstreamEvent(raw=raw, parts=(*known, *more))
            return
        cited = []
        for position, tail in enumerate(block.tail):
            citation = delta_of(tail)["citation"]
            if block.place is not None:
                cited.append(self._references.cited(citation, block.place))
            block.tail[position] = self._citation(index, self._references.renumbered(citation))
        self._stop = raw, event_bytes(clean), (*cited, *more)

    def _message_delta(self, raw: bytes, event: _Json) -> Iterator[UpstreamEvent]:
        clean, usage = cleaning.message_delta(event, self._stops), event.get("usage")
        more = _more(event, clean)
        delta = clean["delta"]
        reason = delta.get("stop_reason")
        tokens = usage.get("output_tokens") if isinstance(usage, dict) else None
        if "stop_reason" in delta:  # clients reject reasons that they don't know
            event = {**event, "delta": {**delta_of(event), "stop_reason": reason}}
        frame = Frame(json=self._kept(event, clean))
        prompt = input_tokens(usage)
        self._usage = Usage(
            prompt_tokens=self._prompt_tokens if prompt is None else prompt,
            completion_tokens=token_count(tokens),
            frame=frame if reason else None,
        )
        if (delta.get("stop_details") or {}).get("explanation"):
            more = (*more, Passthrough(raw=b"", choice=0, unchecked="refusal"))
        if reason:
            self._finished = True
            finish = ChoiceFinish(choice=0, reason=reason, frame=frame, cut=reason in _CUT)
            yield UpstreamEvent(raw=raw, parts=(*more, finish, self._usage))
        else:
            yield UpstreamEvent(raw=raw, parts=(*more, Passthrough(raw=event_bytes(frame.json)), self._usage))

    def _message_stop(self, raw: bytes, event: _Json) -> Iterator[UpstreamEvent]:
        if self._finished or _PLAIN_STOP.fullmatch(raw):
            yield UpstreamEvent(raw=raw, parts=(EndOfReply(raw),))
        else:  # without a stop reason, the client can't see that the reply is complete
            yield UpstreamEvent(raw=raw, parts=(self._usage,))
            yield UpstreamEvent(raw=b"", parts=(EndOfReply(),))

    def _error(self, raw: bytes, event: _Json) -> Iterator[UpstreamEvent]:
        clean = cleaning.error(event)
        sent = event_bytes(self._kept(event, clean))
        yield UpstreamEvent(raw=raw, parts=(ReplyError(message=clean["error"]["message"], raw=sent),))


_BY_TYPE: Mapping[str, Callable[[MessageDecoder, bytes, _Json], Iterator[UpstreamEvent]]] = {
    "message_start": MessageDecoder._message_start,
    "content_block_start": MessageDecoder._block_start,
    "content_block_delta": MessageDecoder._block_delta,
    "content_block_stop": MessageDecoder._block_stop,
    "message_delta": MessageDecoder._message_delta,
    "message_stop": MessageDecoder._message_stop,
    "error": MessageDecoder._error,
}


def _unknown_in(event: _Json) -> str:
    """Return the unknown type in an event without known fields: the type of the event, of its block or of its delta."""
    if event.get("type") in ("content_block_start", "content_block_delta"):
        event = block_of(event) or delta_of(event)
    return name_of(event.get("type"))


def _withheld(name: str) -> Passthrough:
    """Build a part for content that is reported as unchecked, and is left out if text is held."""
    return Passthrough(raw=b"", choice=0, unchecked=name, opaque=True)


def _more(event: _Json, clean: _Json) -> tuple[ReplyPart, ...]:
    """Report content of ``event`` that is missing from ``clean``."""
    return (_withheld("unknown_fields"),) if cleaning.says_more(event, clean) else ()
