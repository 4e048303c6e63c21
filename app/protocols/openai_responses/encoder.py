"""Encodes outputs as events of the Responses API, with the findings in the API's format. Events are forwarded unchanged
until the gateway inserts its first event. After that, every event is renumbered, and in events that repeat text, the
text is replaced by the delivered text."""

import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from app.protocols.common.known_fields import is_beside_answer
from app.protocols.common.merge_choices import merge_summaries
from app.protocols.common.stream_events import (
    TOO_LONG,
    ChoiceEnd,
    EndOfReply,
    EstimatedUsage,
    FrameRemainder,
    JudgedClaims,
    Output,
    Passthrough,
    ReleasedText,
    ReplacementText,
    ReplyError,
    ReplyRefusal,
    Usage,
)
from app.protocols.openai_responses.decoder import ResponseDecoder
from app.protocols.openai_responses.emitted_state import EmittedState
from app.protocols.openai_responses.event_numbering import EventNumbering, data_in, event_in
from app.protocols.openai_responses.event_types import (
    ANNOTATION,
    ERROR,
    INCOMPLETE,
    ITEM_ADDED,
    ITEM_DONE,
    PART_ADDED,
    PART_DONE,
    TERMINAL,
    TEXT_DELTA,
    TEXT_DONE,
    TextPart,
    is_text,
    object_of,
    objects_in,
    text_of,
)
from app.protocols.openai_responses.normalisation import Shapes


