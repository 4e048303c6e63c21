"""OpenAI Chat Completions: upstream chunks to events, outputs to chunks.

Under a grounding policy every frame is written from known fields. Otherwise a frame that needs no change is never
rebuilt: its own bytes are forwarded. A changed frame is patched, so that fields unknown to this code stay as they came.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any

from app.errors import UpstreamConnectError
from app.protocols.common.document_prompt import inject
from app.protocols.common.known_fields import REASONING, TOOL_CALLS, UNFIT, KnownFields, identifier
from app.protocols.common.sse_json import decode_chunks, done_frame, dump, frame_of, load
from app.protocols.common.stream_events import (
    ChoiceEnd,
    ChoiceFinish,
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
    ReplyPart,
    ReplyRefusal,
    ReplyStart,
    TextDelta,
    UpstreamEvent,
    Usage,
)
from app.protocols.common.upstream_citations import cited_in
from app.protocols.openai_chat.continuation import cannot_continue, continuing
from app.protocols.openai_chat.fields import BY_KIND, KnownChunks, rebuild_completion
from app.protocols.openai_chat.whole_reply import (
    CompletionBuilder,
    chunks_of,
    completion_of,
    total_of,
    without_annotations,
)
from judges.types import Chunk

_PLAIN_DELTA = frozenset({"role", "content"})
_OF_ALL_CHOICES = frozenset({"usage", "x_groq", "prompt_filter_results"})
"""What a chunk without choices can be about; clients stumble over one that is about nothing."""
_MISPLACED = ("message", "text")
_CALLS = frozenset(BY_KIND[TOOL_CALLS])
_AFTER_TEXT = ("refusal", "audio", *BY_KIND[TOOL_CALLS])
_APART = frozenset({*BY_KIND[REASONING], *_AFTER_TEXT})
"""Content that is told apart from text."""


class ChatAdapter:
    """Stateless; one serves all requests that no policy governs.

    ``fields``: the reply is written from known fields alone, and the adapter serves one request.
    """

    api = "chat.completions"
    path = "/chat/completions"

    def __init__(self, fields: KnownFields | None = None) -> None:
        self._fields = fields
        self._template: dict[str, Any] | None = None

    def restricted(self, fields: KnownFields) -> "ChatAdapter":
        return ChatAdapter(fields)

    def prompt_text(self, body: Mapping[str, Any]) -> str:
        return "\n".join(text for message in body["messages"] for text in _texts(message.get("content")))

    def inject(self, body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
        return inject(body, chunks, where=where)

    def decode(
        self, body: AsyncIterator[bytes], content_type: str, *, dropped: Collection[int] = ()
    ) -> AsyncGenerator[UpstreamEvent, None]:
        reader = _ChunkReader(self._fields)
        return decode_chunks(
            body,
            content_type,
            chunks_of=self._chunks_of,
            read=reader.read,
            fields=self._fields,
            shortcut=reader.read_alike if self._fields is not None else None,
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
        return decode_chunks(
            body,
            content_type,
            chunks_of=chunks_of,
            read=lambda _raw, chunk: _read_continued(chunk if known is None else known.rebuild(chunk), like),
            fields=self._fields,
        )

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
        """The body of a unary reply: the upstream's, with the delivered text and the findings."""
        if failure := next((output for output in outputs if isinstance(output, ReplyError)), None):
            raise UpstreamConnectError(failure.message)
        whole = load(body)
        template, streamed = (whole, False) if isinstance(whole, dict) else (completion_of(outputs), True)
        if self._template is not None:
            template = without_annotations(self._template)
        if not any(isinstance(output, ChoiceEnd) for output in outputs) and streamed:
            return dump(template)  # nothing was decided about it: it passes, in the requested format
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


class _ChunkReader:
    """Reads the chunks of one reply; the first that names a model begins it."""

    def __init__(self, fields: KnownFields | None = None) -> None:
        self._started = False
        self._known = KnownChunks(fields) if fields is not None else None

    def read(self, raw: bytes, chunk: dict[str, Any]) -> UpstreamEvent:
        event = _read_chunk(raw, chunk) if self._known is None else _read_known(self._known, raw, chunk)
        model = chunk.get("model")
        if self._known is not None and identifier(model) is UNFIT:
            model = None
        if self._started or not isinstance(model, str) or chunk.get("error"):
            return event
        self._started = True
        return UpstreamEvent(raw=event.raw, parts=(ReplyStart(model=model), *event.parts))

    def read_alike(self, data: bytes) -> UpstreamEvent | None:
        """The event of a chunk that differs from an earlier one in its text alone; None for any other."""
        if self._known is None or (alike := self._known.alike(data)) is None:
            return None
        said = TextDelta(choice=alike.choice, text=alike.text, frame=Frame(json=alike.chunk))
        return UpstreamEvent(raw=b"data: %b\n\n" % alike.data, parts=(said,))


