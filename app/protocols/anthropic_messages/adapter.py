"""The protocol adapter of the Messages API."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any

from app.errors import GatewayError, UpstreamConnectError
from app.protocols.anthropic_messages import prompt
from app.protocols.anthropic_messages.decoder import MessageDecoder
from app.protocols.anthropic_messages.document_numbers import DocumentNumbers
from app.protocols.anthropic_messages.encoder import MessageEncoder
from app.protocols.anthropic_messages.event_types import TextBlock, event_bytes, object_of
from app.protocols.anthropic_messages.fields import USAGE
from app.protocols.anthropic_messages.request import MessagesRequest
from app.protocols.anthropic_messages.whole_reply import events_of, message_of
from app.protocols.common.known_fields import UNFIT, KnownFields, repeats_a_key
from app.protocols.common.sse import EventTooLargeError, SSEEvent, SSEParser, dump, read_object
from app.protocols.common.stream_events import Output, ReplyError, UpstreamEvent
from judges.types import Chunk


class MessagesAdapter:
    """The adapter for one request. It keeps the state of the reply's blocks, so each request needs a new one."""

    api = "messages"
    judges_reasoning = False
    path = "/messages"

    def __init__(self, request: MessagesRequest) -> None:
        self._request = request
        self._fields: KnownFields | None = None
        self._chunks = request.parsed.chunks
        self._texts: dict[int, TextBlock] = {}
        self._writer = MessageEncoder(self._texts, DocumentNumbers(request.blocks, self._chunks))

    def restricted(self, fields: KnownFields) -> "MessagesAdapter":
        self._fields = fields
        return self

    def prompt_text(self, body: Mapping[str, Any]) -> str:
        return prompt.prompt_text(body)

    def inject(self, body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
        """Write ``chunks`` into the prompt. Only chunks from the ``documents`` field are written, because the others
        are already in the body."""
        standing = {block.document for block in self._request.blocks}
        given = [chunk for position, chunk in enumerate(self._chunks) if position not in standing]
        ours = [chunk for chunk in chunks if any(chunk is other for other in given)]
        return prompt.inject(body, ours, where=where) if ours else dict(body)

    async def decode(
        self, body: AsyncIterator[bytes], content_type: str, *, dropped: Collection[int] = ()
    ) -> AsyncGenerator[UpstreamEvent, None]:
        stops = self._request.parsed.body.get("stop_sequences")
        reader = MessageDecoder(
            DocumentNumbers(self._request.blocks, self._chunks, frozenset(dropped)),
            self._texts,
            model=self._request.parsed.model,
            stops=stops if isinstance(stops, list) else (),
            needs_start=not self._request.parsed.stream,
            fields=self._fields,
        )
        if "event-stream" not in content_type:
            whole = b"".join([data async for data in body])
            message = read_object(whole)
            if self._fields is not None and repeats_a_key(whole, message):
                self._fields.leave_out("repeated_key")
            for event in events_of(message):
                for read in reader.read(event_bytes(event), event):
                    yield read
            return
        parser = SSEParser()
        try:
            async for data in body:
                for read in _feed(parser, reader, data):
                    yield read
        except GatewayError:
            for read in reader.settle():
                yield read
            raise
        for read in _close(parser, reader):
            yield read

    def encode(self, output: Output) -> bytes:
        return self._writer.write(output)

    def collect(self, body: bytes, outputs: Sequence[Output]) -> bytes:
        """Return the body of a unary reply: the upstream's body with the delivered text and the findings.

        If the reply contains no message and no policy applies to it, ``body`` is returned unchanged. Raises
        UpstreamConnectError if the upstream reports an error instead of a reply.
        """
        failed = next((output for output in outputs if isinstance(output, ReplyError) and not output.broken), None)
        if failed is not None:
            raise UpstreamConnectError(f"The upstream reported an error: {failed.message}")
        message = message_of(b"".join(map(self.encode, outputs)))
        if message is None:
            return body
        whole = object_of(body)
        if whole is not None and "usage" in whole:
            usage = whole["usage"]
            known = usage if self._fields is None else self._fields.rebuild(usage, USAGE, "usage")
            message["usage"] = {} if known is UNFIT else known  # a blocked reply costs all of its tokens
        return dump(message)


def _feed(parser: SSEParser, reader: MessageDecoder, data: bytes) -> Iterator[UpstreamEvent]:
    try:
        events = parser.feed(data)
    except EventTooLargeError as error:
        raise UpstreamConnectError(f"The upstream's reply is malformed: {error}.") from None
    for parsed in events:
        yield from _read(reader, parsed)


def _close(parser: SSEParser, reader: MessageDecoder) -> Iterator[UpstreamEvent]:
    for parsed in parser.close():
        # The last event lacks its blank line. Add it, because the next event would otherwise become part of this one.
        yield from _read(reader, SSEEvent(parsed.raw + b"\n\n", parsed.data, parsed.event))
    yield from reader.settle()


def _read(reader: MessageDecoder, parsed: SSEEvent) -> Iterator[UpstreamEvent]:
    if parsed.data is None or not parsed.data.strip():
        yield from reader.without_data(parsed.raw)
        return
    event = object_of(parsed.data)
    if event is None:
        yield from reader.unread(parsed.raw)
    elif reader.fields is not None and repeats_a_key(parsed.data, event):
        yield from reader.unread(parsed.raw, "repeated_key")
    else:
        yield from reader.read(parsed.raw, event)