def annotation_of(annotation: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a citation to this API's format, which is a flat object. A file citation also gets an ``index``, the
    position of its marker. The span of the sentence is kept as an additional field."""
    kind = str(annotation["type"])
    citation = {"type": kind, **annotation[kind]}
    if kind == "file_citation":
        citation["index"] = citation["end_index"]
    return citation


def summary_of(summaries: Sequence[Mapping[str, Any]], *, unchecked: Collection[str]) -> dict[str, Any]:
    """Build the ``grounding`` object of a response from the objects of its parts."""
    summary = merge_summaries(summaries)
    kinds = sorted({*unchecked, *summary.get("not_checked", ())})
    trusted = summary["is_trusted"] and is_beside_answer(kinds)
    return {**summary, "is_trusted": trusted, "not_checked": kinds} if kinds else summary


class ResponseEncoder:
    """Writes one reply. ``final`` is the final response object, or None until it has been sent to the client."""

    def __init__(self, reader: ResponseDecoder) -> None:
        self.final: dict[str, Any] | None = None
        self._reader = reader
        self._ledger = EmittedState(reader.texts)
        self._passed: list[bytes] = []
        self._governed = False
        self._frames = EventNumbering(reader)
        self._summaries: list[Mapping[str, Any]] = []
        self._usage: Mapping[str, Any] | None = None
        self._blocked = self._too_long = False
        self._over = False
        self._own: TextPart | None = None

    def encode(self, output: Output) -> bytes:
        """Encode an output. The result is empty if the client doesn't receive the output."""
        match output:
            case Passthrough(raw=raw):
                return self._pass(raw) if raw else b""
            case EndOfReply(raw=raw):
                return self._done(raw)
            case Usage(frame=frame):
                self._usage = frame.json if frame is not None else None
                return b""
            case ReplyError():
                return self._failure(output)
        self._govern()
        return self._encode_governed(output)

    def _encode_governed(self, output: Output) -> bytes:
        match output:
            case FrameRemainder(choice=choice, json=event):
                self._ledger.sent(choice).waiting.append(event)
                return b""
            case ReleasedText():
                return self._released(output)
            case JudgedClaims(choice=choice, claims=claims):
                return self._delta(self._part(choice), "", claims) if claims else b""
            case ReplacementText(choice=choice, text=text):
                self._ledger.sent(choice).texts.append(text)
                part = self._part(choice)
                return self._announce(part) + self._delta(part, text)
            case ChoiceEnd():
                return self._ended(output)
            case ReplyRefusal(reason=reason, reason_code=code, decisions=decisions):
                return self._error(reason, code, violations=list(decisions))
            case EstimatedUsage(prompt_tokens=prompt, completion_tokens=completion):
                self._usage = _usage(prompt, completion)
        return b""

    # Passing

    def _shaped(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return the event in its normalized form. Events that the reader rebuilt are already normalized."""
        return event if self._reader.fields is not None else Shapes().event(event)

    def _pass(self, raw: bytes) -> bytes:
        if self._reader.fields is not None:  # earlier events may have been left out
            self._govern()
        if not self._governed:
            self._passed.append(raw)
            return raw
        event = event_in(raw)
        if event is None:
            return raw if data_in(raw) is None else b""
        known = self._shaped(event)
        seen = self._ledger.see(known) if known is not None else None
        return self._frames.renumbered(raw, event) if seen is known or seen is None else self._frames.emit(seen)

    def _govern(self) -> None:
        """Prepare for the first event created by the gateway. The events forwarded so far are parsed only now, because
        replies without such an event don't need it."""
        if self._governed:
            return
        self._governed = True
        for event in filter(None, map(event_in, self._passed)):
            self._ledger.see(self._shaped(event) or {})
            self._frames.passed(event)
        self._passed.clear()

    # Text

    def _released(self, released: ReleasedText) -> bytes:
        part = self._part(released.choice)
        sent = self._ledger.sent(released.choice)
        merged: dict[str, Any] = {}
        for piece in released.slices:
            if piece.frame.json.get("type") == TEXT_DELTA:
                merged.update(piece.frame.json)
        merged.pop("obfuscation", None)  # this padding was computed for the upstream's delta, whose length has changed
        tokens = [token for piece in released.slices for token in piece.tokens]
        sent.texts.append(released.text)
        sent.tokens.extend(tokens)
        return self._announce(part) + self._delta(part, released.text, released.claims, like=merged, tokens=tokens)

    def _delta(self, part: TextPart, text: str, claims: Any = (), *, like: Any = None, tokens: Any = ()) -> bytes:
        event = {"type": TEXT_DELTA, **part.position, **(like or {}), "delta": text, "logprobs": list(tokens)}
        if claims:
            event["grounding"] = {"claims": self._located(claims, part)}
        return self._frames.emit(event)

    def _located(self, claims: Iterable[Mapping[str, Any]], part: TextPart) -> list[dict[str, Any]]:
        """Return the claims, each with the part of the output that its span refers to."""
        output_index, content_index = self._frames.item(part.place[0]), part.place[1]
        return [{**claim, "output_index": output_index, "content_index": content_index} for claim in claims]

    def _announce(self, part: TextPart) -> bytes:
        """Return the events that open a part, if the upstream hasn't sent them."""
        data = b""
        item_known, part_known = self._ledger.announced(part)
        if not item_known:
            item = {"id": part.item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
            data += self._own_event({"type": ITEM_ADDED, "output_index": part.place[0], "item": item})
        if not part_known:
            content = {"type": "output_text", "text": "", "annotations": []}
            data += self._own_event({"type": PART_ADDED, **part.position, "part": content})
        return data

    def _own_event(self, event: dict[str, Any]) -> bytes:
        self._ledger.see(event)
        return self._frames.emit(event)

    def _part(self, choice: int) -> TextPart:
        """Return the text part of a choice. If the upstream sent no text, this is a new part after all others."""
        if choice < len(self._reader.texts.parts):
            return self._reader.texts.parts[choice]
        if self._own is None:
            place = (max(self._ledger.items, default=-1) + 1, 0)
            self._own = TextPart(choice=choice, place=place, item_id=f"msg_{uuid.uuid4().hex}")
            self._reader.texts.parts.append(self._own)
        return self._own

    # Ends

    def _ended(self, ended: ChoiceEnd) -> bytes:
        self._too_long = self._too_long or ended.reason == TOO_LONG
        known = ended.choice < len(self._reader.texts.parts)
        if ended.summary is not None:
            part = self._reader.texts.parts[ended.choice] if known else None
            self._summaries.append(
                {**ended.summary, "claims": self._located(ended.summary["claims"], part)}
                if part is not None and "claims" in ended.summary
                else ended.summary
            )
        self._blocked = self._blocked or ended.blocked
        if not known:
            return b""
        part = self._reader.texts.parts[ended.choice]
        data = self._annotate(part, ended)
        if ended.blocked:
            # In ``live`` mode, text may have been sent although the upstream never announced its part.
            return self._announce(part) + data + self._close(part)
        event = dict(ended.frame.json)
        return data + self._frames.emit(self._ledger.text_done(part, event)) if event.get("type") == TEXT_DONE else data

    def _annotate(self, part: TextPart, ended: ChoiceEnd) -> bytes:
        """Return the upstream's annotations that are still valid, followed by the gateway's."""
        sent = self._ledger.sent(part.choice)
        sent.ours = [annotation_of(annotation) for annotation in ended.annotations]
        kept = [event for event in sent.waiting if self._ledger.valid(part, [object_of(event.get("annotation"))])]
        sent.waiting.clear()
        added = [*kept, *({"annotation": annotation} for annotation in sent.ours)]
        data = b""
        for event in added:
            number = len(sent.annotations)
            sent.annotations.append(object_of(event.get("annotation")))
            data += self._frames.emit({"type": ANNOTATION, **part.position, **event, "annotation_index": number})
        return data

    def _close(self, part: TextPart) -> bytes:
        """End a part and its item, because the upstream won't send their end."""
        content = self._ledger.standing_part(part)
        tokens = content.get("logprobs") or []
        data = self._frames.emit({"type": TEXT_DONE, **part.position, "text": content["text"], "logprobs": tokens})
        data += self._frames.emit({"type": PART_DONE, **part.position, "part": content})
        item = self._ledger.standing_item(part.place[0])
        self._ledger.items[part.place[0]] = item
        return data + self._frames.emit({"type": ITEM_DONE, "output_index": part.place[0], "item": item})

    def _done(self, raw: bytes) -> bytes:
        if not self._governed:
            self.final = self._reader.response
            return raw
        if self._over:
            return b""
        if self._blocked:
            response = {
                **_BARE,
                **self._ledger.response,
                "status": "incomplete",
                "incomplete_details": {"reason": "content_filter"},
                "output": self._ledger.standing(),
                "usage": self._usage,
            }
            self.final = self._with_summary(_with_text(response))
            return self._frames.emit({"type": INCOMPLETE, "response": self.final})
        event = event_in(raw)
        if event is None:
            return raw if data_in(raw) in (None, b"[DONE]") else b""
        return self._last(event)

    def _last(self, event: dict[str, Any]) -> bytes:
        self.final = self._with_summary(self._delivered(object_of(event.get("response"))))
        if self._too_long:
            cut_off = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
            self.final = {**self.final, **cut_off}
            event = {**event, "type": INCOMPLETE}
        return self._frames.emit({**(self._shaped(event) or {}), "response": self.final})

    def _delivered(self, given: Mapping[str, Any]) -> dict[str, Any]:
        response = dict(given) if self._reader.fields is not None else Shapes().response(given)
        if isinstance(given.get("output"), list):
            items = [self._ledger.item(index, item) for index, item in enumerate(response["output"])]
            return _with_text({**response, "output": items})
        response.pop("output_text", None)
        return {**response, "output": self._ledger.standing()} if "output" in response else response

    def _with_summary(self, response: dict[str, Any]) -> dict[str, Any]:
        if not self._summaries:
            return response
        unchecked: Collection[str] = self._reader.texts.unchecked
        if self._blocked:  # only unjudged items that were sent before blocking count
            kinds = {str(item.get("type")) for _, item in objects_in(response.get("output"))}
            left = kinds | ({"tool_calls"} if any(kind.endswith("_call") for kind in kinds) else set())
            unchecked = left.intersection(unchecked)
        return {**response, "grounding": summary_of(self._summaries, unchecked=unchecked)}

    def _failure(self, failure: ReplyError) -> bytes:
        if failure.raw and not self._governed:
            self.final = self._reader.response
            return failure.raw
        self._govern()
        event = event_in(failure.raw) if failure.raw else None
        if event is None:
            return self._error(failure.message, failure.code or "upstream_error")
        if event.get("type") in TERMINAL:
            self._over = True
            return self._last(event)
        error = object_of(event.get("error")) or event
        return self._error(failure.message, _word(error.get("code")), param=_word(error.get("param")))

    def _error(self, message: str, code: str | None, **more: Any) -> bytes:
        self._over = True
        return self._frames.emit({"type": ERROR, "code": code, "message": message, "param": None, **more})


_BARE: Mapping[str, Any] = {"object": "response", "error": None, "metadata": {}}
"""The required fields of a response, with their default values."""


def _with_text(response: dict[str, Any]) -> dict[str, Any]:
    """If the upstream repeats the whole output text in ``output_text``, replace it with the delivered text."""
    if not isinstance(response.get("output_text"), str):
        return response
    contents = [part for _, item in objects_in(response["output"]) for _, part in objects_in(item.get("content"))]
    return {**response, "output_text": "".join(text_of(part) for part in contents if is_text(part))}


def _word(value: Any) -> str | None:
    """Return ``value`` if it is a single word, otherwise None."""
    return value if isinstance(value, str) and not re.search(r"\s", value) else None


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }
