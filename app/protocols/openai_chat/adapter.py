"""Converts upstream chunks of OpenAI Chat Completions to events, and outputs to chunks.

Under a grounding policy, every frame is rebuilt from known fields. Without a policy, a frame that needs no change is
forwarded byte for byte. In a frame that must change, only the necessary fields are changed, so that unknown fields are
kept.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from app.errors import UpstreamConnectError
from app.protocols.common.document_prompt import inject
from app.protocols.common.known_fields import KnownFields
from app.protocols.common.sse import decode_chunks, done_frame, dump, frame_of, load
from app.protocols.common.stream_events import (
    ChoiceEnd,
    Continuation,
    EndOfReply,
    EstimatedUsage,
    Frame,
    FrameRemainder,
    JudgedClaims,
    Output,
    Passthrough,
    ReleasedText,
    ReplacementText,
    ReplyError,
    ReplyRefusal,
    UpstreamEvent,
    Usage,
)
from app.protocols.openai_chat.continuation import cannot_continue, continuing
from app.protocols.openai_chat.decoder import ENVELOPE, ChunkReader, other_chars, read_continued, split_content
from app.protocols.openai_chat.fields import KnownChunks, rebuild_completion, url_citations
from app.protocols.openai_chat.whole_reply import (
    CompletionBuilder,
    chunks_of,
    completion_of,
    total_of,
    without_annotations,
)
from judges.types import Chunk


class ChatAdapter:
    """The adapter for Chat Completions. Without ``fields``, it has no state, so one instance serves all requests. With
    ``fields``, an instance serves a single request, and rebuilds its reply only from known fields."""

    api = "chat.completions"
    judges_reasoning = True
    path = "/chat/completions"

    def __init__(self, fields: KnownFields | None = None) -> None:
        self._fields = fields
        self._template: dict[str, Any] | None = None

    def restricted(self, fields: KnownFields) -> "ChatAdapter":
        return ChatAdapter(fields)

    def prompt_text(self, body: Mapping[str, Any]) -> str:
        texts = [split_content(message.get("content"))[0] for message in body["messages"]]
        return "\n".join(filter(None, texts))

    def inject(self, body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
        return inject(body, chunks, where=where)

    def decode(
        self, body: AsyncIterator[bytes], content_type: str, *, dropped: Collection[int] = ()
    ) -> AsyncGenerator[UpstreamEvent, None]:
        known = KnownChunks(self._fields) if self._fields is not None else None
        return decode_chunks(
            body,
            content_type,
            chunks_of=self._chunks_of,
            read=ChunkReader(known).read,
            fields=self._fields,
            shortcut=known.read_alike if known is not None else None,
        )

    def _chunks_of(self, completion: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if self._fields is not None and not completion.get("error"):
            completion = self._template = rebuild_completion(completion, self._fields)
        return chunks_of(completion)

    def cannot_continue(self, body: Mapping[str, Any]) -> str | None:
        return cannot_continue(body)

    def continuing(self, body: Mapping[str, Any], continuation: Continuation) -> dict[str, Any]:
        return continuing(body, continuation)

    def decode_continued(
        self, body: AsyncIterator[bytes], content_type: str, like: Frame
    ) -> AsyncGenerator[UpstreamEvent, None]:
        known = KnownChunks(self._fields) if self._fields is not None else None

        def read(_raw: bytes, chunk: dict[str, Any]) -> UpstreamEvent:
            others = other_chars(chunk, known)
            if known is None:
                return replace(read_continued(chunk, like), others=others)
            rebuilt = known.error(chunk["error"]) if chunk.get("error") else known.rebuild(chunk)
            return replace(read_continued(rebuilt, like, judges=known.judges_reasoning), others=others)

        return decode_chunks(body, content_type, chunks_of=chunks_of, read=read, fields=self._fields)

    def encode(self, output: Output) -> bytes:
        match output:
            case Passthrough(raw=raw):
                return raw
            case FrameRemainder(json=json):
                return frame_of(json)
            case ReleasedText():
                return frame_of(released_chunk(output))
            case JudgedClaims(choice=index, claims=claims, frame=frame):
                told = {**_chunk(frame, index, {}), "grounding": {"claims": list(claims)}}
                return frame_of(told) if claims else b""
            case ReplacementText(choice=index, text=text, frame=frame):
                return frame_of(_chunk(frame, index, {"content": text}))
            case ChoiceEnd():
                return frame_of(_ended_chunk(output))
            case Usage() | EstimatedUsage():
                return _usage_frame(output)
            case EndOfReply(raw=raw):
                return done_frame(raw)
            case ReplyRefusal() | ReplyError():
                return _error_frame(output)

    def collect(self, body: bytes, outputs: Sequence[Output]) -> bytes:
        """Return the body of a unary reply: the upstream's body with the delivered text and the findings."""
        if failure := next((output for output in outputs if isinstance(output, ReplyError)), None):
            raise UpstreamConnectError(failure.message)
        whole = load(body)
        template, streamed = (whole, False) if isinstance(whole, dict) else (completion_of(outputs), True)
        if self._template is not None:
            template = without_annotations(self._template)
        if any(isinstance(output, ChoiceEnd) and output.again for output in outputs):
            # Choices are assembled from the outputs, not from the first reply. A part of the first reply was replaced,
            # so tool calls, for example, may differ.
            template, streamed = {**template, "choices": completion_of(outputs)["choices"]}, True
        if not any(isinstance(output, ChoiceEnd) for output in outputs) and streamed:
            return dump(template)  # the policies made no decision, so the whole reply is sent
        completion = CompletionBuilder(template, streamed=streamed)
        for output in outputs:
            completion.take(output)
        return dump(completion.body())


def _error_frame(output: ReplyRefusal | ReplyError) -> bytes:
    error: dict[str, Any]
    if isinstance(output, ReplyError):
        if output.raw:
            return output.raw
        error = {"message": output.message, "type": "upstream_error", "param": None, "code": output.code}
    else:
        code, violations = output.reason_code, list(output.decisions)
        error = {"message": output.reason, "type": "grounding_policy_violation", "param": None, "code": code}
        error["violations"] = violations
    return frame_of({"error": error})


def released_chunk(released: ReleasedText) -> dict[str, Any]:
    """Build the chunk for released text by merging its original frames. Later frames take precedence."""
    chunk: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    tokens: list[Mapping[str, Any]] = []
    logprobs: dict[str, Any] | None = None
    for piece in released.slices:
        source = piece.frame.json["choices"][0]
        chunk.update(piece.frame.json)
        choice.update(source)
        if isinstance(source.get("logprobs"), dict):
            logprobs = {"refusal": None} if "refusal" in source["logprobs"] else {}
        tokens.extend(piece.tokens)
    chunk.pop("usage", None)
    as_list = any(piece.frame.as_list for piece in released.slices)
    content = [{"type": "text", "text": released.text}] if as_list else released.text
    field = released.slices[0].frame.field
    said = {"content": content} if field is None else {field: released.text}
    choice.update(index=released.choice, delta=said, finish_reason=None)
    if logprobs is not None:
        choice["logprobs"] = {"content": tokens, **logprobs}
    chunk["choices"] = [choice]
    if released.claims:
        chunk["grounding"] = {"claims": list(released.claims)}
    return chunk


def _chunk(frame: Frame, index: int, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """Build a new chunk with the upstream's ids."""
    ours = {name: frame.json[name] for name in ENVELOPE if name in frame.json}
    return {**ours, "choices": [{"index": index, "delta": dict(delta), "finish_reason": finish_reason}]}


def _ended_chunk(ended: ChoiceEnd) -> dict[str, Any]:
    if ended.blocked:
        chunk = _chunk(ended.frame, ended.choice, {}, ended.reason)
    else:
        source = ended.frame.json["choices"][0]
        kept = {**source, "delta": {}, "finish_reason": ended.reason}
        if kept.get("logprobs") is not None:
            kept["logprobs"] = None
        chunk = {**ended.frame.json, "choices": [kept]}
    if annotations := url_citations(ended.annotations):
        chunk["choices"][0]["delta"] = {"annotations": annotations}
    if ended.summary is not None:
        chunk["grounding"] = ended.summary
    return chunk


def _usage_frame(usage: Usage | EstimatedUsage) -> bytes:
    if isinstance(usage, Usage):
        if usage.raw or usage.frame is None:
            return usage.raw
        return frame_of({**usage.frame.json, "usage": total_of(usage)} if usage.before else usage.frame.json)
    ours = {name: usage.frame.json[name] for name in ENVELOPE if name in usage.frame.json}
    counts = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    return frame_of({**ours, "choices": [], "usage": counts})
