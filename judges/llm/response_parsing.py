"""Parses an LLM's answer: a JSON object, either alone (as requested) or at the end of the answer.

An LLM that explains itself may quote a document, and the document may contain JSON that looks like an answer.
Therefore, the object must begin a line, text may only come before it, and an answer with several such objects is
ambiguous.

If an answer cannot be parsed or contradicts itself, the result is None, which the caller treats as neutral.
"""

import html
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from judges.label_thresholds import LLM_MIN_CONFIDENCE
from judges.llm_types import LlmVerdict
from judges.types import Label

MAX_ANSWER_CHARS: Final = 100_000
"""Maximum length of an answer, which is several times what a prompt asks for. Parsing it takes a few milliseconds."""

_THOUGHTS: Final = "<think>"
_THOUGHTS_END: Final = "</think>"
_OBJECT = re.compile(r"^(```\w*\s*)?(?=\{)", re.MULTILINE)
"""The beginning of a JSON object, or of a code block with one, at the beginning of a line."""
_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[bfnrt])?")
"""An escape sequence in a JSON string, with any number of backslashes."""
_AMPERSANDS = re.compile(r"&(?:amp;|#38;|#x26;)+", re.IGNORECASE)
"""An ampersand that is escaped once or several times."""
_IGNORED = re.compile(r"[^\w{]+|_+")
_SCORE = re.compile(r"\A[\s*_]*(?:score[\s*_:=]{0,6})?([01](?:\.\d+)?|\.\d+)[\s*_.]*\Z", re.IGNORECASE)
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
        bare = _SCORE.match(_without_thoughts(text))
        value = float(bare[1]) if bare else None
        return None if value is None or value > 1 else (value, None)
    value = _number(answer["score"])
    return None if value is None or not 0 <= value <= 1 else (value, _reasoning(answer))


def read_scale(text: str) -> tuple[float, str | None] | None:
    """Parse a score from 1 to 5, convert it to the range 0 to 1, and return it with its reasoning."""
    answer = _object(text, "score") or {"score": _without_thoughts(text)}
    value = _number(answer["score"])
    return None if value is None or value not in (1, 2, 3, 4, 5) else ((value - 1) / 4, _reasoning(answer))


def read_yes_no(text: str) -> tuple[float, str | None] | None:
    """Parse yes or no, convert it to 1 or 0, and return it with its reasoning."""
    answer = _object(text, "grounded") or {"grounded": _without_thoughts(text).strip(".").lower()}
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


def is_quotation(text: str, data: str) -> bool:
    """Return whether the answer's JSON also occurs in ``data``, the text that the LLM judges, and so isn't the LLM's
    own answer. Only letters, digits and opening braces are compared, because a quotation may be laid out, quoted or
    escaped differently."""
    found = _letters(_json(text))
    return bool(found) and found in _letters(data)


def _letters(text: str) -> str:
    plain = html.unescape(_AMPERSANDS.sub("&", _ESCAPE.sub(_unescaped, text)))
    return _IGNORED.sub("", unicodedata.normalize("NFKC", plain).casefold())


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else " "


def _object(text: str, key: str) -> dict[str, Any] | None:
    """Return the answer's JSON object. Return None if there is none, or if it doesn't have ``key``."""
    try:
        value = json.loads(_json(text), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and key in value else None


def _json(text: str) -> str:
    """Return everything from the first line that begins a JSON object to the end of the answer. This is valid JSON only
    if the answer ends with the object. Return an empty string if there is no such line."""
    answer = _without_thoughts(text)
    start = _OBJECT.search(answer)
    if start is None:
        return ""
    found = answer[start.end() :]
    return found.removesuffix("```") if start[1] else found


def _without_thoughts(text: str) -> str:
    """Remove the thoughts that a reasoning model writes before its answer. If they don't end, nothing remains."""
    answer = text.rpartition(_THOUGHTS_END)[2].strip()
    return "" if _THOUGHTS in answer else answer


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


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
