"""The fields of a chat completion that may be sent under a grounding policy. Chunks are rebuilt from these fields."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from app.protocols.common.known_fields import (
    REASONING,
    TOOL_CALLS,
    UNFIT,
    UNKNOWN,
    UNREAD,
    ByType,
    Entry,
    KnownFields,
    Unread,
    always,
    anything,
    base64,
    boolean,
    code,
    count,
    identifier,
    normalised,
    number,
    one_of,
    padding,
    required,
    text,
)
from app.protocols.common.logprobs import spell
from app.protocols.common.stream_events import Frame, TextDelta, UpstreamEvent

_NAME = required(identifier, UNKNOWN)
_COUNTS = (
    "accepted_prediction_tokens", "audio_tokens", "cache_creation_tokens", "cache_write_tokens", "cached_tokens",
    "image_tokens", "reasoning_tokens", "rejected_prediction_tokens", "text_tokens",
)  # fmt: skip
_DETAILS: Entry = dict.fromkeys(_COUNTS, count)
USAGE: Entry = {
    "prompt_tokens": required(count, 0),
    "completion_tokens": required(count, 0),
    "total_tokens": required(count, 0),
    "prompt_tokens_details": _DETAILS,
    "completion_tokens_details": _DETAILS,
    "prompt_cache_hit_tokens": count,
    "prompt_cache_miss_tokens": count,
    "reasoning_tokens": count,
    "cost": number,
    "queue_time": number,
    "prompt_time": number,
    "completion_time": number,
    "total_time": number,
}
"""Token counts, including the fields of DeepSeek, OpenRouter and Groq."""

SERVICE_TIER = one_of("auto", "default", "flex", "scale", "priority")
FINISH_REASON = normalised(
    ("stop", "length", "tool_calls", "content_filter", "function_call"),
    {"max_tokens": "length", "model_length": "length", "tool_use": "tool_calls"},
    otherwise="stop",
)
_SEVERITY: Entry = {
    "filtered": boolean,
    "detected": boolean,
    "severity": one_of("safe", "low", "medium", "high"),
}
_FILTER_RESULTS: Entry = dict.fromkeys(
    (
        "hate", "self_harm", "sexual", "violence", "jailbreak", "indirect_attack", "profanity",
        "protected_material_code", "protected_material_text",
    ),
    _SEVERITY,
)  # fmt: skip
"""The results of Azure's content filter."""

_HEAD: Entry = {
    "id": _NAME,
    "created": required(count, 0),
    "model": _NAME,
    "system_fingerprint": identifier,
    "service_tier": SERVICE_TIER,
    "usage": USAGE,
    "x_groq": {"id": identifier, "usage": USAGE},
    "prompt_filter_results": [{"prompt_index": count, "content_filter_results": _FILTER_RESULTS}],
}
CHUNK_HEAD: Entry = {**_HEAD, "object": always("chat.completion.chunk"), "obfuscation": padding}
COMPLETION_HEAD: Entry = {**_HEAD, "object": always("chat.completion")}

ERROR: Entry = ({"message": text, "type": identifier, "param": identifier, "code": code}, text)

_FUNCTION: Entry = {"name": _NAME, "arguments": text}
_CALL: Entry = {
    "index": count,
    "id": _NAME,
    "type": required(one_of("function", "custom"), "function"),
    "function": _FUNCTION,
    "custom": {"name": _NAME, "input": text},
}
_MESSAGE: Entry = {
    "content": (text, [ByType({"text": {"text": text}})]),
    "refusal": text,
    "reasoning_content": text,
    "reasoning": text,
    "tool_calls": [_CALL],
    "function_call": _FUNCTION,
    "audio": Unread({"id": identifier, "expires_at": count, "data": required(base64, ""), "transcript": always("")}),
}
_TOKEN: Entry = {"token": text, "logprob": number, "bytes": [count], "top_logprobs": anything}
_CHOICE: Entry = {
    "index": count,
    "finish_reason": FINISH_REASON,
    "logprobs": {"content": [_TOKEN], "refusal": [_TOKEN]},
    "content_filter_results": _FILTER_RESULTS,
}
CHUNK_CHOICES: Entry = [{**_CHOICE, "delta": {**_MESSAGE, "role": one_of("assistant")}}]
COMPLETION_CHOICES: Entry = [{**_CHOICE, "message": {**_MESSAGE, "role": always("assistant"), "annotations": anything}}]

