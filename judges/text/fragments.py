"""Splits text into fragments. Each fragment has a kind, and a text that a judge reads in its place, so that all text
that is delivered unjudged has a named kind, such as a link's target, an attribute or a comment."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

SYMBOLS: Final = re.compile(
    r"(?!(?<=\w)&(?=\w)|(?<=\w )&(?= \w))[^\w\s.,;:!?'\"()\[\]\-*_#|/“”„‟‚‘’‛«»‹›…–—‐‑‒―¿¡·•§"
    r"、。，．：；！？・｡､「」『』（）【】《》〈〉؟،؛۔।॥⁇⁈⁉‼]"
)
"""Matches every character except letters, digits, whitespace and punctuation that states nothing. An "&" that means
"and" doesn't match."""
_WORDS: Final = re.compile(r"[^\W_](?:.*[^\W_])?", re.DOTALL)
INVISIBLE_CHARACTERS = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001345f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]+"
)
"""Invisible characters: format and control characters, fillers, variation selectors, tags. Also surrogates, which are
left when a stream delivers a character in halves."""
_OVERLAYS = "".join(
    mark
    for mark in map(chr, range(0x300, 0x20000))  # all marks are in the first two planes
    if unicodedata.combining(mark) == 1 or unicodedata.category(mark) == "Me"
)
"""Marks drawn over or around other characters."""
_HIDDEN: Final = re.compile(
    rf"{INVISIBLE_CHARACTERS.pattern}|(?P<struck>(?:(?!(?<=[0-9#*])\u20e3|(?<=[0-9#*]\ufe0f)\u20e3)[{_OVERLAYS}])+)"
)
"""Matches invisible characters and overlay marks that strike out other characters, except the mark in a keycap
emoji."""
_JOINERS: Final = frozenset("\u200c\u200d")
_JOINED_SCRIPTS = re.compile("[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufeff]")
"""Scripts that need joiners and non-joiners: Arabic, Indian scripts, Tibetan, Khmer, Mongolian."""