def _read_known(known: KnownChunks, raw: bytes, chunk: dict[str, Any]) -> UpstreamEvent:
    """The event of a chunk from its known fields. The upstream's annotations are read and left out."""
    if chunk.get("error"):
        error = known.error(chunk["error"])
        return _read_chunk(frame_of(error), error)
    rebuilt = known.rebuild(chunk, raw)
    if not rebuilt["choices"] and not _OF_ALL_CHOICES & rebuilt.keys():
        return UpstreamEvent(raw=b"", parts=())
    event = _read_chunk(frame_of(rebuilt), rebuilt)
    cited = [part for choice in _objects(chunk.get("choices")) for part in _cited(choice)]
    return UpstreamEvent(raw=event.raw, parts=(*cited, *event.parts)) if cited else event


def _cited(choice: Mapping[str, Any]) -> Iterator[ReplyPart]:
    delta, index = choice.get("delta"), choice.get("index")
    if isinstance(delta, dict) and delta.get("annotations"):
        yield from cited_in(delta["annotations"], index if isinstance(index, int) and index >= 0 else 0)


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict)) if isinstance(values, list) else iter(())


def _read_continued(chunk: dict[str, Any], like: Frame) -> UpstreamEvent:
    """A chunk of a further call, with the ids of the first. Its role was sent already."""
    ours = {name: like.json[name] for name in _ENVELOPE if name in like.json}
    chunk = {**chunk, **ours} if not chunk.get("error") else chunk
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and "role" in delta:
            rest = {name: value for name, value in delta.items() if name != "role"}
            choices = [{**choice, "delta": rest}]
            chunk = {**chunk, "choices": choices}
            if not _says_something(choices[0]) and _usage(chunk) is None:
                return UpstreamEvent(raw=b"", parts=())
    return _read_chunk(frame_of(chunk), chunk)


def _read_chunk(raw: bytes, chunk: dict[str, Any]) -> UpstreamEvent:
    error = chunk.get("error")
    if error:
        message = error.get("message") if isinstance(error, dict) else error
        # The rest of the frame is not judged, so it is not released with the error.
        told = raw if len(chunk) == 1 else frame_of({"error": error})
        return UpstreamEvent(raw=raw, parts=(ReplyError(message=str(message), raw=told),))
    if (said := _said(chunk)) is not None:
        return UpstreamEvent(raw=raw, parts=(said,))
    given = chunk.get("choices")
    choices = [choice for choice in given if isinstance(choice, dict)] if isinstance(given, list) else []
    if given and len(choices) != len(given if isinstance(given, list) else (given,)):
        return UpstreamEvent(raw=raw, parts=(Passthrough(raw=raw, choice=0, unchecked="choices", opaque=True),))
    usage = _usage(chunk)
    if usage is not None and not any(_says_something(choice) for choice in choices):
        return UpstreamEvent(raw=raw, parts=(_read_usage(usage, Frame(json=chunk), raw),))
    parts: list[ReplyPart] = []
    for choice in choices:
        # Several choices in one chunk are separated; a single one keeps the chunk's own bytes.
        alone = len(choices) == 1
        parts.extend(_read_choice(raw if alone else b"", chunk if alone else {**chunk, "choices": [choice]}, choice))
    if usage is not None:
        parts.append(_read_usage(usage, None, b""))
    return UpstreamEvent(raw=raw, parts=parts or (Passthrough(raw=raw),))


def _said(chunk: dict[str, Any]) -> TextDelta | None:
    """The text of a chunk that has nothing else, as most chunks do; None for any other."""
    choices = chunk.get("choices")
    if chunk.get("usage") is not None or "x_groq" in chunk or type(choices) is not list or len(choices) != 1:
        return None
    choice = choices[0]
    if type(choice) is not dict or choice.get("finish_reason") is not None or choice.get("logprobs") is not None:
        return None
    index, delta = choice.get("index"), choice.get("delta")
    if type(index) is not int or index < 0 or type(delta) is not dict or len(delta) != 1:
        return None
    text = delta.get("content")
    if type(text) is not str or not text or choice.get("message") or choice.get("text"):
        return None
    return TextDelta(choice=index, text=text, frame=Frame(json=chunk))