BY_KIND: Mapping[str, tuple[str, ...]] = {
    REASONING: ("reasoning_content", "reasoning", "reasoning_details"),
    TOOL_CALLS: ("tool_calls", "function_call"),
}
"""The fields of a delta or message for each kind of content. The names for tool calls are also finish reasons."""

_PLAIN_CHOICE = frozenset({"index", "delta", "finish_reason", "logprobs"})
_MOST_CARRIED = 64
_AROUND = re.compile(
    rb'(?P<before>[^\r\n\\]*?"content" ?: ?")(?:[^"\\\r\n]|\\[^\r\n])*+(?P<after>"[^\r\n\\]*)', re.DOTALL
)
"""Matches a chunk, and captures the parts before and after its text. Only parts without escapes match, so every quote
in them delimits a string."""


_PADDING = b',"obfuscation":"'


class KnownChunks:
    """Rebuilds the chunks of one reply, in order.

    Log-probabilities are kept only if their tokens spell the text. If several tokens form one character, some of them
    may arrive before the character. These tokens are held until the chunk with the character arrives.
    """

    def __init__(self, fields: KnownFields) -> None:
        self.judges_reasoning = fields.judges_reasoning
        self.as_text = {
            *(BY_KIND[REASONING] if fields.judges_reasoning else ()),
            *(("refusal",) if UNREAD in fields.drops else ()),
        }
        """The fields of a delta that are read as text, in addition to the content."""
        self._fields = fields
        self._given: Mapping[str, Any] = {}
        self._head: dict[str, Any] = {}
        self._carried: dict[int, list[Mapping[str, Any]]] = {}
        self._around: tuple[bytes, bytes] | None = None
        self._choice_alike: Mapping[str, Any] = {}
        self._padded = False

    def read_alike(self, data: bytes) -> UpstreamEvent | None:
        """If the chunk in ``data`` differs only in its text from an earlier chunk that was rebuilt without losses,
        return its event. Otherwise, return None. This is a shortcut: most chunks match, so their fields need not be
        checked."""
        if self._around is None or self._carried:
            return None
        before, after = self._around
        if self._padded:
            data = _without_padding(data)
        if not data.startswith(before) or not data.endswith(after) or len(data) <= len(before) + len(after):
            return None
        content = data[len(before) : -len(after)]
        if b'"' in content or content.endswith(b"\\"):
            return None
        try:
            text = orjson.loads(b'"%b"' % content)
        except orjson.JSONDecodeError:
            return None
        chunk = {**self._head, "choices": [{**self._choice_alike, "delta": {"content": text}}]}
        said = TextDelta(choice=self._choice_alike["index"], text=text, frame=Frame(json=chunk))
        return UpstreamEvent(raw=b"data: %b\n\n" % data, parts=(said,))

    def rebuild(self, chunk: Mapping[str, Any], raw: bytes = b"") -> dict[str, Any]:
        given = dict(chunk)
        choices = given.pop("choices", None)
        given.pop("obfuscation", None)  # random for each chunk; see ``padding``
        if given != self._given:
            head = self._fields.rebuild(given, CHUNK_HEAD)
            if head != given:  # fields that are left out are counted for every chunk
                self._given, self._around = {}, None
                return self._with_choices(head, choices)
            self._given, self._head = given, head
        if not self._carried and _is_plain(choices):
            self._remember(raw, choices[0])
            return {**self._head, "choices": choices}
        return self._with_choices(self._head, choices)

    def _remember(self, raw: bytes, choice: Mapping[str, Any]) -> None:
        """Record the bytes around the text of a chunk that was rebuilt without losses."""
        data = raw[len(b"data: ") : -len(b"\n\n")]
        unpadded = _without_padding(data)
        found = _AROUND.fullmatch(unpadded) if raw == b"data: %b\n\n" % data else None
        self._around = None
        if found is not None and b'"content"' not in found["after"]:
            self._around = found["before"], found["after"]
            self._choice_alike, self._padded = choice, len(unpadded) < len(data)

    def error(self, error: Any) -> dict[str, Any]:
        """Build the frame for an upstream error."""
        return {"error": known_error(error, self._fields)}

    def _with_choices(self, head: Mapping[str, Any], choices: Any) -> dict[str, Any]:
        if choices is None:
            return {**head, "choices": []}
        rebuilt = self._fields.rebuild(_read_refusals(choices, "delta", self._fields), CHUNK_CHOICES, "choices")
        if rebuilt is UNFIT:
            return {**head, "choices": []}
        if self._fields.drops or self._fields.judges_reasoning:
            rebuilt = [each for each in rebuilt if not _drop(each, "delta", self._fields)]
        return {**head, "choices": [self._choice(each) for each in rebuilt]}

    def _choice(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        """Return the choice with all fields that a chunk requires. Log-probabilities are kept only if they belong to
        its text."""
        whole = {"finish_reason": None, **choice, "index": choice.get("index") or 0, "delta": choice.get("delta") or {}}
        _join_content(whole["delta"])
        carried = self._carried.pop(whole["index"], [])
        if carried or whole.get("logprobs"):
            self._spell(whole, carried)
        return whole

    def _spell(self, choice: dict[str, Any], carried: list[Mapping[str, Any]]) -> None:
        delta = choice["delta"]
        logprobs, said = choice.get("logprobs") or {}, _text(delta.get("content"))
        own, refusal = list(logprobs.get("content") or ()), logprobs.get("refusal") or ()
        tokens = [*carried, *own]
        if not said and not refusal and tokens and len(tokens) <= _MOST_CARRIED:
            self._carried[choice["index"]] = tokens
            choice["logprobs"] = None
            return
        tokens = tokens if spell(tokens, said) else own
        choice["logprobs"] = spelled_logprobs({"content": tokens, "refusal": refusal}, delta, self._fields)


def known_error(error: Any, fields: KnownFields) -> Any:
    """Rebuild an error in a reply, so that it contains only known fields."""
    rebuilt = fields.rebuild(error, ERROR, "error")
    return rebuilt if rebuilt is not UNFIT and rebuilt else "The upstream reported an error."


def rebuild_completion(completion: Mapping[str, Any], fields: KnownFields) -> dict[str, Any]:
    """Rebuild a whole completion from its known fields. Its messages keep their annotations, which are read but not
    forwarded."""
    given = dict(completion)
    choices = given.pop("choices", None)
    whole: dict[str, Any] = fields.rebuild(given, COMPLETION_HEAD)
    choices = _read_refusals(choices, "message", fields)
    rebuilt = fields.rebuild(choices, COMPLETION_CHOICES, "choices") if choices is not None else []
    whole["choices"] = rebuilt if rebuilt is not UNFIT else []
    for choice in whole["choices"]:
        _drop(choice, "message", fields)
        if isinstance(message := choice.get("message"), dict):
            choice["message"] = message = {"role": "assistant", "content": None, **message}
            _join_content(message)
            if choice.get("logprobs"):
                choice["logprobs"] = spelled_logprobs(choice["logprobs"], message, fields)
    return whole


def _read_refusals(choices: Any, name: str, fields: KnownFields) -> Any:
    """If a policy strips or blocks unjudged text, return ``choices`` with refusals converted to text, so that they are
    judged like any other text."""
    if UNREAD not in fields.drops or not isinstance(choices, list):
        return choices
    return [_with_refusal_as_text(choice, name) for choice in choices]


def _with_refusal_as_text(choice: Any, name: str) -> Any:
    said = choice.get(name) if isinstance(choice, dict) else None
    if not isinstance(said, dict) or not isinstance(refusal := said.get("refusal"), str):
        return choice
    content = said.get("content")
    if isinstance(content, list):
        content = [*content, {"type": "text", "text": refusal}]
    else:
        content = f"{content}\n\n{refusal}" if isinstance(content, str) and content else refusal
    return {**choice, name: {**said, "content": content, "refusal": None}}


def _drop(choice: dict[str, Any], name: str, fields: KnownFields) -> bool:
    """Remove content that a policy drops from the delta or message under ``name``. Return True if nothing is left of
    the choice.
    """
    said = choice.get(name)
    if not isinstance(said, dict):
        said = {}
    dropped = [each for kind in fields.drops for each in BY_KIND.get(kind, ()) if said.get(each)]
    if fields.judges_reasoning:
        dropped += _unjudged_reasoning(said)
    for each in dropped:
        value = said.pop(each)
        if each in BY_KIND[REASONING]:
            fields.dropped[REASONING] += len(value) if isinstance(value, str) else 1
        else:
            calls = value if isinstance(value, list) else [value]
            fields.dropped[TOOL_CALLS] += sum(_begins_call(call) for call in calls)
    reason = choice.get("finish_reason")
    if TOOL_CALLS in fields.drops and reason in BY_KIND[TOOL_CALLS]:
        choice["finish_reason"] = "stop"
    return bool(dropped) and not reason and not any(said.values())


def _unjudged_reasoning(said: Mapping[str, Any]) -> list[str]:
    """Return the fields whose reasoning isn't judged, because they aren't text or repeat the reasoning under another
    name."""
    given = [name for name in BY_KIND[REASONING] if said.get(name)]
    judged = next((name for name in given if isinstance(said[name], str)), None)
    return [name for name in given if name != judged]


def _begins_call(call: Any) -> bool:
    """Return whether this is the first piece of a tool call. Only the first piece contains the name of the tool."""
    function = call.get("function") or call.get("custom") or call if isinstance(call, dict) else {}
    return bool(function.get("name"))


def spelled_logprobs(
    logprobs: Mapping[str, Any], message: Mapping[str, Any], fields: KnownFields
) -> dict[str, Any] | None:
    """Return the ``logprobs`` if their tokens spell the text of ``message``, otherwise None. Alternative tokens contain
    other text, so they are removed.
    """
    texts = {"content": _text(message.get("content")), "refusal": _text(message.get("refusal"))}
    kept: dict[str, Any] = {}
    for name, said in texts.items():
        tokens = logprobs.get(name) or []
        if tokens and spell(tokens, said):
            kept[name] = [{**token, "top_logprobs": []} for token in tokens]
        else:
            kept[name] = None
            if tokens:
                fields.leave_out("choices.logprobs")
    return kept if any(kept.values()) else None


def _join_content(message: dict[str, Any]) -> None:
    """Convert content to a string, as the API defines it, if an upstream sends it as a list of text parts."""
    if isinstance(parts := message.get("content"), list):
        message["content"] = "".join(part.get("text") or "" for part in parts)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else ""


def _without_padding(data: bytes) -> bytes:
    """Return the chunk without the random padding that OpenAI adds to hide the length of the text."""
    at = data.rfind(_PADDING)
    return data[:at] + b"}" if at > 0 and data.endswith(b'"}') and data[at + len(_PADDING) : -2].isalnum() else data


def _is_plain(choices: Sequence[Any] | None) -> bool:
    """Return whether ``choices`` contains a piece of text and nothing else, as in most chunks."""
    if type(choices) is not list or len(choices) != 1:
        return False
    choice = choices[0]
    if type(choice) is not dict or choice.get("finish_reason") is not None or choice.get("logprobs") is not None:
        return False
    index, delta = choice.get("index"), choice.get("delta")
    return (
        type(delta) is dict
        and len(delta) == 1
        and type(delta.get("content")) is str
        and type(index) is int
        and index >= 0
        and choice.keys() <= _PLAIN_CHOICE
    )


def url_citations(annotations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the ``url_citation`` objects among ``annotations``. OpenAI's schema allows only this type in a chat
    message, and clients that validate replies would reject others."""
    return [annotation for annotation in annotations if annotation["type"] == "url_citation"]
