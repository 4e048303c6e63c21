"""Log-probabilities of plain completions: parallel lists on the wire, one entry a token inside."""

from collections.abc import Mapping, Sequence
from typing import Any

_LISTS = {"tokens": "token", "token_logprobs": "logprob", "top_logprobs": "top", "text_offset": "offset"}
"""The lists of the wire, and what an entry calls a value of each."""


def entries_of(choice: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """An entry for each token of a choice; None where it has no log-probabilities, or lists of unequal length."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("tokens"), list):
        return None
    lists = {ours: logprobs[name] for name, ours in _LISTS.items() if isinstance(logprobs.get(name), list)}
    if len({len(values) for values in lists.values()}) != 1:
        return None
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def logprobs_of(template: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], *, back: int = 0) -> dict[str, Any]:
    """The lists of ``entries`` in the form of ``template``. Offsets go ``back`` by what was left out before them."""
    lists: dict[str, Any] = dict(template)
    for name, ours in _LISTS.items():
        if isinstance(template.get(name), list):
            lists[name] = [entry.get(ours) for entry in entries]
    if back and isinstance(lists.get("text_offset"), list):
        lists["text_offset"] = [_moved(offset, back) for offset in lists["text_offset"]]
    return lists


def joined(template: Mapping[str, Any], pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The lists of ``pieces``, one behind the other, in the form of ``template``."""
    lists: dict[str, Any] = dict(template)
    for name in _LISTS:
        if isinstance(template.get(name), list):
            lists[name] = [value for piece in pieces for value in piece.get(name) or ()]
    return lists


def split(entries: Sequence[Mapping[str, Any]], chars: int) -> int:
    """How many of ``entries`` belong to the first ``chars`` code points of the text that they spell."""
    end = 0
    for position, entry in enumerate(entries):
        if end >= chars:
            return position
        end += len(str(entry.get("token", "")))
    return len(entries)


def _moved(offset: Any, back: int) -> Any:
    return offset - back if isinstance(offset, int) else offset
