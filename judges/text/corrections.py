"""Puts corrections into a sentence. Changed words are marked; all others stay as they are."""

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

from msgspec import Struct

from judges.text.link_patterns import DESTINATION
from judges.types import ClaimVerdict, Sentence, SentenceVerdict

MARK = "[CORRECTED: "
LEAD = re.compile(
    r"(?P<gap>\s*)"
    r"(?P<marker>(?:>[ \t]?){0,8}(?:(?:[-*+•◦‣▪–—]|\d{1,3}\.|\(?(?:\d{1,3}|[A-Za-z])\))[ \t]+)?)"
)
"""The whitespace before a sentence, and the list or quotation marker at its beginning."""
_STOPS, _CLOSERS = ".!?…;。！？；", "\"'”’)]"
_WORD = re.compile(r"\S+")
_BRACKETS = {"]": "[", "】": "【"}
_CLOSED = {opened: closed for closed, opened in _BRACKETS.items()}
_MOST_WORDS = 60
"""The maximum number of words in a statement that is compared with its correction word by word. The comparison takes
time proportional to the square of the length."""
_MOST_MARKS = 3
_LEAST_SHARED = 0.5
"""The share of words that a statement and its correction must have in common. If they share less, the whole statement
is marked.
"""

_Segment = tuple[bool, int, int, Sequence[str]]
"""A segment of a statement: whether its words stay, the positions of its first word and after its last word, and the
words of the correction in its place."""
Mark = Callable[[str], str]


def in_brackets(words: str) -> str:
    """Mark ``words``, which come from a correction."""
    return f"{MARK}{words}]"


class CorrectedSentence(Struct, frozen=True):
    """A sentence with corrections. ``before`` is its list or quotation marker, or the beginning of its table row, and
    ``after`` is the end of the row."""

    before: str
    text: str
    after: str = ""

    def __str__(self) -> str:
        return f"{self.before}{self.text}{self.after}"


def corrected_sentence(verdict: SentenceVerdict, mark: Mark = in_brackets) -> CorrectedSentence:
    """Return a sentence with the corrections of its claims. If every claim has a correction, the corrections are marked
    inside the sentence where possible. Otherwise, they replace the sentence. A list item remains a list item, and a
    table row remains a table row."""
    sentence = verdict.sentence
    text = sentence.text.strip()
    start = _after_lead(text)
    before, body, after = text[:start], text[start:], ""
    corrections = [(_raw(sentence, each), each.correction) for each in verdict.claims if each.correction is not None]
    if body.startswith("|"):
        before, body, after = f"{before}| ", "", " |"
    inside = None
    if len(corrections) == len(verdict.claims):
        inside = marked_parts(body, corrections, mark)
    if inside is None:
        inside = replacement([correction for _, correction in corrections], mark)
    return CorrectedSentence(before, inside, after)


def replacement(corrections: Sequence[str], mark: Mark = in_brackets) -> str:
    """Return the corrections that replace a whole sentence."""
    return mark(" ".join(" ".join(corrections).split()))


def marked(said: str, correction: str, mark: Mark = in_brackets) -> str:
    """Return ``said`` with the words that ``correction`` changes marked. Without the marks, the result reads like the
    correction. Citations at the end of ``said`` are left out, because they may not support the correction."""
    said = _without_markers(said)
    body, end = _split_end(said)
    body = _without_markers(body)
    old = list(_WORD.finditer(body))
    new = _split_end(correction.strip())[0].split()
    segments = _segments([word[0] for word in old], new) if max(len(old), len(new)) <= _MOST_WORDS else None
    if segments is None:
        return replacement([correction], mark)
    text, at = "", 0
    for stays, first, last, words in segments:
        start = old[first].start() if first < len(old) else len(body)
        stop = old[last - 1].end() if last > first else start
        gap = body[at:start] or (" " if text else "")
        text += gap + (body[start:stop] if stays else mark(" ".join(words)))
        at = stop
    return text + (body[at:] if old else "") + end


