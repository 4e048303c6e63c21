"""Encodes outputs as events of the Messages API."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from app.protocols.anthropic_messages.document_numbers import DocumentNumbers, document_key
from app.protocols.anthropic_messages.event_types import (
    EMPTY_TEXT,
    TextBlock,
    block_of,
    delta_of,
    error_event,
    event_bytes,
    index_of,
    parse_event,
)
from app.protocols.common.stream_events import (
    TOO_LONG,
    ChoiceEnd,
    EndOfReply,
    EstimatedUsage,
    JudgedClaims,
    Output,
    Passthrough,
    ReleasedText,
    ReplacementText,
    ReplyError,
    ReplyRefusal,
    SupportingPassage,
    Usage,
)

_REFUSED: Mapping[str, Any] = {
    "stop_reason": "refusal",
    "stop_sequence": None,
    "stop_details": {"type": "refusal", "category": None, "explanation": "A grounding policy blocked the reply."},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """The block that the client currently sees as open. ``ours`` means that the gateway opened it when its first text
    was released."""

    index: int
    number: int
    text: bool
    ours: bool


class MessageEncoder:
    """Writes one message.

    If the text of a block is held, the block is opened when its first text is released, and closed when the next output
    is released. A block without remaining text is left out, and later blocks are renumbered. ``texts`` contains the
    upstream's text blocks by their index.
    """

    def __init__(self, texts: Mapping[int, TextBlock], references: DocumentNumbers) -> None:
        self._texts = texts
        self._references = references
        self._numbers: dict[int, int] = {}
        self._open: _Open | None = None
        self._support: list[SupportingPassage] = []
        self._ended: ChoiceEnd | None = None
        self._complete = False
        self._decided = 0
        self._withheld: list[str] = []

    def write(self, output: Output) -> bytes:
        match output:
            case Passthrough(raw=raw):
                return self._passing(raw)
            case ReleasedText():
                return self._released(output)
            case JudgedClaims():
                return self._judged(output)
            case ReplacementText(text=text):
                return self._enter_any() + self._text(text)
            case ChoiceEnd():
                self._ended = output
                return self._close(whole=not output.blocked)
            case Usage(frame=frame):
                return self._message_delta(frame.json if frame is not None else {})
            case EstimatedUsage(completion_tokens=tokens):
                return self._message_delta({"usage": {"output_tokens": tokens}})
            case EndOfReply(raw=raw):
                return self._end(raw)
            case ReplyRefusal() | ReplyError():
                return _error(output)
        return b""  # a ``FrameRemainder``, which is empty, because text events of this API contain nothing else

    def _end(self, raw: bytes) -> bytes:
        if self._ended is None:  # the reply is forwarded unchanged
            return raw
        return event_bytes({"type": "message_stop"}) if raw or self._complete else b""

    # Blocks

    def _passing(self, raw: bytes) -> bytes:
        """Encode an upstream event. The starts and ends of blocks are tracked. In other events, only the block number
        changes."""
        if b"content_block_st" not in raw and not (self._renumbers and b"content_block_delta" in raw):
            return raw
        event = parse_event(raw)
        kind = event.get("type")
        if kind == "content_block_start":
            return self._start(raw, event)
        if kind == "content_block_stop":
            return self._stop(raw, event)
        return self._numbered(raw, event) if kind == "content_block_delta" else raw

    @property
    def _renumbers(self) -> bool:
        return any(index != number for index, number in self._numbers.items())

    def _start(self, raw: bytes, event: dict[str, Any]) -> bytes:
        index = index_of(event)
        closed = self._close() if self._open is not None and self._open.ours else b""
        self._open = _Open(
            index=index, number=self._number(index), text=block_of(event).get("type") == "text", ours=False
        )
        return closed + self._numbered(raw, event)

    def _stop(self, raw: bytes, event: dict[str, Any]) -> bytes:
        index = index_of(event)
        block = self._texts.get(index)
        if block is not None and block.announced and index not in self._numbers:
            return b""  # none of its text remains
        tail = b"".join(self._tail(self._open, whole=True)) if self._open is not None else b""
        self._open = None
        return tail + self._numbered(raw, event)

    def _numbered(self, raw: bytes, event: Mapping[str, Any]) -> bytes:
        index = index_of(event)
        number = self._numbers.get(index, index)
        return raw if number == index else event_bytes({**event, "index": number})

    def _number(self, index: int) -> int:
        """Return the client's number for a block: the upstream's number minus the number of earlier text blocks that
        were left out."""
        left_out = sum(i < index and i not in self._numbers for i in self._texts)
        return self._numbers.setdefault(index, index - left_out)

    def _enter(self, index: int) -> bytes:
        """Open the text block with this upstream index, unless it is already open."""
        if self._open is not None and self._open.index == index:
            return b""
        closed = self._close()
        block = self._texts[index]
        return closed + self._begin(index, self._number(index), block.start, around=block.around)

    def _enter_any(self) -> bytes:
        """Continue the open text block, or open a new block after all others."""
        if self._open is not None and self._open.text:
            return b""
        closed = self._close()
        return closed + self._begin(-1, max(self._numbers.values(), default=-1) + 1, EMPTY_TEXT)

    def _begin(
        self, index: int, number: int, block: Mapping[str, Any], *, around: Mapping[str, Any] = MappingProxyType({})
    ) -> bytes:
        self._open = _Open(index=index, number=number, text=True, ours=True)
        return event_bytes({**around, "type": "content_block_start", "index": number, "content_block": dict(block)})

    def _close(self, *, whole: bool = True) -> bytes:
        """End the open block. ``whole`` means that its text is complete. Otherwise, the upstream's citations are left
        out, because they may be wrong."""
        if self._open is None:
            return b""
        opened, self._open = self._open, None
        stop = {"type": "content_block_stop", "index": opened.number}
        return b"".join(self._tail(opened, whole=whole)) + event_bytes(stop)

    def _tail(self, opened: _Open, *, whole: bool) -> Iterator[bytes]:
        """Yield the events that follow the text of a block: the upstream's citations, and the passages that support the
        text."""
        block = self._texts.get(opened.index)
        tail = block.tail if block is not None and whole else ()
        if opened.ours and block is not None:
            self._withhold(opened.index)
            tail = [event for event in tail if self._may_leave(block, delta_of(event)["citation"])]
            for event in tail:
                yield event_bytes({**event, "index": opened.number})
        told = {document_key(delta_of(event).get("citation") or {}) for event in [*tail, *self._before(opened)]}
        seen: list[dict[str, Any]] = []
        support, self._support = self._support, []
        for citation in map(self._references.citation, support):
            if citation not in seen and document_key(citation) not in told:
                seen.append(citation)
                yield self._delta(opened.number, {"type": "citations_delta", "citation": citation})

    def _before(self, opened: _Open) -> Sequence[Mapping[str, Any]]:
        """If this block contains no words, it only completes a sentence of the preceding text block. In that case,
        return the upstream's citations of the preceding block."""
        block = self._texts.get(opened.index)
        if block is None or any(map(_has_words, block.said)):
            return ()
        earlier = max((index for index in self._texts if index < opened.index), default=None)
        return self._texts[earlier].tail if earlier is not None else ()

    def _withhold(self, index: int) -> None:
        """Record which text was left out, up to the end of a block. By now, the policies have decided on all text up to
        that point."""
        numbers = list(self._texts)
        for number in numbers[self._decided : numbers.index(index) + 1]:
            self._decided += 1
            self._withheld.extend(text for _, text in self._texts[number].withheld() if text.strip())

    def _may_leave(self, block: TextBlock, citation: Mapping[str, Any]) -> bool:
        """Return whether a citation may be sent. The text that it belongs to must have been released. If the citation
        quotes withheld text, a document must contain the quotation."""
        said = "".join(block.said)
        begins = len(said) - len(said.lstrip())
        if any(at <= begins < at + len(text) for at, text in block.withheld()):
            return False
        quoted = [said for said in citation.values() if isinstance(said, str)] if self._withheld else []
        quotes = (said for said in quoted if any(_share(text, said) for text in self._withheld))
        return all(self._references.says(said) for said in quotes)

    # Text

    def _released(self, released: ReleasedText) -> bytes:
        pieces = _by_block(released)
        # The last block of a sentence may contain only its full stop. The citations therefore belong to the last block
        # that contains words.
        cited = max((place for place, (_, text) in enumerate(pieces) if _has_words(text)), default=len(pieces) - 1)
        written = []
        for position, (index, text) in enumerate(pieces):
            written.append(self._enter(index))
            self._texts[index].shown.append(text[released.lead :] if position == 0 else text)
            written.append(self._text(text, claims=released.claims if position == len(pieces) - 1 else ()))
            if position == cited:
                self._support.extend(released.support)
        return b"".join(written)

    def _judged(self, judged: JudgedClaims) -> bytes:
        """Encode verdicts on text that was already shown. If the text's block has already ended, nothing is sent,
        because no event may refer to an ended block."""
        if self._open is None or not self._open.text:
            return b""
        self._support.extend(judged.support)
        return self._text("", claims=judged.claims) if judged.claims else b""

    def _text(self, text: str, *, claims: Sequence[Mapping[str, Any]] = ()) -> bytes:
        told = {"grounding": {"claims": list(claims)}} if claims else {}
        number = self._open.number if self._open is not None else 0
        return self._delta(number, {"type": "text_delta", "text": text}, **told)

    def _delta(self, number: int, delta: Mapping[str, Any], **more: Any) -> bytes:
        return event_bytes({"type": "content_block_delta", "index": number, "delta": delta, **more})

    # The end

    def _message_delta(self, source: Mapping[str, Any]) -> bytes:
        """Build the second-to-last event, with the stop reason, the token counts and the findings."""
        ended = self._ended
        if ended is None:
            return b""
        self._complete = True
        event = {"type": "message_delta", "delta": {}, **source}
        if ended.blocked:
            event["delta"] = {**event["delta"], **_REFUSED}
        elif ended.reason == TOO_LONG:
            event["delta"] = {**event["delta"], "stop_reason": "max_tokens"}
        if ended.summary is not None:
            event["grounding"] = ended.summary
        return event_bytes(event)


