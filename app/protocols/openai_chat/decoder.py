"""Decodes upstream chunks of OpenAI Chat Completions into events."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from app.protocols.common.known_fields import REASONING, TOOL_CALLS, UNFIT, identifier, text_length, token_count
from app.protocols.common.sse import frame_of
from app.protocols.common.stream_events import (
    ChoiceFinish,
    Frame,
    Passthrough,
    ReplyError,
    ReplyPart,
    ReplyStart,
    TextDelta,
    UpstreamEvent,
    Usage,
)
from app.protocols.common.upstream_citations import cited_in
from app.protocols.openai_chat.fields import BY_KIND, KnownChunks

ENVELOPE = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
"""The fields that all chunks of a reply share."""
_PLAIN_DELTA = frozenset({"role", "content"})
_OF_ALL_CHOICES = frozenset({"usage", "x_groq", "prompt_filter_results"})
"""A chunk without choices must have at least one of these fields, because clients fail on an empty chunk."""
_MISPLACED = ("message", "text")
_CALLS = frozenset(BY_KIND[TOOL_CALLS])
_AFTER_TEXT = ("refusal", "audio", *BY_KIND[TOOL_CALLS])
_APART = frozenset({*BY_KIND[REASONING], *_AFTER_TEXT})
"""Fields whose content is handled separately from text."""


class ChunkReader:
    """Reads the chunks of one reply. The reply begins with the first chunk that names a model. With ``known``, chunks
    are rebuilt from known fields.
    """

    def __init__(self, known: KnownChunks | None = None) -> None:
        self._started = self._ended = False
        self._known = known

    def read(self, raw: bytes, chunk: dict[str, Any]) -> UpstreamEvent:
        said = _said(chunk) if self._known is None and not chunk.get("error") else None
        event = self._read_any(raw, chunk) if said is None else UpstreamEvent(raw=raw, parts=(said,))
        if self._started:
            return event
        model = chunk.get("model")
        if self._known is not None and identifier(model) is UNFIT:
            model = None
        if not isinstance(model, str) or chunk.get("error"):
            return event
        self._started = True
        return replace(event, parts=(ReplyStart(model=model), *event.parts))

    def _read_any(self, raw: bytes, chunk: dict[str, Any]) -> UpstreamEvent:
        """Read a chunk that may contain more than text."""
        if self._known is None:
            event = _read_chunk(raw, chunk, ended=self._ended)
        else:
            event = _read_known(self._known, raw, chunk, ended=self._ended)
        if others := other_chars(chunk, self._known):
            event = replace(event, others=others)
        self._ended = self._ended or any(isinstance(part, ChoiceFinish) for part in event.parts)
        return event


def other_chars(chunk: Mapping[str, Any], known: KnownChunks | None) -> int:
    """Return the number of generated characters in a chunk that aren't read as text."""
    choices, length = chunk.get("choices"), 0
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        for name, value in delta.items() if isinstance(delta, dict) else ():
            if name == "content" and isinstance(value, list):
                length += text_length(split_content(value)[1])
            elif name not in _PLAIN_DELTA and (known is None or name not in known.as_text):
                length += text_length(value)
    return length


def _read_known(known: KnownChunks, raw: bytes, chunk: dict[str, Any], *, ended: bool) -> UpstreamEvent:
    """Rebuild a chunk from known fields, and return its event. The upstream's annotations are read but not
    forwarded."""
    if chunk.get("error"):
        error = known.error(chunk["error"])
        return _read_chunk(frame_of(error), error)
    rebuilt = known.rebuild(chunk, raw)
    if not rebuilt["choices"] and not _OF_ALL_CHOICES & rebuilt.keys():
        return UpstreamEvent(raw=b"", parts=())
    event = _read_chunk(frame_of(rebuilt), rebuilt, ended=ended, judges=known.judges_reasoning)
    choices = chunk.get("choices")
    cited = [part for choice in (choices if isinstance(choices, list) else ()) for part in _cited(choice)]
    return UpstreamEvent(raw=event.raw, parts=(*cited, *event.parts)) if cited else event


