"""Whole chat completions: cut into chunks on the way in, put together again on the way out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from app.dialects.summaries import merge_summaries
from app.parts import CountedUsage, Ended, Output, Passing, Released, Replacement, Shell, Usage


def chunks_of(completion: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A completion as the chunks of a stream that would have brought it: text, finish, and last the usage."""
    if completion.get("error"):
        yield dict(completion)
        return
    choices = completion.get("choices")
    shared = {name: value for name, value in completion.items() if name not in ("choices", "usage")}
    shared["object"] = "chat.completion.chunk"
    for position, choice in enumerate(choices if isinstance(choices, list) else ()):
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            continue
        kept = {name: value for name, value in choice.items() if name != "message"}
        kept.setdefault("index", position)
        yield {**shared, "choices": [{**kept, "delta": message, "finish_reason": None}]}
        reason = choice.get("finish_reason") or "stop"
        yield {**shared, "choices": [{**kept, "delta": {}, "logprobs": None, "finish_reason": reason}]}
    if isinstance(completion.get("usage"), dict):
        yield {**shared, "choices": [], "usage": completion["usage"]}


class Completion:
    """A completion that takes in what may be delivered of it. ``template`` is the upstream's."""

    def __init__(self, template: Mapping[str, Any]) -> None:
        self._template = template
        self._delivered: dict[int, list[Released]] = {}
        self._ends: dict[int, Ended] = {}

    def take(self, output: Output) -> None:
        match output:
            case Released():
                self._delivered.setdefault(output.choice, []).append(output)
            case Ended():
                self._ends[output.choice] = output

    def body(self) -> dict[str, Any]:
        body = dict(self._template)
        body["choices"] = [
            self._choice(position, choice) if isinstance(choice, dict) else choice
            for position, choice in enumerate(body.get("choices") or ())
        ]
        summaries = [end.summary for _, end in sorted(self._ends.items()) if end.summary is not None]
        if summaries:
            body["grounding"] = merge_summaries(summaries)
        return body

    def _choice(self, position: int, choice: Mapping[str, Any]) -> dict[str, Any]:
        index = choice.get("index", position)
        end = self._ends.get(index)
        message = choice.get("message")
        if end is None or not isinstance(message, dict):
            return dict(choice)
        changed = {**choice, "message": dict(message), "finish_reason": end.reason}
        original = message.get("content")
        if end.blocked:
            changed["message"]["content"] = end.text
            changed.pop("logprobs", None)
        elif isinstance(original, str) and end.text != original:
            changed["message"]["content"] = end.text
            _keep_tokens(changed, self._delivered.get(index, ()))
        elif isinstance(original, list):
            changed["message"]["content"] = _with_text(original, end.text)
        if end.annotations:
            changed["message"]["annotations"] = [*(message.get("annotations") or ()), *end.annotations]
        return changed


def completion_of(outputs: Sequence[Output]) -> dict[str, Any]:
    """A completion from the chunks of a stream that came where a whole reply was asked for."""
    completion: dict[str, Any] = {}
    messages: dict[int, dict[str, Any]] = {}
    ends: dict[int, str] = {}
    for output in outputs:
        for chunk in _chunks(output):
            completion = {**{n: v for n, v in chunk.items() if n not in ("choices", "grounding")}, **completion}
            if isinstance(chunk.get("usage"), dict):
                completion["usage"] = chunk["usage"]
            for choice in chunk.get("choices") or ():
                index = choice.get("index") or 0
                _merge_delta(messages.setdefault(index, {"role": "assistant", "content": None}), choice["delta"])
                if choice.get("finish_reason"):
                    ends[index] = choice["finish_reason"]
    completion["object"] = "chat.completion"
    completion["choices"] = [
        {"index": index, "message": message, "finish_reason": ends.get(index)}
        for index, message in sorted(messages.items())
    ]
    return completion


def _chunks(output: Output) -> Iterator[Mapping[str, Any]]:
    match output:
        case Passing(raw=raw) if raw:
            for line in raw.splitlines():
                data = line.removeprefix(b"data:").strip()
                if line.startswith(b"data:") and data.startswith(b"{"):
                    yield orjson.loads(data)
        case Shell(json=json):
            yield json
        case Released(choice=index, text=text, slices=slices):
            frame = slices[0].frame.json
            yield {**frame, "choices": [{"index": index, "delta": {"content": text}}]}
        case Ended(choice=index, frame=frame, reason=reason):
            yield {**frame.json, "choices": [{"index": index, "delta": {}, "finish_reason": reason}]}
        case Replacement(choice=index, text=text, frame=frame):
            yield {**frame.json, "choices": [{"index": index, "delta": {"content": text}}]}
        case Usage(frame=frame) if frame is not None:
            yield frame.json
        case CountedUsage(prompt_tokens=prompt, completion_tokens=completion):
            yield {
                "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
            }


def _merge_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls" and isinstance(value, list):
            for call in value:
                _merge_call(message.setdefault("tool_calls", []), call)
        elif name != "role" and isinstance(value, str) and isinstance(message.get(name), str):
            message[name] += value
        elif value is not None and value != "":
            message[name] = value


def _merge_call(calls: list[dict[str, Any]], piece: Mapping[str, Any]) -> None:
    index = piece.get("index", len(calls) - 1 if calls and not piece.get("id") else len(calls))
    while len(calls) <= index:
        calls.append({})
    call = calls[index]
    function = piece.get("function")
    call.update({name: value for name, value in piece.items() if name not in ("index", "function") and value})
    if isinstance(function, dict):
        merged = call.setdefault("function", {"arguments": ""})
        merged["arguments"] += function.get("arguments") or ""
        merged.update({name: value for name, value in function.items() if name != "arguments" and value})


def _keep_tokens(choice: dict[str, Any], delivered: Sequence[Released]) -> None:
    """Log-probabilities of text that was cut go with it."""
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        kept = [token for released in delivered for piece in released.slices for token in piece.tokens]
        choice["logprobs"] = {**logprobs, "content": kept}


def _with_text(parts: Sequence[Any], text: str) -> list[Any]:
    """Typed parts with their text replaced: the first text part holds all of it, the other ones go."""
    kept: list[Any] = []
    placed = False
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "text":
            if not placed:
                kept.append({**part, "text": text})
            placed = True
        else:
            kept.append(part)
    return kept