def _usage(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The token counts: in the usual place, or where Groq puts them."""
    vendor = chunk.get("x_groq")
    for holder in (chunk, vendor if isinstance(vendor, dict) else {}):
        if isinstance(usage := holder.get("usage"), dict):
            return usage
    return None


def _read_usage(usage: Mapping[str, Any], frame: Frame | None, raw: bytes) -> Usage:
    prompt, completion = _count(usage, "prompt"), _count(usage, "completion")
    return Usage(prompt_tokens=prompt, completion_tokens=completion, frame=frame, raw=raw)


def _says_something(choice: Mapping[str, Any]) -> bool:
    """Whether a choice in a chunk with token counts is more than the empty placeholder that some upstreams send."""
    delta = choice.get("delta")
    said = isinstance(delta, dict) and any(
        value not in (None, [], "") for name, value in delta.items() if name != "role"
    )
    return said or bool(choice.get("finish_reason"))


def _read_choice(raw: bytes, chunk: Mapping[str, Any], choice: Mapping[str, Any]) -> Iterator[ReplyPart]:
    index = choice.get("index")
    index = index if isinstance(index, int) and index >= 0 else 0
    if misplaced := [name for name in _MISPLACED if choice.get(name)]:
        # Text where a stream has none, perhaps a copy of the delta's: clients ignore it, and so does the gateway.
        choice = {name: value for name, value in choice.items() if name not in _MISPLACED}
        raw, chunk = b"", {**chunk, "choices": [choice]}
        yield Passthrough(raw=b"", choice=index, unchecked=misplaced[0])
    delta = choice.get("delta")
    if delta is not None and not isinstance(delta, dict):
        raw, delta = b"", {}
        choice = {**choice, "delta": delta}
        chunk = {**chunk, "choices": [choice]}
        yield Passthrough(raw=b"", choice=index, unchecked="delta")
    delta = delta if isinstance(delta, dict) else {}
    text, rest = _split_content(delta.get("content"))
    extra = [name for name, value in delta.items() if name not in _PLAIN_DELTA and value not in (None, [], "")]
    reason = choice.get("finish_reason") or None
    if (len(extra) > 1 or text or rest or reason is not None) and not _APART.isdisjoint(extra):
        yield from _read_apart(chunk, choice, delta, index)
        return
    yield from cited_in(delta.get("annotations"), index)
    if not text and reason is None and (extra or rest or not _tokens(choice)):
        passed = raw or frame_of(chunk)
        yield Passthrough(raw=passed, choice=index, unchecked=_kind(extra, rest), call=not _CALLS.isdisjoint(extra))
        return
    if text or (not extra and not rest and _tokens(choice)):
        frame = Frame(json=chunk, tokens=_tokens(choice), as_list=isinstance(delta.get("content"), list))
        has_remainder = bool(extra or rest or delta.get("role"))
        remainder = _without_text(chunk, choice, delta, rest) if has_remainder else None
        if kind := _kind(extra, rest):
            yield Passthrough(raw=b"", choice=index, unchecked=kind)
        yield TextDelta(choice=index, text=text, frame=frame, remainder=remainder)
    elif extra or rest:
        # The rest of a finishing chunk passes in its place; the finish itself waits for the end.
        yield Passthrough(
            raw=frame_of(_without_text(chunk, choice, delta, rest)), choice=index, unchecked=_kind(extra, rest)
        )
    if reason is not None:
        yield ChoiceFinish(choice=index, reason=str(reason), frame=Frame(json=chunk))


def _read_apart(
    chunk: Mapping[str, Any], choice: Mapping[str, Any], delta: Mapping[str, Any], index: int
) -> Iterator[ReplyPart]:
    """A choice with content of several kinds: each in a frame of its own, since each is decided about by itself.
    Reasoning comes before the text, everything else after it."""
    logprobs = choice.get("logprobs")
    logprobs = logprobs if isinstance(logprobs, dict) else {}

    def part(names: Sequence[str], kept: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        said = {name: delta[name] for name in names}
        alone = {**choice, "delta": said, "finish_reason": None}
        if "logprobs" in choice:
            alone["logprobs"] = kept
        return {name: value for name, value in {**chunk, "choices": [alone]}.items() if name != "usage"}, alone

    def passed(name: str) -> Passthrough:
        kept = {"content": None, "refusal": logprobs["refusal"]} if name in logprobs and name == "refusal" else None
        frame, _ = part([name], kept)
        return Passthrough(raw=frame_of(frame), choice=index, unchecked=name, call=name in _CALLS)

    for name in BY_KIND[REASONING]:
        if delta.get(name):
            yield passed(name)
    others = [name for name in delta if name not in _APART]
    if any(delta[name] for name in others):
        kept = {**logprobs, **({"refusal": None} if "refusal" in logprobs else {})} or None
        yield from _read_choice(b"", *part(others, kept))
    for name in _AFTER_TEXT:
        if delta.get(name):
            yield passed(name)
    if choice.get("finish_reason"):
        yield ChoiceFinish(choice=index, reason=str(choice["finish_reason"]), frame=Frame(json=chunk))


def _split_content(content: Any) -> tuple[str, list[Any]]:
    """The text of a content, and its other parts."""
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        return "", [] if content is None else [content]
    texts, rest = [], []
    for part in content:
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            rest.append(part)
    return "".join(texts), rest


def _without_text(
    chunk: Mapping[str, Any], choice: Mapping[str, Any], delta: Mapping[str, Any], rest: Sequence[Any]
) -> dict[str, Any]:
    """The chunk without its text, the log-probabilities of that text, and its finish."""
    kept = {**choice, "delta": {**delta, "content": list(rest) if rest else ""}, "finish_reason": None}
    if choice.get("logprobs") is not None and _tokens(choice):
        kept["logprobs"] = None
    return {name: value for name, value in {**chunk, "choices": [kept]}.items() if name != "usage"}


def released_chunk(released: ReleasedText) -> dict[str, Any]:
    """The chunk with a released text: the frames it came in, merged; later frames win."""
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
    choice.update(index=released.choice, delta={"content": content}, finish_reason=None)
    if logprobs is not None:
        choice["logprobs"] = {"content": tokens, **logprobs}
    chunk["choices"] = [choice]
    if released.claims:
        chunk["grounding"] = {"claims": list(released.claims)}
    return chunk


def _chunk(frame: Frame, index: int, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """A chunk of our own, with the upstream's ids."""
    ours = {name: frame.json[name] for name in _ENVELOPE if name in frame.json}
    return {**ours, "choices": [{"index": index, "delta": dict(delta), "finish_reason": finish_reason}]}


_ENVELOPE = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


def _ended_chunk(ended: ChoiceEnd) -> dict[str, Any]:
    if ended.blocked:
        chunk = _chunk(ended.frame, ended.choice, {}, ended.reason)
    else:
        source = ended.frame.json["choices"][0]
        kept = {**source, "delta": {}, "finish_reason": ended.reason}
        if kept.get("logprobs") is not None:
            kept["logprobs"] = None
        chunk = {**ended.frame.json, "choices": [kept]}
    if ended.annotations:
        chunk["choices"][0]["delta"] = {"annotations": list(ended.annotations)}
    if ended.summary is not None:
        chunk["grounding"] = ended.summary
    return chunk


def _usage_frame(usage: Usage | EstimatedUsage) -> bytes:
    if isinstance(usage, Usage):
        if usage.raw or usage.frame is None:
            return usage.raw
        return frame_of({**usage.frame.json, "usage": total_of(usage)} if usage.before else usage.frame.json)
    ours = {name: usage.frame.json[name] for name in _ENVELOPE if name in usage.frame.json}
    counts = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    return frame_of({**ours, "choices": [], "usage": counts})


def _tokens(choice: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [token for token in content if isinstance(token, dict)] if isinstance(content, list) else None


def _kind(extra: Sequence[str], rest: Sequence[Any]) -> str | None:
    """A name for content that no judge looks at."""
    return extra[0] if extra else "content_parts" if rest else None


def _count(usage: Mapping[str, Any], side: str) -> int | None:
    value = usage.get(f"{side}_tokens")
    return value if isinstance(value, int) else None


def _texts(content: Any) -> Iterator[str]:
    text, _ = _split_content(content)
    if text:
        yield text