_COMMENT = re.compile(r"<!--(?:-?>|.*?--!?>)|<(?:[!?]|/(?![a-zA-Z]))[^>]*>", re.DOTALL)
_TAG = re.compile(
    r"</?(?P<name>[a-zA-Z][^\s/>]*+)(?P<attributes>(?:[\s/]++"
    r"|[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'>])[^\s>]++)?+)?+)*+)>"
)
"""Comments and tags, read as browsers read them."""
_MAX_MARKUP_CHARS = 2000
_SHOWN_TAGS_LISTED = (
    "a abbr address article aside b big blockquote br caption center cite code dd dfn div dl dt em figcaption figure "
    "font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd label li main mark nav ol p pre q rt ruby samp section "
    "small span strong sub summary sup table tbody td tfoot th thead time tr tt u ul var wbr"
)
_SHOWN_TAGS: Final = frozenset(_SHOWN_TAGS_LISTED.split())
"""Elements whose text browsers show as it is. Any other element may strike its text out or hide it."""
_OTHER_TAGS_LISTED = (
    "acronym applet area audio base basefont bdi bdo body button canvas col colgroup data datalist del details dialog "
    "dir embed fieldset form frame frameset head hgroup html iframe image input keygen legend link listing map marquee "
    "math menu meta meter nobr noembed noframes noscript object optgroup option output param picture plaintext "
    "progress rb rp rtc s script search select slot source strike style svg template textarea title track video xmp"
)
_OTHER_TAGS: Final = frozenset(_OTHER_TAGS_LISTED.split())
"""All other elements. A name in angle brackets that isn't an element may be the name of a document."""
_INLINE_TAGS_LISTED = (
    "a abbr b big cite code dfn em font i ins kbd label mark q rt ruby samp small span strong time tt u var wbr"
)
INLINE_TAGS: Final = frozenset(_INLINE_TAGS_LISTED.split())
"""Elements that may be inside a word; all others separate words."""
_FENCE = re.compile(r"^[ \t>]*(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE)


class FragmentKind(StrEnum):
    """The kind of a fragment. A fragment of any kind other than ``TEXT`` and ``SYNTAX`` may contain something that a
    judge does not read."""

    TEXT = "text"
    SYNTAX = "syntax"
    """Whitespace and markup."""
    ORDINAL = "ordinal"
    """The number of a list item."""
    SYMBOL = "symbol"
    """The check box of a list item."""
    MARKER = "marker"
    """A citation marker that names a document, or may name one."""
    STRAY_MARKER = "stray_marker"
    """A citation marker that names none of the documents."""
    LINK = "link"
    """A link's target or title, or the label of a definition."""
    ATTRIBUTE = "attribute"
    """The attributes of an HTML element, or an image with an alternative text."""
    COMMENT = "comment"
    STRUCK = "struck"
    """Markup that may strike out or hide text. The judge reads the text inside it."""
    INVISIBLE = "invisible"
    EMPHASIS = "emphasis"
    """Asterisks or underscores that may or may not be shown, depending on the text around them: inside a number, or
    after a word."""


class Fragment(Struct, frozen=True, array_like=True, gc=False):
    """The characters ``[start, end)`` of the text; ``spoken`` is the text that a judge reads instead."""

    start: int
    end: int
    kind: FragmentKind
    spoken: str = ""


Resolves = Callable[[str], bool]
"""Returns whether a text in brackets (passed with its brackets) is a citation marker that names one of the
documents."""


def spoken(parts: Iterable[Fragment]) -> str:
    """Return the text of ``parts`` that a judge reads, with whitespace collapsed."""
    return " ".join("".join([part.spoken for part in parts]).split())


def text_fragments(text: str, start: int, end: int) -> Iterator[Fragment]:
    """Split text without markup. Invisible characters and marks that strike text out become separate
    fragments."""
    if start >= end:
        return
    run = text[start:end]
    if run.isascii() and run.isprintable():
        yield Fragment(start, end, FragmentKind.TEXT, run)
        return
    at = start
    for found in _HIDDEN.finditer(text, start, end):
        if not found["struck"] and _belongs(text, found.start(), found.end()):
            continue
        if found.start() > at:
            yield Fragment(at, found.start(), FragmentKind.TEXT, join_surrogates(text[at : found.start()]))
        yield Fragment(found.start(), found.end(), FragmentKind.STRUCK if found["struck"] else FragmentKind.INVISIBLE)
        at = found.end()
    if end > at:
        yield Fragment(at, end, FragmentKind.TEXT, join_surrogates(text[at:end]))


def markup_fragments(text: str, start: int, end: int, resolves: Resolves | None) -> list[Fragment]:
    """Return the fragments of a comment or tag. A comment or tag that doesn't end here may end in later text, so its
    beginning is unjudged."""
    limit = text.rfind(">", start, min(end, start + _MAX_MARKUP_CHARS)) + 1
    if comment := _COMMENT.match(text, start, limit):
        return [Fragment(start, comment.end(), FragmentKind.COMMENT)]
    tag = _TAG.match(text, start, limit)
    if tag is None:
        return [Fragment(start, start + 1, FragmentKind.STRUCK)]
    name, stop = tag["name"].lower(), tag.end()
    if name not in _SHOWN_TAGS:
        is_marker = name not in _OTHER_TAGS and resolves is not None and resolves(tag[0])
        return [Fragment(start, stop, FragmentKind.MARKER if is_marker else FragmentKind.STRUCK)]
    said = "" if name in INLINE_TAGS else "^" if name == "sup" and tag[0][1] != "/" else " "
    attributes = tag["attributes"].strip().rstrip("/").rstrip()
    if not attributes:
        return [Fragment(start, stop, FragmentKind.SYNTAX, said)]
    begin = tag.start("attributes") + tag["attributes"].index(attributes)
    close = begin + len(attributes)
    return [
        Fragment(start, begin, FragmentKind.SYNTAX, said),
        Fragment(begin, close, FragmentKind.ATTRIBUTE),
        Fragment(close, stop, FragmentKind.SYNTAX),
    ]


def code_fragments(text: str, *, info: bool = True) -> list[Fragment]:
    """Return the fragments of a fenced block. The fences are syntax except for the info string, and each line of code
    is text. With ``info``, a judge reads the info string."""
    found: list[Fragment] = []
    at = 0
    for fence in _FENCE.finditer(text):
        found += _lines(text, at, fence.start())
        found.append(Fragment(fence.start(), fence.end("marks"), FragmentKind.SYNTAX))
        if fence["info"]:
            found.append(Fragment(*fence.span("info"), FragmentKind.TEXT, fence["info"] if info else ""))
        at = fence.end()
    return [*found, *_lines(text, at, len(text))]


def _lines(text: str, start: int, end: int) -> Iterator[Fragment]:
    while start < end:
        stop = text.find("\n", start, end) + 1 or end
        line = text[start:stop]
        yield Fragment(start, stop, FragmentKind.TEXT if line.strip() else FragmentKind.SYNTAX, join_surrogates(line))
        start = stop


def note_fragments(text: str, found: re.Match[str], resolves: Resolves | None) -> list[Fragment]:
    """Return the fragments of a superscript number: a citation marker, or text if no document has this number."""
    start, stop = found.span()
    marker = f"[{found[0][len('<sup>') : -len('</sup>')].strip('[]')}]"
    if resolves is None or resolves(marker):
        return [Fragment(start, stop, FragmentKind.MARKER)]
    return power_fragments(text, start, stop)


def power_fragments(text: str, start: int, stop: int) -> list[Fragment]:
    """Return the fragments of a superscript number that is read as text."""
    inner, after = start + len("<sup>"), stop - len("</sup>")
    return [
        Fragment(start, inner, FragmentKind.SYNTAX, "^"),
        Fragment(inner, after, FragmentKind.TEXT, text[inner:after]),
        Fragment(after, stop, FragmentKind.SYNTAX, " "),
    ]


def has_symbol(text: str) -> bool:
    """Return whether ``text`` has a symbol that can relate words: an ASCII one, or any symbol between words."""
    if text.isascii():
        return SYMBOLS.search(text) is not None
    words = _WORDS.search(text)
    return any(
        found[0].isascii() or (words is not None and words.start() < found.start() < words.end())
        for found in SYMBOLS.finditer(text)
        if is_symbol(found[0])
    )


def is_symbol(character: str) -> bool:
    """Return whether a character that ``SYMBOLS`` matches is a symbol rather than a combining mark."""
    return unicodedata.category(character)[0] not in "LMNZ"


def _belongs(text: str, start: int, end: int) -> bool:
    """Return whether the invisible characters affect how their neighbours look: an emoji variant or sequence, or a
    joiner in a script that needs it. Halves of visible characters belong to the text too."""
    joined = join_surrogates(text[start:end])
    if len(joined) < end - start:
        return "\N{REPLACEMENT CHARACTER}" not in joined and not INVISIBLE_CHARACTERS.search(joined)
    if end - start > 2 or start == 0:
        return False
    characters = text[start:end]
    before, after = text[start - 1], text[end : end + 1]
    if characters in ("\ufe0e", "\ufe0f"):
        return unicodedata.category(before) in ("So", "Sk", "Sm", "Po") or after == "\u20e3"
    if characters in ("\u200d", "\ufe0f\u200d"):
        pictures = unicodedata.category(before) in ("So", "Sk") and unicodedata.category(after or " ") == "So"
        return pictures or (characters == "\u200d" and _is_joined(before, after))
    return characters in _JOINERS and _is_joined(before, after)


def _is_joined(before: str, after: str) -> bool:
    return bool(_JOINED_SCRIPTS.match(before) and after and _JOINED_SCRIPTS.match(after))


def join_surrogates(text: str) -> str:
    """Join surrogate pairs that a stream delivered in halves, and replace lone halves."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
