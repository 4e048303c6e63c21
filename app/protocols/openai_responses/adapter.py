"""The protocol adapter of the Responses API. An adapter keeps the state of the reply, so each request needs a new
one."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any

from app.errors import GatewayError, UpstreamConnectError
from app.protocols.common.known_fields import KnownFields, repeats_a_key
from app.protocols.common.sse import dump, read_object
from app.protocols.common.stream_events import Output, ReplyError, UpstreamEvent
from app.protocols.openai_responses.decoder import ResponseDecoder, usage_of
from app.protocols.openai_responses.encoder import ResponseEncoder
from app.protocols.openai_responses.event_types import frame_of
from app.protocols.openai_responses.fields import rebuild_usage
from app.protocols.openai_responses.prompt import inject, prompt_text
from app.protocols.openai_responses.whole_reply import events_of
from judges.types import Chunk

_NO_OUTPUT = "The upstream's reply has no output."


class ResponsesAdapter:
    """The adapter for one request to OpenAI's ``POST /v1/responses``."""

    api = "responses"
    judges_reasoning = False
    path = "/responses"

    def __init__(self, fields: KnownFields | None = None) -> None:
        self._fields = fields
        self._reader = ResponseDecoder(fields)
        self._writer = ResponseEncoder(self._reader)

    def restricted(self, fields: KnownFields) -> "ResponsesAdapter":
        return ResponsesAdapter(fields)

    def prompt_text(self, body: Mapping[str, Any]) -> str:
        return prompt_text(body)

    def inject(self, body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
        return inject(body, chunks, where=where)

    async def decode(
        self, body: AsyncIterator[bytes], content_type: str, *, dropped: Collection[int] = ()
    ) -> AsyncGenerator[UpstreamEvent, None]:
        if "event-stream" not in content_type:
            whole = b"".join([data async for data in body])
            response = read_object(whole)
            if self._fields is not None and repeats_a_key(whole, response):
                self._fields.leave_out("repeated_key")
            for event in self._whole(response):
                yield event
            return
        try:
            async for data in body:
                for event in self._reader.feed(data):
                    yield event
        except GatewayError:
            for event in self._reader.settle():
                yield event
            raise
        for event in self._reader.close():
            yield event

    def encode(self, output: Output) -> bytes:
        return self._writer.encode(output)

    def collect(self, body: bytes, outputs: Sequence[Output]) -> bytes:
        """Return the final response object for ``outputs``. Raises UpstreamConnectError if there is none."""
        for output in outputs:
            self._writer.encode(output)
        final = self._writer.final
        if final is not None:
            return dump(final)
        failure = next((output for output in outputs if isinstance(output, ReplyError)), None)
        if failure is None or failure.broken:
            raise UpstreamConnectError(failure.message if failure is not None else _NO_OUTPUT)
        raise UpstreamConnectError(f"The upstream reported an error: {failure.message}")

    def _whole(self, response: Mapping[str, Any]) -> Iterator[UpstreamEvent]:
        if not isinstance(response.get("output"), list) and not response.get("error"):
            raise UpstreamConnectError(_NO_OUTPUT)
        given = response
        if self._fields is not None and isinstance(response.get("usage"), dict):
            given = {"usage": rebuild_usage(response["usage"], self._fields)}
        usage = usage_of(given)
        if usage is not None:  # the usage comes first, so that it is known even if the reply is blocked
            yield UpstreamEvent(raw=b"", parts=(usage,))
        for event in events_of(response):
            yield from self._reader.read(frame_of(event), event)
        yield from self._reader.close()
