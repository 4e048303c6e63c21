"""Converts untrusted text to markup: escapes it, makes invisible characters visible, and highlights passages."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_HIDDEN = re.compile(
    "([\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]+)"
)
"""Invisible characters that reorder, split or hide the text around them."""
_SEPARATOR = re.compile(r"(?<=[/\\_])(?=[^\s/\\_.-])|(?<=\w-)(?=\w)|(?<=\.)(?=[^\W\d_])")
"""The places where a line may break in a URL, or in the name of a file or a collection."""
_NAMED = 3
_AROUND = 240
_SENTENCE_END = re.compile(r"(?<![.!?。！？])[.!?。！？]++[\"'”’»)\]]*+(?=\s|\Z)|\n+|(?<=[。！？])")
_WORD = re.compile(r"\w{2,}|\d")
_ENOUGH = 0.3
"""A sentence counts as a claim's source if it contains more than this share of the claim's words."""
_WORD_END = re.compile(r"\s\S*\Z")
_WORD_START = re.compile(r"\A\S*\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A quote and the text around it, as markup."""

    before: Markup
    quote: Markup
    after: Markup


def shown(text: str | None, limit: int | None = None) -> Markup:
    """Return ``text`` as markup, with invisible characters replaced by their codes. Text beyond ``limit`` characters is
    replaced by a count."""
    if not text:
        return Markup()
    rest = 0 if limit is None else len(text) - limit
    made = _visible(text if rest <= 0 else text[:limit])
    return made if rest <= 0 else made + Markup('<span class="more">… {:,} more characters</span>').format(rest)


def breakable(text: str | None) -> Markup:
    """Return a name, or text that contains names, as markup, like ``shown``. Lines can break after a separator in a
    name, so that a long name isn't broken in the middle of a word."""
    return Markup("<wbr>").join(shown(part) for part in _SEPARATOR.split(text or ""))


def marked(text: str, spans: Iterable[tuple[int, int]], limit: int) -> Markup:
    """Return ``text`` as markup with ``spans`` (half-open, in characters) marked. If ``text`` is longer than ``limit``,
    parts far from the spans are replaced by an ellipsis."""
    wanted = _joined(spans, len(text))
    windows = [(0, len(text))] if len(text) <= limit else _windows(wanted, len(text), limit)
    made, end = Markup(), 0
    for first, last in windows:
        if first > end:
            made += _left_out(first - end)
        made += _mark(text, [span for span in wanted if first <= span[0] < last], first, last)
        end = last
    return made + _left_out(len(text) - end) if end < len(text) else made


def excerpt(text: str, span: tuple[int, int], key: tuple[int, int], words: Sequence[str] = ()) -> Excerpt:
    """Return a quote and some text on either side, cut at word boundaries. ``span`` is the passage, and ``key`` is the
    part of it to quote. ``words`` are emphasised in the quote."""
    start, end = span
    before, after = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    if start > _AROUND:
        before = "…" + _WORD_START.sub(" ", before, count=1)
    if end + _AROUND < len(text):
        after = _WORD_END.sub("", after, count=1) + " …"
    window = Markup('<span class="window">{}</span>')
    return Excerpt(
        before=shown(before) + window.format(shown(text[start : key[0]])),
        quote=emphasise(text[key[0] : key[1]], words),
        after=window.format(shown(text[key[1] : end])) + shown(after),
    )


def nearest_sentence(text: str, span: tuple[int, int], claim: str) -> tuple[int, int]:
    """Return the sentence within ``span`` of ``text`` that shares the most words with ``claim``. If no sentence shares
    enough words, return the whole ``span``."""
    wanted = _words(claim)
    best, found = _ENOUGH * len(wanted), span
    start = span[0]
    for end in [*(match.end() for match in _SENTENCE_END.finditer(text, *span)), span[1]]:
        if (shared := len(wanted & _words(text[start:end]))) > best:
            lead = len(text[start:end]) - len(text[start:end].lstrip())
            best, found = shared, (start + lead, start + len(text[start:end].rstrip()))
        start = end
    return found


def emphasise(text: str, words: Sequence[str]) -> Markup:
    """Return ``text`` as markup with ``words`` emphasised where they occur as whole words."""
    named = [word for word in words if word.strip()]
    if not named:
        return shown(text)
    pattern = "|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in sorted(set(named), key=len, reverse=True))
    parts = re.split(f"({pattern})", text, flags=re.IGNORECASE)
    return Markup().join(
        Markup('<b class="differs">{}</b>').format(shown(part)) if place % 2 else shown(part)
        for place, part in enumerate(parts)
    )


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _visible(text: str) -> Markup:
    text = text.encode("utf-8", "replace").decode()
    if _HIDDEN.search(text) is None:
        return escape(text)
    parts = _HIDDEN.split(text)
    return Markup().join(_named(part) if place % 2 else escape(part) for place, part in enumerate(parts))


def _named(run: str) -> Markup:
    codes = " ".join(f"U+{ord(char):04X}" for char in run[:_NAMED])
    more = f" +{len(run) - _NAMED}" if len(run) > _NAMED else ""
    title = ", ".join(unicodedata.name(char, "control character").lower() for char in run[:_NAMED])
    return Markup('<span class="hidden-char" title="{}">{}{}</span>').format(title, codes, more)


def _joined(spans: Iterable[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Sort the spans and merge overlapping ones."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((max(0, start), min(end, length)) for start, end in spans):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _windows(spans: Sequence[tuple[int, int]], length: int, limit: int) -> list[tuple[int, int]]:
    """Return the parts of a long text to show: its beginning and the text around each span."""
    if not spans:
        return [(0, limit)]
    around = max(200, limit // (2 * len(spans)) // 2)
    return _joined([(0, min(around, limit)), *((start - around, end + around) for start, end in spans)], length)


def _mark(text: str, spans: Sequence[tuple[int, int]], first: int, last: int) -> Markup:
    made = Markup()
    for start, end in spans:
        made += shown(text[first:start]) + Markup("<mark>{}</mark>").format(shown(text[start : min(end, last)]))
        first = min(end, last)
    return made + shown(text[first:last])


def _left_out(size: int) -> Markup:
    return Markup('<span class="more"> … {:,} characters … </span>').format(size)
