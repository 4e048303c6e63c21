"""Encodes plain completions, and tracks the released text of each choice and its position in the delivered text. A
repeated prompt precedes the judged text, so positions are shifted by the length of the prompt.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.errors import UpstreamConnectError
from app.protocols.common.logprobs import entries_of, joined, logprobs_of
from app.protocols.common.merge_choices import merge_summaries
from app.protocols.common.sse import objects_in
from app.protocols.common.stream_events import ChoiceEnd, Output, Passthrough, ReleasedText, ReplacementText, Usage
from app.protocols.openai_chat.fields import url_citations
from app.protocols.openai_completions.fields import index_of, indices_of

_NO_COMPLETION = "The upstream's reply is not a completion."


@dataclass(slots=True)
class _Sent:
    """The state of a choice. ``hidden`` is the number of hidden code points of its prompt, ``echoed`` is the repeated
    rest of the prompt, and ``first_offset`` is the offset of its first token."""

    hidden: int = 0
    echoed: str = ""
    logprobs: list[Mapping[str, Any]] = field(default_factory=list)
    first_offset: int | None = None


class CompletionEncoder:
    """Tracks the choices of one reply as they are read, and encodes them."""

    def __init__(self) -> None:
        self._choices: dict[int, _Sent] = {}

    # In

    def begin(self, index: int, entries: Sequence[Mapping[str, Any]] | None, hidden: int) -> None:
        """Record a piece of a choice. Its first ``hidden`` code points are not sent to the client."""
        sent = self._of(index)
        sent.hidden += hidden
        offset = entries[0].get("offset") if entries else None
        if sent.first_offset is None and isinstance(offset, int):
            sent.first_offset = offset

    def echoed(self, choice: Mapping[str, Any], index: int) -> dict[str, Any]:
        """Record that a piece of the prompt is sent to the client, and return it as the client receives it."""
        sent = self._of(index)
        sent.echoed += choice["text"]
        moved = self.moved(choice, index)
        if isinstance(moved.get("logprobs"), dict):
            sent.logprobs.append(moved["logprobs"])
        return moved

    def hides(self, index: int) -> bool:
        """Return whether part of the repeated prompt is hidden from the client."""
        return self._of(index).hidden > 0

    def moved(self, choice: Mapping[str, Any], index: int) -> dict[str, Any]:
        """Return ``choice`` with token offsets that refer to the text without its hidden part."""
        back, entries = self._of(index).hidden, entries_of(choice)
        if not back or not entries:
            return dict(choice)
        return {**choice, "logprobs": logprobs_of(choice["logprobs"], entries, back=back)}

    # Out

    def released(self, released: ReleasedText, back: int | None = None) -> dict[str, Any]:
        """Build the chunk for released text by merging its original frames. Later frames take precedence. Token offsets
        are reduced by ``back``, which defaults to the length of the hidden part.
        """
        chunk: dict[str, Any] = {}
        choice: dict[str, Any] = {}
        template: dict[str, Any] | None = None
        for piece in released.slices:
            source = piece.frame.json["choices"][0]
            chunk.update(piece.frame.json)
            choice.update(source)
            if isinstance(source.get("logprobs"), dict):
                template = {**(template or {}), **source["logprobs"]}
        choice.update(index=released.choice, text=released.text, finish_reason=None)
        if template is not None:
            back = self._of(released.choice).hidden if back is None else back
            choice["logprobs"] = logprobs_of(template, _tokens(released), back=back)
        chunk["choices"] = [choice]
        if released.claims:
            chunk["grounding"] = {"claims": self.placed(released.claims, released.choice)}
        return chunk

    def whole(self, template: Mapping[str, Any], outputs: Sequence[Output], *, streamed: bool) -> dict[str, Any]:
        """Build a whole reply with its delivered text.

        ``template`` is the upstream's reply. Only the choices that were decided on are kept. ``streamed`` means that
        ``template`` was assembled from the outputs. Raises UpstreamConnectError if ``template`` is not a completion or
        if no choice remains.
        """
        ends = {output.choice: output for output in outputs if isinstance(output, ChoiceEnd)}
        released: dict[int, list[ReleasedText]] = {}
        for output in outputs:
            if isinstance(output, ReleasedText):
                released.setdefault(output.choice, []).append(output)
        given = template.get("choices")
        if not isinstance(given, list):
            raise UpstreamConnectError(_NO_COMPLETION)
        body = dict(template)
        body["choices"] = choices = []
        indices = [choice["index"] for choice in given] if streamed else indices_of(given)
        for index, choice in zip(indices, given, strict=True):
            if not isinstance(choice, dict):
                continue
            if index in ends:
                choice = {**choice, "index": index}
                choices.append(self._delivered(choice, ends[index], released.get(index, ())))
            elif streamed:
                choices.append(dict(choice))
        if (given and not choices) or (streamed and not given):
            raise UpstreamConnectError(_NO_COMPLETION)
        summaries = [self.told(end.summary, index) for index, end in sorted(ends.items()) if end.summary is not None]
        if summaries:
            body["grounding"] = merge_summaries(summaries)
        return body

    def placed(self, claims: Sequence[Mapping[str, Any]], index: int) -> list[dict[str, Any]]:
        """Return the claims of a choice, with positions in the text that the client receives."""
        by = len(self._of(index).echoed)
        return [{**claim, "span": _shifted(claim.get("span"), by)} if by else dict(claim) for claim in claims]

    def told(self, summary: Mapping[str, Any], index: int) -> dict[str, Any]:
        """Return the ``grounding`` object of a choice, with positions in the text that the client receives."""
        return {**summary, "claims": self.placed(summary["claims"], index)} if "claims" in summary else dict(summary)

    def annotated(self, annotations: Sequence[Mapping[str, Any]], index: int) -> list[dict[str, Any]]:
        """Return the URL citations of a choice, with positions in the text that the client receives."""
        by = len(self._of(index).echoed)
        return [{name: _shifted(value, by) for name, value in note.items()} for note in url_citations(annotations)]

    def _delivered(self, choice: Mapping[str, Any], end: ChoiceEnd, released: Sequence[ReleasedText]) -> dict[str, Any]:
        sent = self._of(end.choice)
        text = sent.echoed + end.text
        changed = {**choice, "text": text, "finish_reason": end.reason}
        if end.blocked:
            changed = {"index": end.choice, "text": text, "logprobs": None, "finish_reason": end.reason}
        elif text != choice.get("text") and isinstance(choice.get("logprobs"), dict):
            # The log-probabilities of text that was left out must be left out too.
            changed["logprobs"] = joined(choice["logprobs"], [*sent.logprobs, *self._kept(sent, released)])
        if annotations := self.annotated(end.annotations, end.choice):
            changed["annotations"] = annotations
        return changed

    def _kept(self, sent: _Sent, released: Sequence[ReleasedText]) -> Iterator[Mapping[str, Any]]:
        """Yield the log-probabilities of the delivered text, with offsets that refer to that text."""
        place = len(sent.echoed)
        for output in released:
            logprobs = self.released(output, _beyond(output, sent.first_offset, place))["choices"][0].get("logprobs")
            place += len(output.text)
            if isinstance(logprobs, dict):
                yield logprobs

    def _of(self, index: int) -> _Sent:
        return self._choices.setdefault(index, _Sent())


def chunks_of(completion: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a completion into the chunks of an equivalent stream: the text, the finish reason, and finally the
    usage."""
    if completion.get("error"):
        yield dict(completion)
        return
    given = completion.get("choices")
    choices = given if isinstance(given, list) else []
    shared = {name: value for name, value in completion.items() if name not in ("choices", "usage")}
    for index, choice in zip(indices_of(choices), choices, strict=True):
        if isinstance(choice, dict):
            reason = choice.get("finish_reason") or "stop"
            choice = {**choice, "index": index, "finish_reason": reason}
        yield {**shared, "choices": [choice]}
    if completion.get("usage"):
        yield {**shared, "choices": [], "usage": completion["usage"]}


