"""Processes log-probabilities. Checks that tokens spell the text, finds the positions of tokens, and handles the
parallel lists of plain completions."""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

_LISTS = {"tokens": "token", "token_logprobs": "logprob", "top_logprobs": "top", "text_offset": "offset"}
"""Maps the name of each list in the API to the name of its values in an entry."""
_BYTES = re.compile(r"(bytes:)?(\\x[0-9a-fA-F]{2})+")
"""Matches the notation that the APIs use for a token that contains only some of a character's bytes."""


def spell(tokens: Sequence[Mapping[str, Any]], text: str) -> bool:
    """Return whether ``tokens`` spell exactly ``text`` and contain no other text."""
    return places_of(tokens, text) is not None


def places_of(tokens: Sequence[Mapping[str, Any]], text: str) -> Sequence[tuple[int, int]] | None:
    """Return the start and end of each token in ``text``, in code points, or None if the tokens don't spell ``text``.
    If the strings of the tokens don't match it, their bytes are compared, because several tokens can form one
    character."""
    words = [str(token.get("token")) for token in tokens]
    if "".join(words) == text and all(_agree(token, word) for token, word in zip(tokens, words, strict=True)):
        ends = list(accumulate(map(len, words)))
        return list(zip([0, *ends], ends, strict=False))
    try:
        pieces = [bytes(token["bytes"]) for token in tokens]
    except (KeyError, TypeError, ValueError):
        return None
    named = all(map(_names, words, pieces))
    data = text.encode("utf-8", "surrogatepass")
    if not named or b"".join(pieces) != data:
        return None
    ends = list(accumulate(map(len, pieces)))
    starts = [index for index, byte in enumerate(data) if byte & 0xC0 != 0x80]
    return [
        (bisect_right(starts, start) - 1, bisect_left(starts, end))
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _agree(token: Mapping[str, Any], word: str) -> bool:
    return not token.get("bytes") or token["bytes"] == list(word.encode("utf-8", "surrogatepass"))


def _names(word: str, data: bytes) -> bool:
    return word == data.decode("utf-8", "replace") or _BYTES.fullmatch(word) is not None


def entries_of(choice: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return an entry for each token of a choice. Return None if the choice has no log-probabilities, or if their lists
    differ in length."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("tokens"), list):
        return None
    lists = {ours: logprobs[name] for name, ours in _LISTS.items() if isinstance(logprobs.get(name), list)}
    if len({len(values) for values in lists.values()}) != 1:
        return None
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def spelling(logprobs: Any, text: str) -> dict[str, Any] | None:
    """Return the lists of ``logprobs`` without its other fields, or None if their tokens do not spell ``text``.

    Alternative tokens contain other text, so they are removed.
    """
    entries = entries_of({"logprobs": logprobs})
    if entries is None or not _spell(entries, text):
        return None
    given = {name: logprobs[name] for name in _LISTS if isinstance(logprobs.get(name, 0), list | None)}
    known: dict[str, Any] = {}
    for name, values in given.items():
        if values is None or name == "tokens":
            known[name] = values
        elif name == "top_logprobs":
            tops = zip(logprobs["tokens"], values, strict=True)
            known[name] = [_own(token, top) for token, top in tops]
        else:
            known[name] = [number(value) for value in values]
    return known


def _own(token: str, top: Any) -> dict[str, Any] | None:
    """Return the entry of the chosen token from ``top``, which contains the most likely tokens."""
    if not isinstance(top, dict):
        return None
    return {token: number(top[token])} if token in top else {}


def logprobs_of(template: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], *, back: int = 0) -> dict[str, Any]:
    """Convert ``entries`` to lists, with the same fields as ``template``. Offsets are reduced by ``back``, which is the
    length of the text that was left out before the entries."""
    lists: dict[str, Any] = dict(template)
    for name, ours in _LISTS.items():
        if isinstance(template.get(name), list):
            lists[name] = [entry.get(ours) for entry in entries]
    if back and isinstance(lists.get("text_offset"), list):
        lists["text_offset"] = [_moved(offset, back) for offset in lists["text_offset"]]
    return lists


def joined(template: Mapping[str, Any], pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate the lists of ``pieces``. The result has the same fields as ``template``."""
    lists: dict[str, Any] = dict(template)
    for name in _LISTS:
        if isinstance(template.get(name), list):
            lists[name] = [value for piece in pieces for value in piece.get(name) or ()]
    return lists


def within(entries: Sequence[Mapping[str, Any]], text: str, start: int, end: int) -> Sequence[Mapping[str, Any]]:
    """Return the ``entries`` that begin in ``[start, end)`` and have nothing but whitespace beyond ``end``. All
    entries together spell ``text``. A token that spans a cut is excluded on both sides, because the text on the other
    side may be withheld."""
    found, place = [], 0
    for entry in entries:
        begin, place = place, place + len(str(entry.get("token", "")))
        if start <= begin < end and not text[end:place].strip():
            found.append(entry)
    return found


def _spell(entries: Sequence[Mapping[str, Any]], text: str) -> bool:
    tokens = [entry["token"] for entry in entries]
    return all(isinstance(token, str) for token in tokens) and "".join(tokens) == text


def number(value: Any) -> int | float | None:
    """Return ``value`` if it is a number that JSON can represent, otherwise None."""
    return value if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else None


def _moved(offset: Any, back: int) -> Any:
    return offset - back if isinstance(offset, int) else offset