def _cited(choice: Any) -> Iterator[ReplyPart]:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if isinstance(delta, dict) and delta.get("annotations"):
        index = choice.get("index")
        yield from cited_in(delta["annotations"], index if isinstance(index, int) and index >= 0 else 0)


def read_continued(chunk: dict[str, Any], like: Frame, *, judges: bool = False) -> UpstreamEvent:
    """Read a chunk of a further call. Its ids are replaced by those of the first call. The role is removed, because it
    has already been sent."""
    ours = {name: like.json[name] for name in ENVELOPE if name in like.json}
    chunk = {**chunk, **ours} if not chunk.get("error") else chunk
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and "role" in delta:
            rest = {name: value for name, value in delta.items() if name != "role"}
            choices = [{**choice, "delta": rest}]
            chunk = {**chunk, "choices": choices}
            if not _says_something(choices[0]) and _usage(chunk) is None:
                return UpstreamEvent(raw=b"", parts=())
    return _read_chunk(frame_of(chunk), chunk, judges=judges)


def _read_chunk(raw: bytes, chunk: dict[str, Any], *, ended: bool = True, judges: bool = False) -> UpstreamEvent:
    """Read a chunk. ``ended`` means that a choice has ended. Until then, a chunk with token counts is not treated as a
    usage chunk, because some upstreams send running counts in every chunk. ``judges`` means that reasoning is judged
    like text."""
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
    if usage is not None and (ended or not choices) and not any(_says_something(choice) for choice in choices):
        return UpstreamEvent(raw=raw, parts=(_read_usage(usage, Frame(json=chunk), raw),))
    parts: list[ReplyPart] = []
    for choice in choices:
        # If a chunk has several choices, each gets a separate frame. A single choice keeps the bytes of the chunk.
        alone = len(choices) == 1
        frame = chunk if alone else {**chunk, "choices": [choice]}
        parts.extend(_read_choice(raw if alone else b"", frame, choice, judges=judges))
    if usage is not None:
        parts.append(_read_usage(usage, None, b""))
    return UpstreamEvent(raw=raw, parts=parts or (Passthrough(raw=raw),))


def _said(chunk: dict[str, Any]) -> TextDelta | None:
    """If a chunk contains only text, as most chunks do, return the text. Otherwise, return None."""
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
    """Return the token counts, from the usual field or from Groq's field."""
    vendor = chunk.get("x_groq")
    for holder in (chunk, vendor if isinstance(vendor, dict) else {}):
        if isinstance(usage := holder.get("usage"), dict):
            return usage
    return None


def _read_usage(usage: Mapping[str, Any], frame: Frame | None, raw: bytes) -> Usage:
    prompt, completion = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens"))
    return Usage(prompt_tokens=prompt, completion_tokens=completion, frame=frame, raw=raw)


def _says_something(choice: Mapping[str, Any]) -> bool:
    """Return whether a choice has any content. In chunks with token counts, some upstreams send an empty choice as a
    placeholder."""
    delta = choice.get("delta")
    said = isinstance(delta, dict) and any(
        value not in (None, [], "") for name, value in delta.items() if name != "role"
    )
    return said or bool(choice.get("finish_reason"))


def _read_choice(
    raw: bytes, chunk: Mapping[str, Any], choice: Mapping[str, Any], *, judges: bool = False
) -> Iterator[ReplyPart]:
    index = choice.get("index")
    index = index if isinstance(index, int) and index >= 0 else 0
    if misplaced := [name for name in _MISPLACED if choice.get(name)]:
        # This field isn't defined for streams. Its text may be a copy of the delta's text. Clients ignore it, and so
        # does the gateway.
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
    text, rest = split_content(delta.get("content"))
    extra = [name for name, value in delta.items() if name not in _PLAIN_DELTA and value not in (None, [], "")]
    reason = choice.get("finish_reason") or None
    is_mixed = len(extra) > 1 or text or rest or reason is not None
    if not _APART.isdisjoint(extra) and (is_mixed or (judges and extra[0] in BY_KIND[REASONING])):
        yield from _read_apart(chunk, choice, delta, index, judges=judges)
        return
    if delta.get("annotations"):
        yield from cited_in(delta["annotations"], index)
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
        # A chunk that ends a choice may have other content, which is forwarded in order. The finish reason is held
        # until the end of the choice.
        yield Passthrough(
            raw=frame_of(_without_text(chunk, choice, delta, rest)), choice=index, unchecked=_kind(extra, rest)
        )
    if reason is not None:
        yield ChoiceFinish(choice=index, reason=str(reason), frame=Frame(json=chunk))