_RUN = 4
"""The number of consecutive words that must match to count as a quotation."""


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _share(withheld: str, quoted: str) -> bool:
    """Return whether ``quoted`` contains ``withheld`` or several consecutive words of it. Differences in whitespace
    are ignored."""
    words, within = withheld.split(), " ".join(quoted.split())
    runs = (" ".join(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1)))
    return any(run in within for run in runs)


def _by_block(released: ReleasedText) -> list[tuple[int, str]]:
    """Split the released text by the upstream blocks in which it arrived. If text was removed from the beginning, the
    first block is shorter. A replacement belongs to the block in which the replaced text began."""
    came = "".join(piece.text for piece in released.slices)
    if not came.endswith(released.text):
        return [(int(released.slices[0].frame.json["index"]), released.text)]
    missing = len(came) - len(released.text)
    pieces: list[tuple[int, str]] = []
    for piece in released.slices:
        text = piece.text[missing:]
        missing = max(0, missing - len(piece.text))
        index = int(piece.frame.json["index"])
        if text and pieces and pieces[-1][0] == index:
            pieces[-1] = index, pieces[-1][1] + text
        elif text:
            pieces.append((index, text))
    return pieces


def _error(output: ReplyRefusal | ReplyError) -> bytes:
    if isinstance(output, ReplyRefusal):
        more = {"code": output.reason_code, "violations": list(output.decisions)}
        return error_event("invalid_request_error", output.reason, kind="grounding_policy_violation", **more)
    code = {} if output.code is None else {"code": output.code}
    return output.raw or error_event("api_error", output.message, **code)
