"""Splits a whole completion from the upstream into chunks, and assembles a completion for the client from chunks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.errors import UpstreamConnectError
from app.protocols.common.merge_choices import merge_summaries
from app.protocols.common.sse import load
from app.protocols.common.stream_events import (
    ChoiceEnd,
    EstimatedUsage,
    FrameRemainder,
    Output,
    Passthrough,
    ReleasedText,
    ReplacementText,
    Usage,
)
from app.protocols.openai_chat.fields import url_citations


def chunks_of(completion: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a completion into the chunks of an equivalent stream: the text, the finish reason, and finally the
    usage."""
    if completion.get("error"):
        yield dict(completion)
        return
    choices = completion.get("choices")
    shared = {**completion, "object": "chat.completion.chunk"}
    shared.pop("choices", None)
    shared.pop("usage", None)
    for position, choice in enumerate(choices if isinstance(choices, list) else ()):
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            continue
        # Choices are identified by position, because the upstream's index may be any value.
        kept = {**choice, "index": position}
        del kept["message"]
        said = {name: value for name, value in message.items() if name != "role" and value is not None}
        yield {**shared, "choices": [{**kept, "delta": said, "finish_reason": None}]}
        reason = choice.get("finish_reason") or "stop"
        kept.update(delta={}, logprobs=None, finish_reason=reason)
        yield {**shared, "choices": [kept]}
    if isinstance(completion.get("usage"), dict):
        yield {**shared, "choices": [], "usage": completion["usage"]}


class CompletionBuilder:
    """Builds the completion for the client from the delivered content. ``template`` is the upstream's completion.
    ``streamed`` means that ``template`` was assembled from a stream, so its choices are identified by index."""

    def __init__(self, template: Mapping[str, Any], *, streamed: bool = False) -> None:
        self._template = template
        self._streamed = streamed
        self._delivered: dict[int, list[ReleasedText]] = {}
        self._ends: dict[int, ChoiceEnd] = {}
        self._total: Mapping[str, Any] | None = None

    def take(self, output: Output) -> None:
        match output:
            case Usage() if output.before:
                self._total = total_of(output)
            case ReleasedText():
                self._delivered.setdefault(output.choice, []).append(output)
            case ChoiceEnd():
                self._ends[output.choice] = output

    def body(self) -> dict[str, Any]:
        """Return the completion with only the choices that were decided on.

        Raises UpstreamConnectError if there are choices but none is valid.
        """
        body = dict(self._template)
        given = body.get("choices")
        decided = [self._choice(*item) for item in enumerate(given if isinstance(given, list) else ())]
        body["choices"] = [choice for choice in decided if choice is not None]
        if given and not body["choices"]:
            raise UpstreamConnectError("The upstream's reply is not a completion.")
        if self._total is not None:
            body["usage"] = self._total
        summaries = [end.summary for _, end in sorted(self._ends.items()) if end.summary is not None]
        if summaries:
            body["grounding"] = merge_summaries(summaries)
        return body

    def _choice(self, position: int, choice: Any) -> dict[str, Any] | None:
        message = choice.get("message") if isinstance(choice, dict) else None
        index = choice["index"] if self._streamed else position
        end = self._ends.get(index)
        if end is None or not isinstance(message, dict):
            return None
        kept = {name: value for name, value in choice.items() if name not in ("text", "delta")}
        changed = {**kept, "message": dict(message), "finish_reason": end.reason}
        original = message.get("content")
        if end.blocked:
            # No part of the upstream's message is sent.
            refusal = {"refusal": None} if "refusal" in message else {}
            changed = {"index": choice.get("index", position), "finish_reason": end.reason}
            changed["message"] = message = {"role": "assistant", "content": end.text, **refusal}
        elif isinstance(original, str) and end.text != original:
            changed["message"]["content"] = end.text
            _keep_tokens(changed, self._delivered.get(index, ()))
        elif isinstance(original, list):
            changed["message"]["content"] = _with_text(original, end.text)
        if not end.blocked:
            for field, text in end.others.items():
                changed["message"][field] = text or None
        if annotations := url_citations(end.annotations):
            changed["message"]["annotations"] = [*(message.get("annotations") or ()), *annotations]
        return changed


