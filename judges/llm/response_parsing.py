"""Parses an LLM's answer leniently: the JSON may stand alone (as requested), in a code block, or within prose.

If an answer cannot be parsed or contradicts itself, the result is None, which the caller treats as neutral.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from judges.label_thresholds import LLM_MIN_CONFIDENCE
from judges.llm_types import LlmVerdict
from judges.types import Label

_SCORE = re.compile(r"\A\W*(?:score\W{0,6})?([01](?:\.\d+)?|\.\d+)\W*\Z", re.IGNORECASE)
_WORDS = {
    Label.SUPPORTED: ("supported", "entailed", "entailment", "true", "yes"),
    Label.CONTRADICTED: ("contradicted", "contradiction", "refuted", "false"),
    Label.UNVERIFIABLE: (
        "unverifiable", "unverified", "not addressed", "not_addressed", "neutral", "unknown", "not enough information",
        "not_enough_info", "insufficient", "unsupported", "not supported", "not_supported", "no",
    ),
    Label.NOT_A_CLAIM: ("not_a_claim", "not a claim", "no claim", "no_claim"),
}  # fmt: skip
_LABELS = {word: label for label, words in _WORDS.items() for word in words}
_YES_NO = {"yes": 1, "no": 0, "true": 1, "false": 0}
_MAX_CORRECTION_CHARS = 2_000
_MAX_REASONING_CHARS = 4_000
_DEFAULT_CONFIDENCE = 0.75
"""The confidence assumed for a verdict without one."""


def read_claim_verdict(text: str, *, sources: int) -> LlmVerdict | None:
    """Parse the verdict on a claim, with the positions of the sources that it names. ``sources`` is the number of
    sources shown.

    A verdict whose confidence is below ``LLM_MIN_CONFIDENCE`` becomes unverifiable.
    """
    answer = _object(text, "verdict")
    label = None if answer is None else _label(answer["verdict"])
    if answer is None or label is None:
        return None
    if label is Label.NOT_A_CLAIM:
        label = Label.UNVERIFIABLE
    confidence = _share(answer.get("confidence"))
    confidence = _DEFAULT_CONFIDENCE if confidence is None else confidence
    if confidence < LLM_MIN_CONFIDENCE:
        label, confidence = Label.UNVERIFIABLE, LLM_MIN_CONFIDENCE
    return LlmVerdict(
        label=label,
        confidence=confidence,
        reasoning=_text(answer.get("reasoning"), _MAX_REASONING_CHARS),
        correction=_text(answer.get("correction"), _MAX_CORRECTION_CHARS) if label is Label.CONTRADICTED else None,
        passages=_positions(answer.get("sources"), sources),
    )


def read_score(text: str) -> tuple[float, str | None] | None:
    """Parse a score from 0 to 1, and its reasoning."""
    answer = _object(text, "score")
    if answer is None:
        bare = _SCORE.match(text.strip())
        value = float(bare[1]) if bare else None
        return None if value is None or value > 1 else (value, None)
    value = _number(answer["score"])
    return None if value is None or not 0 <= value <= 1 else (value, _reasoning(answer))


def read_scale(text: str) -> tuple[float, str | None] | None:
    """Parse a score from 1 to 5, convert it to the range 0 to 1, and return it with its reasoning."""
    answer = _object(text, "score") or {"score": text.strip()}
    value = _number(answer["score"])
    return None if value is None or value not in (1, 2, 3, 4, 5) else ((value - 1) / 4, _reasoning(answer))


def read_yes_no(text: str) -> tuple[float, str | None] | None:
    """Parse yes or no, convert it to 1 or 0, and return it with its reasoning."""
    answer = _object(text, "grounded") or {"grounded": text.strip().strip(".").lower()}
    value = answer["grounded"]
    known = {True: 1.0, False: 0.0, "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
    found = known.get(value.lower() if isinstance(value, str) else value) if isinstance(value, str | bool) else None
    return None if found is None else (found, _reasoning(answer))


def read_statement_verdicts(text: str) -> Mapping[int, Label] | None:
    """Parse the verdicts on numbered statements. A number with two different verdicts is left out."""
    answer = _object(text, "verdicts")
    if answer is None or not isinstance(answer["verdicts"], list):
        return None
    found: dict[int, Label | None] = {}
    for entry in answer["verdicts"]:
        number = _number(entry.get("number")) if isinstance(entry, dict) else None
        label = _label(entry.get("verdict")) if number is not None else None
        if number is not None and label is not None:
            place = int(number)
            found[place] = label if found.get(place, label) is label else None
    return {place: label for place, label in found.items() if label is not None}


def read_raw_scores(text: str, *, count: int, values: range) -> tuple[tuple[int, ...], str | None] | None:
    """Parse the raw scores of ``count`` claims, each of which must be one of ``values``, and the reasoning. True counts
    as 1, and false as 0."""
    answer = _object(text, "verdicts")
    if answer is None or not isinstance(answer["verdicts"], list) or len(answer["verdicts"]) != count:
        return None
    scores = [_raw_score(value, values) for value in answer["verdicts"]]
    found = tuple(score for score in scores if score is not None)
    return (found, _reasoning(answer)) if len(found) == count else None


def read_claims(text: str) -> Sequence[str] | None:
    """Parse a list of statements."""
    answer = _object(text, "claims")
    claims = None if answer is None else answer["claims"]
    if not isinstance(claims, list) or not all(isinstance(claim, str) for claim in claims):
        return None
    return claims


def _object(text: str, key: str) -> dict[str, Any] | None:
    """Return the JSON object in the answer that has ``key``. Return None if there is no such object, or if several
    objects have different values for it."""
    found = [value for value in _objects(text) if key in value]
    return found[-1] if found and all(value[key] == found[-1][key] for value in found) else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if isinstance(value, dict):
                yield value
        place = text.find("{", end)


def _label(value: Any) -> Label | None:
    return _LABELS.get(value.strip().strip(".").lower()) if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _raw_score(value: Any, values: range) -> int | None:
    if 0 in values:
        value = _YES_NO.get(value.strip().lower(), value) if isinstance(value, str) else value
        value = int(value) if isinstance(value, bool) else value
    number = _number(value)
    return int(number) if number is not None and number in values else None


def _share(value: Any) -> float | None:
    """Convert a number from 0 to 1, or a percentage, to a number from 0 to 1."""
    percent = isinstance(value, str) and value.strip().endswith("%")
    number = _number(value.strip().removesuffix("%")) if isinstance(value, str) else _number(value)
    if number is None or not 0 <= number <= 100:
        return None
    return number / 100 if percent or number > 1 else number


def _reasoning(answer: Mapping[str, Any]) -> str | None:
    return _text(answer.get("reasoning"), _MAX_REASONING_CHARS)


def _text(value: Any, longest: int) -> str | None:
    """Return the text on one line, or None if it is missing or much longer than requested."""
    if not isinstance(value, str):
        return None
    line = " ".join(value.split())
    return line if 0 < len(line) <= longest and line.lower() not in ("null", "none", "n/a") else None


def _positions(value: Any, count: int) -> tuple[int, ...]:
    numbers = value if isinstance(value, list) else [value]
    places = (_number(number) for number in numbers)
    return tuple(dict.fromkeys(int(place) - 1 for place in places if place is not None and 1 <= place <= count))