def reply_of(outputs: Sequence[Output]) -> dict[str, Any]:
    """Assemble a completion from the chunks of a stream, for a client that asked for a whole reply."""
    reply: dict[str, Any] = {}
    texts: dict[int, str] = {}
    reasons: dict[int, Any] = {}
    for output in outputs:
        for chunk in _chunks(output):
            reply = {**{name: value for name, value in chunk.items() if name != "choices"}, **reply}
            for choice in _objects(chunk.get("choices")):
                index, text = index_of(choice, 0), choice.get("text")
                texts[index] = texts.get(index, "") + (text if isinstance(text, str) else "")
                reasons[index] = choice.get("finish_reason") or reasons.get(index)
    choices = [
        {"index": index, "text": text, "logprobs": None, "finish_reason": reasons[index]}
        for index, text in sorted(texts.items())
    ]
    return {**reply, "choices": choices}


def _objects(values: Any) -> Sequence[Mapping[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else ()


def _chunks(output: Output) -> Iterator[Mapping[str, Any]]:
    match output:
        case Passthrough(raw=raw):
            yield from objects_in(raw)
        case ReleasedText(choice=index, text=text, slices=slices) if slices:
            yield {**slices[0].frame.json, "choices": [{"index": index, "text": text}]}
        case ReplacementText(choice=index, text=text, frame=frame):
            yield {**frame.json, "choices": [{"index": index, "text": text}]}
        case Usage(frame=frame) if frame is not None:
            yield frame.json


def _tokens(released: ReleasedText) -> list[Mapping[str, Any]]:
    return [token for piece in released.slices for token in piece.tokens]


def _beyond(released: ReleasedText, first_offset: int | None, place: int) -> int:
    """Return the difference between the upstream's offsets and the position of ``released`` in the delivered text."""
    first = next(iter(_tokens(released)), None)
    if first is None or first_offset is None or not isinstance(first.get("offset"), int):
        return 0
    word = str(first.get("token"))
    begins = released.text.find(word.lstrip()) - (len(word) - len(word.lstrip()))
    return int(first["offset"]) - first_offset - place - max(0, begins)


def _shifted(places: Any, by: int) -> Any:
    """Add ``by`` to all positions in an object. A value that isn't an object is returned unchanged."""
    if not isinstance(places, dict):
        return places
    return {name: value + by if name in _PLACES and isinstance(value, int) else value for name, value in places.items()}


_PLACES = frozenset({"start", "end", "start_index", "end_index"})
