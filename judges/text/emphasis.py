"""Decides which asterisks, underscores and tildes are markup, by the rules of CommonMark 0.31.2 and GitHub's Markdown.

A sentence is read without the rest of its paragraph, so an asterisk without a partner in the sentence may still pair
with one in another sentence. A judge therefore doesn't read it. It is unjudged inside a number, where it affects which
number the text shows, and directly after a word if it is unlikely to have a partner anywhere ("an A* in maths").
"""

import unicodedata
from collections.abc import Sequence

from msgspec.structs import replace

from judges.text.fragments import Fragment, FragmentKind

_IN_NUMBERS = ".,'’·٫٬^"
"""Characters in numbers other than digits: they separate groups of digits, or raise to a power."""


def mark_fragment(text: str, start: int, end: int) -> Fragment:
    """Return the fragment of a run of asterisks, underscores or tildes. A run whose meaning depends on the surrounding
    text has the kind ``EMPHASIS`` until ``settle_marks`` decides on it."""
    run = text[start:end]
    opens, closes = _flanks(text, start, end)
    if run[0] == "~":
        is_struck = len(run) > 1 or (closes and not _is_in_word(text, start, end))
        return (
            Fragment(start, end, FragmentKind.STRUCK) if is_struck else Fragment(start, end, FragmentKind.EMPHASIS, run)
        )
    if not (opens or closes) or (run[0] == "_" and _is_in_word(text, start, end)):
        return Fragment(start, end, FragmentKind.TEXT, run)
    return Fragment(start, end, FragmentKind.EMPHASIS)


def settle_marks(text: str, parts: Sequence[Fragment]) -> list[Fragment]:
    """Return ``parts`` after deciding on the marks whose meaning depends on the rest of the text: emphasis, and tildes
    inside words."""
    settled = list(parts)
    runs: list[int] = []
    joining: set[int] = set()
    waiting: list[int] = []
    read, is_open = "", False
    for place, part in enumerate(parts):
        if part.kind is FragmentKind.EMPHASIS:
            if not part.spoken:
                waiting.append(place)
                continue
            opens, closes = _flanks(text, part.start, part.end)
            is_struck = closes and is_open
            settled[place] = replace(part, kind=FragmentKind.STRUCK if is_struck else FragmentKind.TEXT)
            is_open |= opens
        if part.spoken.strip(_IN_NUMBERS):
            if read.isnumeric() and part.spoken.lstrip(_IN_NUMBERS)[0].isnumeric():
                joining.update(waiting)
            runs += waiting
            waiting, read = [], part.spoken.rstrip(_IN_NUMBERS)[-1]
    runs += waiting
    shown = _unpaired(text, [parts[place] for place in runs])
    for place, count in zip(runs, shown, strict=True):
        part = parts[place]
        if place in joining or (count and _is_shown(text, part)):
            settled[place] = replace(part, spoken=text[part.start : part.start + count])
        else:
            settled[place] = replace(part, kind=FragmentKind.SYNTAX)
    return settled


def _is_shown(text: str, run: Fragment) -> bool:
    """Return whether a run without a partner in its sentence is shown, because it is unlikely to have one in another
    sentence: it can only close emphasis, but it follows a word directly ("an A* in maths"). At the end of a sentence,
    two marks may close emphasis that began in an earlier sentence."""
    opens, closes = _flanks(text, run.start, run.end)
    is_last = not any(map(is_word, text[run.end :]))
    after_word = is_word(text[run.start - 1 : run.start])
    return closes and not opens and after_word and not (is_last and run.end - run.start > 1)


def _unpaired(text: str, runs: Sequence[Fragment]) -> list[int]:
    """Return, for each run, the number of marks that pair with no other mark by CommonMark's rules for emphasis. The
    time is linear in the number of marks."""
    lengths = [run.end - run.start for run in runs]
    left = list(lengths)
    sides = [_sides(text, run) for run in runs]
    openers: list[int] = []
    lowest: dict[tuple[str, bool, int], int] = {}
    """The first run that can still pair with a closing run of this kind; those before it have been tried in vain."""
    for place, run in enumerate(runs):
        mark, (opens, closes) = text[run.start], sides[place]
        key = (mark, opens, lengths[place] % 3)
        while closes and left[place]:
            at = len(openers) - 1
            while at >= 0 and openers[at] >= lowest.get(key, 0):
                other = openers[at]
                by_threes = (opens or sides[other][1]) and (lengths[other] + lengths[place]) % 3 == 0
                if text[runs[other].start] == mark and not (by_threes and lengths[place] % 3):
                    break
                at -= 1
            else:
                lowest[key] = place
                break
            other = openers[at]
            used = 2 if min(left[place], left[other]) > 1 else 1
            left[place] -= used
            left[other] -= used
            del openers[at + bool(left[other]) :]
        if opens and left[place]:
            openers.append(place)
    return left


def _sides(text: str, run: Fragment) -> tuple[bool, bool]:
    """Return whether a run can open emphasis, and whether it can close emphasis."""
    opens, closes = _flanks(text, run.start, run.end)
    if text[run.start] != "_" or not (opens and closes):
        return opens, closes
    return not is_word(text[run.start - 1 : run.start]), not is_word(text[run.end : run.end + 1])


def _flanks(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether a run of marks is left-flanking (it can open), and whether it is right-flanking (it can close)."""
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    is_spaced, was_spaced = not after.strip(), not before.strip()
    left = not is_spaced and (is_word(after) or not is_word(before))
    right = not was_spaced and (is_word(before) or not is_word(after))
    return left, right


def _is_in_word(text: str, start: int, end: int) -> bool:
    return is_word(text[max(0, start - 1) : start]) and is_word(text[end : end + 1])


def is_word(character: str) -> bool:
    """Return whether a character is neither whitespace nor punctuation."""
    return bool(character.strip()) and unicodedata.category(character)[0] not in "PS"
