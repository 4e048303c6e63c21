"""The fields of a chat completion that may leave under a grounding policy, and its chunks rebuilt from them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from app.protocols.common.known_fields import (
    REASONING,
    TOOL_CALLS,
    UNFIT,
    UNKNOWN,
    ByType,
    Entry,
    KnownFields,
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
"""Token counts, those of DeepSeek, OpenRouter and Groq too."""

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
"""What Azure says of its own content filter."""

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
    "audio": {"id": identifier, "expires_at": count, "data": required(base64, ""), "transcript": always("")},
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
"""The fields of a delta or message that hold content of a kind, and the reasons with which calls end a choice."""

_PLAIN_CHOICE = frozenset({"index", "delta", "finish_reason", "logprobs"})
_MOST_CARRIED = 64
_AROUND = re.compile(
    rb'(?P<before>[^\r\n\\]*?"content" ?: ?")(?:[^"\\\r\n]|\\[^\r\n])*+(?P<after>"[^\r\n\\]*)', re.DOTALL
)
"""A chunk, in what is before and after its text. No escape is there, so each quote is one."""


_PADDING = b',"obfuscation":"'


class Alike(Struct, frozen=True, kw_only=True):
    """A chunk of text that is like an earlier one. ``data`` is its JSON, without padding."""

    chunk: Mapping[str, Any]
    choice: int
    text: str
    data: bytes


class KnownChunks:
    """Rebuilds the chunks of one reply, in order.

    Log-probabilities stay only with the text that their tokens spell. The tokens of a character that takes several may
    come before it, so they wait for its chunk.
    """

    def __init__(self, fields: KnownFields) -> None:
        self._fields = fields
        self._given: Mapping[str, Any] = {}
        self._head: dict[str, Any] = {}
        self._carried: dict[int, list[Mapping[str, Any]]] = {}
        self._around: tuple[bytes, bytes] | None = None
        self._choice_alike: Mapping[str, Any] = {}
        self._padded = False

    def alike(self, data: bytes) -> Alike | None:
        """The chunk in ``data``, if it differs in its text alone from one that was rebuilt and lost nothing; None
        otherwise. Most chunks are like that, and none of their fields need be looked at."""
        if self._around is None or self._carried:
            return None
        before, after = self._around
        if self._padded:
            data = _without_padding(data)
        if not data.startswith(before) or not data.endswith(after) or len(data) <= len(before) + len(after):
            return None
        said = data[len(before) : -len(after)]
        if b'"' in said or said.endswith(b"\\"):
            return None
        try:
            text = orjson.loads(b'"%b"' % said)
        except orjson.JSONDecodeError:
            return None
        chunk = {**self._head, "choices": [{**self._choice_alike, "delta": {"content": text}}]}
        return Alike(chunk=chunk, choice=self._choice_alike["index"], text=text, data=data)

    def rebuild(self, chunk: Mapping[str, Any], raw: bytes = b"") -> dict[str, Any]:
        given = dict(chunk)
        choices = given.pop("choices", None)
        given.pop("obfuscation", None)  # differs each time; see ``padding``
        if given != self._given:
            head = self._fields.rebuild(given, CHUNK_HEAD)
            if head != given:  # what is left out is counted each time
                self._given, self._around = {}, None
                return self._with_choices(head, choices)
            self._given, self._head = given, head
        if not self._carried and _is_plain(choices):
            self._remember(raw, choices[0])
            return {**self._head, "choices": choices}
        return self._with_choices(self._head, choices)

    def _remember(self, raw: bytes, choice: Mapping[str, Any]) -> None:
        """Note the bytes around the text of a chunk that lost nothing."""
        data = raw[len(b"data: ") : -len(b"\n\n")]
        unpadded = _without_padding(data)
        found = _AROUND.fullmatch(unpadded) if raw == b"data: %b\n\n" % data else None
        self._around = None
        if found is not None and b'"content"' not in found["after"]:
            self._around = found["before"], found["after"]
            self._choice_alike, self._padded = choice, len(unpadded) < len(data)

    def error(self, error: Any) -> dict[str, Any]:
        """The frame of an upstream's error."""
        return {"error": known_error(error, self._fields)}

    def _with_choices(self, head: Mapping[str, Any], choices: Any) -> dict[str, Any]:
        if choices is None:
            return {**head, "choices": []}
        rebuilt = self._fields.rebuild(choices, CHUNK_CHOICES, "choices")
        if rebuilt is UNFIT:
            return {**head, "choices": []}
        if self._fields.drops:
            rebuilt = [each for each in rebuilt if not _drop(each, "delta", self._fields)]
        return {**head, "choices": [self._choice(each) for each in rebuilt]}

    def _choice(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        """The choice with all that a chunk must have, and with log-probabilities of its own text alone."""
        whole = {"index": 0, "delta": {}, "finish_reason": None, **choice}
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
    """The error that an upstream reports in a reply, from its known fields."""
    rebuilt = fields.rebuild(error, ERROR, "error")
    return rebuilt if rebuilt is not UNFIT and rebuilt else "The upstream reported an error."


def rebuild_completion(completion: Mapping[str, Any], fields: KnownFields) -> dict[str, Any]:
    """A whole completion from its known fields. Its messages keep their annotations, which are for reading alone."""
    given = dict(completion)
    choices = given.pop("choices", None)
    whole: dict[str, Any] = fields.rebuild(given, COMPLETION_HEAD)
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


def _drop(choice: dict[str, Any], name: str, fields: KnownFields) -> bool:
    """Take out of the delta or message under ``name`` what a policy drops. True if nothing of the choice is left."""
    said = choice.get(name)
    if not isinstance(said, dict):
        said = {}
    dropped = [each for kind in fields.drops for each in BY_KIND[kind] if said.get(each)]
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


def _begins_call(call: Any) -> bool:
    """Whether a piece of a tool call is its first: only that one has the name of the tool."""
    function = call.get("function") or call.get("custom") or call if isinstance(call, dict) else {}
    return bool(function.get("name"))


def spelled_logprobs(
    logprobs: Mapping[str, Any], message: Mapping[str, Any], fields: KnownFields
) -> dict[str, Any] | None:
    """Those of ``logprobs`` whose tokens spell the text of ``message``; None if there are none. Alternatives to a token
    spell other text, so none is left."""
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
    """Some upstreams send content as a list of text parts; the API has a string."""
    if isinstance(parts := message.get("content"), list):
        message["content"] = "".join(part.get("text") or "" for part in parts)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else ""


def _without_padding(data: bytes) -> bytes:
    """The chunk without the random letters by which OpenAI hides the length of its text."""
    at = data.rfind(_PADDING)
    return data[:at] + b"}" if at > 0 and data.endswith(b'"}') and data[at + len(_PADDING) : -2].isalnum() else data


def _is_plain(choices: Sequence[Any] | None) -> bool:
    """Whether ``choices`` bring one piece of text and nothing else: what most chunks do."""
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