def _read_apart(
    chunk: Mapping[str, Any], choice: Mapping[str, Any], delta: Mapping[str, Any], index: int, *, judges: bool
) -> Iterator[ReplyPart]:
    """Split a choice with several kinds of content into one frame per kind, because policies decide on each kind
    separately. Reasoning comes before the text, and everything else after it.
    """
    logprobs = choice.get("logprobs")
    logprobs = logprobs if isinstance(logprobs, dict) else {}

    def passed(name: str) -> Passthrough:
        kept = {"content": None, "refusal": logprobs["refusal"]} if name in logprobs and name == "refusal" else None
        frame, _ = _part(chunk, choice, [name], kept)
        return Passthrough(raw=frame_of(frame), choice=index, unchecked=name, call=name in _CALLS)

    reasoning = [name for name in BY_KIND[REASONING] if delta.get(name)]
    others = [name for name in delta if name not in _APART]
    if judges and reasoning:
        yield from _judged_reasoning(chunk, choice, reasoning, index)
        others = [name for name in others if name != "role"]
    else:
        yield from map(passed, reasoning)
    if any(delta[name] for name in others):
        kept = {**logprobs, **({"refusal": None} if "refusal" in logprobs else {})} or None
        yield from _read_choice(b"", *_part(chunk, choice, others, kept))
    yield from (passed(name) for name in _AFTER_TEXT if delta.get(name))
    if choice.get("finish_reason"):
        yield ChoiceFinish(choice=index, reason=str(choice["finish_reason"]), frame=Frame(json=chunk))


def _judged_reasoning(
    chunk: Mapping[str, Any], choice: Mapping[str, Any], names: Sequence[str], index: int
) -> Iterator[TextDelta]:
    """Yield the reasoning in each field that contains some, as text. If the delta has a role, the role comes first in a
    separate frame."""
    role = _part(chunk, choice, ["role"], None)[0] if choice["delta"].get("role") else None
    for name in names:
        frame, alone = _part(chunk, choice, [name], None)
        yield TextDelta(choice=index, text=alone["delta"][name], frame=Frame(json=frame, field=name), remainder=role)
        role = None


def _part(
    chunk: Mapping[str, Any], choice: Mapping[str, Any], names: Sequence[str], logprobs: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the chunk with only the fields ``names`` in its delta, and that chunk's choice."""
    said = {name: choice["delta"][name] for name in names}
    alone = {**choice, "delta": said, "finish_reason": None}
    if "logprobs" in choice:
        alone["logprobs"] = logprobs
    return {name: value for name, value in {**chunk, "choices": [alone]}.items() if name != "usage"}, alone


def split_content(content: Any) -> tuple[str, list[Any]]:
    """Split a content value into its text and its other parts."""
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
    """Remove the text, its log-probabilities and the finish reason from the chunk, and return the rest."""
    kept = {**choice, "delta": {**delta, "content": list(rest) if rest else ""}, "finish_reason": None}
    if choice.get("logprobs") is not None and _tokens(choice):
        kept["logprobs"] = None
    return {name: value for name, value in {**chunk, "choices": [kept]}.items() if name != "usage"}


def _tokens(choice: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [token for token in content if isinstance(token, dict)] if isinstance(content, list) else None


def _kind(extra: Sequence[str], rest: Sequence[Any]) -> str | None:
    """Return the name of the content that isn't judged, or None if there is none."""
    return extra[0] if extra else "content_parts" if rest else None