def marked_parts(text: str, corrections: Sequence[tuple[str, str]], mark: Mark = in_brackets) -> str | None:
    """Return ``text`` with a correction marked in each of the given statements, which must be in order. Return None if
    a statement isn't in ``text``.
    """
    made, at = "", 0
    for said, correction in corrections:
        start = text.find(said, at) if said else -1
        if start < 0:
            return None
        made += text[at:start] + marked(said, correction, mark)
        at = start + len(said)
    return made + text[at:]


def _raw(sentence: Sentence, claim: ClaimVerdict) -> str:
    """Return the text of a claim as written in the sentence, without a list marker."""
    start, span = sentence.span.start, claim.claim.span
    raw = sentence.text[span.start - start : span.end - start].strip()
    return raw[_after_lead(raw) :]


def _after_lead(text: str) -> int:
    """Return the position after the list or quotation marker at the beginning of ``text``."""
    lead = LEAD.match(text)
    return lead.end() if lead is not None else 0


def _without_markers(text: str) -> str:
    """Return ``text`` without any bracketed text at its beginning or end. Brackets with a target (``[1](url)``) and
    brackets inside round brackets count too."""
    text = _without_last_markers(text.strip())
    if text.endswith(")") and (inside := _without_last_markers(text[:-1].rstrip())).endswith("("):
        text = inside[:-1].rstrip()
    while text and (closed := _CLOSED.get(text[0])) is not None and (end := text.find(closed)) >= 0:
        text = text[end + 1 :].lstrip()
    return text


def _without_last_markers(text: str) -> str:
    """Return ``text`` without the brackets at its end. Commas and semicolons may separate them."""
    rest = text
    while (start := _last_marker(rest)) >= 0:
        text = rest[:start].rstrip()
        rest = text.rstrip(" ,;")
    return text


def _last_marker(text: str) -> int:
    """Return the position of the bracket at the end of ``text``, or -1 if there is none."""
    at = text.rfind("](") if text.endswith(")") else -1
    last = at if at >= 0 and DESTINATION.fullmatch(text, at + 1) else len(text) - 1
    opened = _BRACKETS.get(text[last : last + 1])
    depth = 0
    for start in range(last if opened else -1, -1, -1):
        depth += (text[start] == text[last]) - (text[start] == opened)
        if depth == 0:
            return start
    return -1


def _split_end(text: str) -> tuple[str, str]:
    """Split off the punctuation at the end of ``text``. Return the rest and the punctuation."""
    inner = text.rstrip(_CLOSERS)
    body = inner.rstrip(_STOPS)
    return (text, "") if body == inner else (body, text[len(body) :])


def _segments(old: Sequence[str], new: Sequence[str]) -> list[_Segment] | None:
    """Return the segments that stay and the segments that are replaced, in order. Return None if too few words stay, or
    if too many segments are replaced."""
    segments: list[_Segment] = []
    stay = 0
    for kind, first, last, start, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            stay += last - first
        segments.append((kind == "equal", first, last, new[start:stop]))
    segments = _shown(segments)
    if stay < _LEAST_SHARED * max(len(old), len(new)) or not 0 < sum(not each[0] for each in segments) <= _MOST_MARKS:
        return None
    return segments


def _shown(segments: Sequence[_Segment]) -> list[_Segment]:
    """Return ``segments`` in a form that makes deletions visible: the mark for deleted words contains a neighbouring
    word that stays."""
    made: list[_Segment] = []
    taken = 0
    for place, (stays, first, last, words) in enumerate(segments):
        first += taken
        words = words[taken:]
        taken = 0
        if not stays and not words and place + 1 < len(segments):
            last, words, taken = last + 1, segments[place + 1][3][:1], 1
        elif not stays and not words and made:
            stayed, before, _, kept = made.pop()
            if stayed:
                first, words = first - 1, kept[-1:]
                made.append((True, before, first, kept[:-1]))
            else:  # the preceding mark already contains the word between the two
                first, words = before, kept
        if last > first or words:
            made.append((stays, first, last, words))
    return [each for each in made if each[2] > each[1] or each[3]]