def without_annotations(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Return the completion without the upstream's annotations, whose text isn't judged."""
    choices = []
    for choice in completion["choices"]:
        message = choice.get("message")
        if isinstance(message, dict) and "annotations" in message:
            kept = {name: value for name, value in message.items() if name != "annotations"}
            choice = {**choice, "message": kept}
        choices.append(choice)
    return {**completion, "choices": choices}


def total_of(usage: Usage) -> dict[str, Any]:
    """Add up the token counts of all calls for a reply."""
    total: dict[str, Any] = {}
    for call in (*usage.before, usage):
        told = call.frame.json.get("usage") if call.frame is not None else None
        prompt, completion = call.prompt_tokens or 0, call.completion_tokens or 0
        counted = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        total = _added(total, told if isinstance(told, dict) else counted)
    return total


def _added(total: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    added = dict(total)
    for name, value in counts.items():
        known = added.get(name)
        if isinstance(value, dict):
            added[name] = _added(known if isinstance(known, dict) else {}, value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and isinstance(known, int | float):
            added[name] = known + value
        elif name not in added or known is None:
            added[name] = value
    return added


def completion_of(outputs: Sequence[Output]) -> dict[str, Any]:
    """Assemble a completion from the chunks of a stream, for a client that asked for a whole reply."""
    completion: dict[str, Any] = {}
    messages: dict[int, dict[str, Any]] = {}
    ends: dict[int, str] = {}
    for output in outputs:
        for chunk in _chunks(output):
            completion = {**{n: v for n, v in chunk.items() if n not in ("choices", "grounding")}, **completion}
            if isinstance(chunk.get("usage"), dict):
                completion["usage"] = chunk["usage"]
            given = chunk.get("choices")
            for choice in given if isinstance(given, list) else ():
                if not isinstance(choice, dict):
                    continue
                index = choice["index"] if isinstance(choice.get("index"), int) else 0
                message = messages.setdefault(index, {"role": "assistant", "content": None})
                if isinstance(choice.get("delta"), dict):
                    _merge_delta(message, choice["delta"])
                if choice.get("finish_reason"):
                    ends[index] = choice["finish_reason"]
    completion["object"] = "chat.completion"
    completion["choices"] = [
        {"index": index, "message": _with_calls(message), "finish_reason": ends.get(index)}
        for index, message in sorted(messages.items())
    ]
    return completion


def _chunks(output: Output) -> Iterator[Mapping[str, Any]]:
    match output:
        case Passthrough(raw=raw) if raw:
            for line in raw.splitlines():
                data = line.removeprefix(b"data:").strip()
                if line.startswith(b"data:") and isinstance(chunk := load(data), dict):
                    yield chunk
        case FrameRemainder(json=json):
            yield json
        case ReleasedText(choice=index, text=text, slices=slices):
            frame = slices[0].frame.json
            yield {**frame, "choices": [{"index": index, "delta": {slices[0].frame.field or "content": text}}]}
        case ChoiceEnd(choice=index, frame=frame, reason=reason):
            yield {**frame.json, "choices": [{"index": index, "delta": {}, "finish_reason": reason}]}
        case ReplacementText(choice=index, text=text, frame=frame):
            yield {**frame.json, "choices": [{"index": index, "delta": {"content": text}}]}
        case Usage(frame=frame) if frame is not None:
            yield frame.json
        case EstimatedUsage(prompt_tokens=prompt, completion_tokens=completion):
            yield {
                "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
            }


def _with_calls(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with its tool calls as a list, in the order in which they began."""
    return {**message, "tool_calls": list(message["tool_calls"].values())} if "tool_calls" in message else message


def _merge_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for call in value if isinstance(value, list) else ():
                if isinstance(call, dict):
                    _merge_call(message.setdefault("tool_calls", {}), call)
        elif name != "role" and isinstance(value, str) and isinstance(message.get(name), str):
            message[name] += value
        elif value is not None and value != "":
            message[name] = value


def _merge_call(calls: dict[Any, dict[str, Any]], piece: Mapping[str, Any]) -> None:
    index = piece.get("index")
    if not isinstance(index, int):
        index = len(calls) - 1 if calls and not piece.get("id") else len(calls)
    call = calls.setdefault(index, {})
    function = piece.get("function")
    call.update({name: value for name, value in piece.items() if name not in ("index", "function") and value})
    if isinstance(function, dict):
        merged = call.setdefault("function", {"arguments": ""})
        more = function.get("arguments")
        merged["arguments"] += more if isinstance(more, str) else ""
        merged.update({name: value for name, value in function.items() if name != "arguments" and value})


def _keep_tokens(choice: dict[str, Any], delivered: Sequence[ReleasedText]) -> None:
    """Remove the log-probabilities of text that wasn't delivered."""
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        kept = [token for released in delivered for piece in released.slices for token in piece.tokens]
        choice["logprobs"] = {"content": kept} | ({"refusal": None} if "refusal" in logprobs else {})


def _with_text(parts: Sequence[Any], text: str) -> list[Any]:
    """Return typed parts with their text replaced by ``text``. The first text part gets all of ``text``, and the other
    text parts are removed."""
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
