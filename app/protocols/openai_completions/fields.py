"""The fields of a plain completion that may be sent under a grounding policy."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.protocols.common.known_fields import (
    UNFIT,
    Entry,
    KnownFields,
    always,
    anything,
    count,
    normalised,
    text,
)
from app.protocols.common.logprobs import spelling
from app.protocols.openai_chat.fields import COMPLETION_HEAD

ENVELOPE = ("id", "object", "created", "model", "system_fingerprint", "service_tier")

_HEAD: Entry = {**COMPLETION_HEAD, "object": always("text_completion")}
_CHOICES: Entry = [
    {
        "index": count,
        "text": text,
        "finish_reason": normalised(
            ("stop", "length", "content_filter"), {"max_tokens": "length", "model_length": "length"}, otherwise="stop"
        ),
        "logprobs": anything,
    }
]


def rebuild(frame: Mapping[str, Any], fields: KnownFields) -> dict[str, Any]:
    """Rebuild a frame or a whole reply from its known fields. Log-probabilities are kept only if they spell the text.
    ``choices`` is left out if it is not a list or contains no valid choice."""
    given = dict(frame)
    choices = given.pop("choices", None)
    known: dict[str, Any] = fields.rebuild(given, _HEAD)
    if choices is None:
        return known
    rebuilt = fields.rebuild(choices, _CHOICES, "choices")
    if rebuilt is UNFIT or (choices and not rebuilt):
        return known
    for choice in rebuilt:
        if given_logprobs := choice.get("logprobs"):
            choice["logprobs"] = spelling(given_logprobs, choice.get("text") or "")
            if choice["logprobs"] != given_logprobs:
                fields.leave_out("choices.logprobs")
    return {**known, "choices": rebuilt}


def index_of(choice: Mapping[str, Any], otherwise: int) -> int:
    """Return the index of a choice, or ``otherwise`` if it has no valid index."""
    index = choice.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) and index >= 0 else otherwise


def indices_of(choices: Sequence[Any]) -> Sequence[int]:
    """Return the index of each choice of a whole reply. If the indices aren't consecutive numbers from 0, use positions
    instead."""
    places = list(range(len(choices)))
    said = [index_of(choice, -1) if isinstance(choice, dict) else -1 for choice in choices]
    return said if sorted(said) == places else places
