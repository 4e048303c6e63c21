"""The adapter for OpenAI's plain (legacy) completions, which have ``choices[].text`` instead of messages.

Each request needs a new adapter. The reply may repeat the prompt (``echo``), and the adapter must recognize the prompt
in it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from app.errors import GatewayError, UpstreamConnectError
from app.protocols.common.document_prompt import documents_block
from app.protocols.common.known_fields import UNKNOWN, KnownFields, token_count
from app.protocols.common.logprobs import entries_of, logprobs_of, within
from app.protocols.common.sse import decode_chunks, dump, frame_of, load
from app.protocols.common.stream_events import (
    ChoiceEnd,
    ChoiceFinish,
    EndOfReply,
    Frame,
    JudgedClaims,
    Output,
    Passthrough,
    ReleasedText,
    ReplacementText,
    ReplyError,
    ReplyPart,
    ReplyStart,
    TextDelta,
    UpstreamEvent,
    Usage,
)
from app.protocols.documents.parsed_request import read_choices
from app.protocols.openai_chat.adapter import ChatAdapter
from app.protocols.openai_chat.fields import known_error
from app.protocols.openai_completions.echo import Echo, Prompts
from app.protocols.openai_completions.encoder import CompletionEncoder, chunks_of, reply_of
from app.protocols.openai_completions.fields import ENVELOPE, index_of, rebuild
from app.protocols.openai_completions.request import read_prompts
from judges.types import Chunk

_CHAT = ChatAdapter()
"""Encodes outputs other than text, which have the same format in both APIs."""


class CompletionsAdapter:
    """The adapter for one request. ``body`` is the request body."""

    api = "completions"
    judges_reasoning = False
    path = "/completions"

    def __init__(self, body: Mapping[str, Any]) -> None:
        texts = read_prompts(body.get("prompt")) if body.get("echo") else ()
        self._prompts = Prompts(texts=texts, choices=read_choices(body))
        self._echoes: dict[int, Echo] = {}
        self._reply = CompletionEncoder()
        self._started = False
        self._envelope: Mapping[str, Any] = {}
        self._fields: KnownFields | None = None
        self._template: Mapping[str, Any] | None = None

    def restricted(self, fields: KnownFields) -> "CompletionsAdapter":
        self._fields = fields
        return self

    def prompt_text(self, body: Mapping[str, Any]) -> str:
        suffix = body.get("suffix")
        texts = [text for text in read_prompts(body.get("prompt")) if text]
        return "\n".join([*texts, suffix] if isinstance(suffix, str) else texts)

    def inject(self, body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
        """Return a copy of the body with the documents before the prompt. If there are several prompts, the documents
        are added to each. ``where`` makes no difference."""
        block = f"{documents_block(chunks)}\n\n"
        prompts = [f"{block}{text}" for text in read_prompts(body.get("prompt"))]
        if self._prompts.texts:
            self._prompts = replace(self._prompts, texts=prompts, hidden=len(block))
        return {**body, "prompt": prompts if isinstance(body.get("prompt"), list) else prompts[0]}

    def decode(
        self, body: AsyncIterator[bytes], content_type: str, *, dropped: Collection[int] = ()
    ) -> AsyncGenerator[UpstreamEvent, None]:
        events = decode_chunks(body, content_type, chunks_of=self._chunks_of, read=self._read, fields=self._fields)
        return self._until_end(events)

    async def _until_end(self, events: AsyncGenerator[UpstreamEvent, None]) -> AsyncGenerator[UpstreamEvent, None]:
        """Yield the events. Text may still be held at the end of the reply, because it could have been a repetition of
        the prompt. It is released before the end, even if the reply is cut off."""
        async with aclosing(events):
            try:
                async for event in events:
                    if any(isinstance(part, EndOfReply | ReplyError) for part in event.parts):
                        for rest in self._held():
                            yield rest
                    yield event
            except GatewayError:
                for rest in self._held():
                    yield rest
                raise
        for rest in self._held():
            yield rest

    def _held(self) -> Iterator[UpstreamEvent]:
        for index, echo in self._echoes.items():
            if echo.held:
                shown, parts = self._read_choice(self._envelope, {"index": index, "text": ""}, ends=True)
                yield UpstreamEvent(raw=frame_of(_single(self._envelope, shown)), parts=parts)

    def _chunks_of(self, completion: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if self._fields is not None and not completion.get("error"):
            completion = self._template = rebuild(completion, self._fields)
        return chunks_of(completion)

    def encode(self, output: Output) -> bytes:
        match output:
            case ReleasedText():
                return frame_of(self._reply.released(output))
            case JudgedClaims(choice=index, claims=claims, frame=frame):
                told = {**_chunk(frame, index, ""), "grounding": {"claims": self._reply.placed(claims, index)}}
                return frame_of(told) if claims else b""
            case ReplacementText(choice=index, text=text, frame=frame):
                return frame_of(_chunk(frame, index, text))
            case ChoiceEnd():
                return frame_of(self._ended(output))
            case _:
                return _CHAT.encode(output)

    def collect(self, body: bytes, outputs: Sequence[Output]) -> bytes:
        """Return the body of a unary reply: the upstream's body with the delivered text and the findings."""
        if failure := next((output for output in outputs if isinstance(output, ReplyError)), None):
            raise UpstreamConnectError(failure.message)
        whole = self._template if self._template is not None else load(body)
        streamed = not isinstance(whole, dict)
        return dump(self._reply.whole(reply_of(outputs) if streamed else whole, outputs, streamed=streamed))

    # In

    def _read(self, raw: bytes, chunk: dict[str, Any]) -> UpstreamEvent:
        if error := chunk.get("error"):
            if self._fields is not None:
                error = known_error(error, self._fields)
            message = error.get("message") if isinstance(error, dict) else error
            # The rest of the frame is not judged, so it is not released with the error.
            return UpstreamEvent(raw=raw, parts=(ReplyError(message=str(message), raw=frame_of({"error": error})),))
        left: Sequence[str] = ()
        if self._fields is not None:
            chunk = rebuild(chunk, self._fields)
            raw, left = frame_of(chunk) if raw else b"", self._fields.news()
        envelope = {name: value for name, value in chunk.items() if name not in ("choices", "usage")}
        self._envelope = envelope
        given = chunk.get("choices")
        choices = [choice for choice in given if isinstance(choice, dict)] if isinstance(given, list) else []
        if given and len(choices) != len(given if isinstance(given, list) else (given,)):
            return UpstreamEvent(raw=raw, parts=(Passthrough(raw=b"", choice=0, unchecked="choices", opaque=True),))
        parts: list[ReplyPart] = []
        if not self._started and isinstance(model := envelope.get("model"), str) and model != UNKNOWN:
            self._started = True
            parts.append(ReplyStart(model=model))
        first = index_of(choices[0], 0) if choices else 0
        parts.extend(Passthrough(raw=b"", choice=first, unchecked=name) for name in left)
        shown: list[Mapping[str, Any]] = []
        for choice in choices:
            told, read = self._read_choice(envelope, choice)
            shown.append(told)
            parts.extend(read)
        if raw and any(told is not choice for told, choice in zip(shown, choices, strict=True)):
            raw = frame_of({**chunk, "choices": shown})
        if self._fields is None or "choices" in chunk or "usage" in chunk:
            parts.extend(_rest(chunk, envelope, choices, left))
        return UpstreamEvent(raw=raw, parts=parts)

    def _read_choice(
        self, envelope: Mapping[str, Any], given: Mapping[str, Any], *, ends: bool = False
    ) -> tuple[Mapping[str, Any], Sequence[ReplyPart]]:
        """Return two values: the choice as the client sees it if no text is held, and the parts of the choice. ``ends``
        means that the choice ends here, even if it has no finish reason."""
        index = index_of(given, 0)
        echo = self._echoes.setdefault(index, self._prompts.echo(index))
        if self._fields is not None:
            whole = echo.hold(given, ends=ends or bool(given.get("finish_reason")))
            if whole is None:
                return {**given, "text": "", "logprobs": None}, ()
            given = whole
        choice = {**given, "index": index}
        said = choice.get("text")
        text = said if isinstance(said, str) else ""
        hidden, repeated = echo.take(text)
        entries = entries_of(choice)
        self._reply.begin(index, entries, hidden)
        parts: list[ReplyPart] = []
        if text or choice.get("finish_reason"):
            parts.extend(self._parts(envelope, {**choice, "text": text}, entries, index, hidden, repeated))
        elif self._fields is None or isinstance(said, str):
            parts.append(Passthrough(raw=frame_of(_single(envelope, choice)), choice=index))
        if not self._reply.hides(index):
            return given, parts
        return self._reply.moved(_between({**choice, "text": text}, entries, hidden, len(text)), index), parts

    def _parts(
        self,
        envelope: Mapping[str, Any],
        choice: Mapping[str, Any],
        entries: Sequence[Mapping[str, Any]] | None,
        index: int,
        hidden: int,
        repeated: int,
    ) -> Iterator[ReplyPart]:
        text = choice["text"]
        if repeated > hidden:
            shown = self._reply.echoed(_between(choice, entries, hidden, repeated), index)
            raw = frame_of(_single(envelope, {**shown, "finish_reason": None}))
            yield Passthrough(raw=raw, choice=index, unchecked="echo")
        if len(text) > repeated:
            rest = _between(choice, entries, repeated, len(text)) if repeated else choice
            frame = Frame(json=_single(envelope, rest), tokens=entries_of(rest))
            yield TextDelta(choice=index, text=text[repeated:], frame=frame)
        yield from self._finish(envelope, choice, index)

    def _finish(self, envelope: Mapping[str, Any], choice: Mapping[str, Any], index: int) -> Iterator[ReplyPart]:
        if choice.get("finish_reason"):
            yield ChoiceFinish(
                choice=index, reason=str(choice["finish_reason"]), frame=Frame(json=_single(envelope, choice))
            )

    # Out

    def _ended(self, ended: ChoiceEnd) -> dict[str, Any]:
        if ended.blocked:
            chunk = _chunk(ended.frame, ended.choice, "", ended.reason)
        else:
            source = ended.frame.json["choices"][0]
            kept = {**source, "text": "", "finish_reason": ended.reason}
            if kept.get("logprobs") is not None:
                kept["logprobs"] = None
            chunk = {**ended.frame.json, "choices": [kept]}
        if annotations := self._reply.annotated(ended.annotations, ended.choice):
            chunk["choices"][0]["annotations"] = annotations
        if ended.summary is not None:
            chunk["grounding"] = self._reply.told(ended.summary, ended.choice)
        return chunk


def _chunk(frame: Frame, index: int, text: str, finish_reason: str | None = None) -> dict[str, Any]:
    """Build a new chunk with the upstream's ids."""
    ours = {name: frame.json[name] for name in ENVELOPE if name in frame.json}
    return {**ours, "choices": [{"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}]}


def _single(envelope: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk with only this choice."""
    return {**envelope, "choices": [choice]}


def _rest(
    chunk: Mapping[str, Any], envelope: Mapping[str, Any], choices: Sequence[Mapping[str, Any]], left: Sequence[str]
) -> Iterator[ReplyPart]:
    """Yield the content of a chunk other than its choices. If the chunk has token counts, yield them. If it has neither
    choices nor token counts, yield its envelope. ``left`` names the content that was left out of the chunk."""
    usage = chunk.get("usage")
    if isinstance(usage, dict):
        frame = {**envelope, "choices": [], "usage": usage}
        prompt, completion = (token_count(usage.get(f"{side}_tokens")) for side in ("prompt", "completion"))
        yield Usage(prompt_tokens=prompt, completion_tokens=completion, frame=None if choices else Frame(json=frame))
    elif not choices and not left:
        given = {"choices": chunk["choices"]} if "choices" in chunk else {}
        yield Passthrough(raw=frame_of({**envelope, **given}))


def _between(
    choice: Mapping[str, Any], entries: Sequence[Mapping[str, Any]] | None, start: int, end: int
) -> dict[str, Any]:
    """Return the choice with only the code points ``[start, end)`` of its text, and their log-probabilities."""
    cut = {**choice, "text": choice["text"][start:end]}
    if entries is not None:
        cut["logprobs"] = logprobs_of(choice["logprobs"], within(entries, choice["text"], start, end))
    return cut
