"""Finds instructions to a model or a judge in the text of a document.

The grammar (``grammar.toml``) describes imperatives that override a model's instructions, ask for its prompt, change
its role, hide something from its user or dictate a verdict. Other imperatives about a reply count only if they address
a model or are hidden. Text is compared as a model reads it: without markup, invisible characters and look-alikes.
"""

import html
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

ADDRESSED = "addressed"
HIDDEN = "hidden"
_MOST_CHARS = 200
_REACH = 3
"""Number of sentences that a form of address applies to, including the sentence that contains it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedInstruction:
    """An instruction in a document. ``kind`` is ``override``, ``verdict``, ``reveal``, ``role``, ``conceal``,
    ``addressed`` or ``hidden``; ``sentence`` is the beginning of the sentence in the form that is compared: in lower
    case, without markup."""

    kind: str
    sentence: str


@lru_cache(maxsize=32)
def find_instruction(text: str) -> InjectedInstruction | None:
    """Return the first instruction to a model or a judge in ``text``. Takes about 0.6 ms per 1,000 characters. Results
    for the most recent texts are cached, because several policies check the same documents."""
    grammar = _grammar()
    hidden: list[str] = []
    visible = _without_markup(_readable(text), hidden)
    return _first(grammar, visible, hidden=False) or _first(grammar, "\n".join(hidden), hidden=True)


def _first(grammar: "_Grammar", text: str, *, hidden: bool) -> InjectedInstruction | None:
    previous, addressed = "", 0
    for sentence in _sentences(text):
        anchored = not grammar.anchors.isdisjoint(sentence.split())
        if anchored and (found := grammar.strong.search(sentence)):
            return InjectedInstruction(kind=_kind(found), sentence=sentence[:_MOST_CHARS])
        addresses = anchored and grammar.address.search(sentence) is not None
        addressed = _REACH if addresses else addressed - 1
        if hidden or addressed > 0:
            for candidate in (previous, sentence) if addresses else (sentence,):
                if grammar.weak.search(candidate):
                    return InjectedInstruction(kind=HIDDEN if hidden else ADDRESSED, sentence=candidate[:_MOST_CHARS])
        previous = sentence
    return None


def _kind(found: re.Match[str]) -> str:
    return next(name for name, value in found.groupdict().items() if value is not None)


_TAGS = {0xE0000 + code: chr(code) for code in range(0x20, 0x7F)}
"""Invisible "tag" characters, which models read as ASCII."""
_LOOK_ALIKES = str.maketrans(
    "асеіјорѕхуԁһԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧοАВЕІЈКМНОРСТХЅ’", "aceijopsxydhqwABEZHIKMNOPTYXoABEIJKMHOPCTXS'"
)
_LATIN = re.compile(r"[a-zA-Z]")


def _readable(text: str) -> str:
    """Undo changes that hide words from the comparison but not from a model."""
    text = html.unescape(text)
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text.translate(_TAGS))
    text = "".join(character for character in text if unicodedata.category(character) != "Cf")
    return re.sub(r"\w+", _latin, text).replace("’", "'")


def _latin(word: re.Match[str]) -> str:
    """Replace characters that look like Latin letters in a word that mixes scripts."""
    found = word.group()
    return found.translate(_LOOK_ALIKES) if not found.isascii() and _LATIN.search(found) else found


_TEMPLATE = re.compile(
    r"<\|[a-z_]{2,20}\|>|\[/?INST\]|<<?/?(?:sys|system|assistant|instructions?)>>?"
    r"|\"role\"\s*:\s*\"(?:system|assistant|developer)\"|^#{2,}\s*(?:system|instructions?)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
"""The marks with which chat templates separate messages. The words after such a mark address a model."""
_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)|\[//\]: # \((.{0,2000}?)\)", re.DOTALL)
_HIDDEN = re.compile(
    r"<(\w{1,10})\b[^<>]{0,200}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0\b"
    r"|color\s*:\s*(?:white|#fff)|\bhidden\b)[^<>]{0,200}>(.{0,2000}?)</\1>",
    re.DOTALL | re.IGNORECASE,
)
_INLINE = re.compile(r"</?(?:b|i|u|s|em|strong|span|font|mark|small|sub|sup|code|a)\b[^<>]{0,200}>|\*\*|__|~~|`", re.I)
_TAG = re.compile(r"</?\w[^<>]{0,500}>")


def _without_markup(text: str, hidden: list[str]) -> str:
    """Return the visible part of ``text``, and add the parts that its markup hides to ``hidden``."""

    def hide(found: re.Match[str]) -> str:
        hidden.append(found.group(found.lastindex or 0))
        return " "

    text = _TEMPLATE.sub("\nai:\n", text)
    if "<" in text or "[//]" in text:
        text = _HIDDEN.sub(hide, _COMMENT.sub(hide, text))
    return _TAG.sub("\n", _INLINE.sub("", text))


_END = re.compile(r"(?<![.!?;:…。|])[.!?;:…。|]++(?=\s|\Z|[\"'”»)])|\n+")
_WORD = re.compile(r"[^\W_][\w'/%-]*|,|[\"“”„«»]")


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences as lower-case words, with commas and quotes inside the sentence as words."""
    for sentence in _END.split(text.casefold()):
        words = " ".join(_WORD.findall(sentence)).strip('",“”„«» ')
        if words:
            yield words


@dataclass(frozen=True, slots=True)
class _Grammar:
    anchors: frozenset[str]
    strong: re.Pattern[str]
    weak: re.Pattern[str]
    address: re.Pattern[str]


@cache
def _grammar() -> _Grammar:
    source = resources.files(__package__) / "grammar.toml"
    tables: Mapping[str, Any] = tomllib.loads(source.read_text(encoding="utf-8"))
    kinds = dict.fromkeys(kind for table in tables.values() for kind in table["strong"])
    strong = [
        f"(?P<{kind}>{_every((t['slots'], t['strong'].get(kind, ())) for t in tables.values())})" for kind in kinds
    ]
    return _Grammar(
        anchors=frozenset(word for table in tables.values() for word in table["anchors"].split()),
        strong=re.compile("|".join(strong)),
        weak=re.compile(_every((table["slots"], table["weak"]) for table in tables.values())),
        address=re.compile(_every((table["slots"], table["address"]) for table in tables.values())),
    )


def _every(languages: Iterable[tuple[Mapping[str, str], Sequence[str]]]) -> str:
    """Join the patterns of all languages, each with its slots. To save time, patterns that match at the start of a
    clause are joined behind a single pattern for that start."""
    joined = []
    for slots, patterns in languages:
        of_clauses = [pattern[1:] for pattern in patterns if pattern.startswith(">")]
        joined += [_expand(pattern, slots) for pattern in patterns if not pattern.startswith(">")]
        if of_clauses:
            joined.append(_expand(f"(?:^|(?<![^ ])(?:{{lead}}))(?:{'|'.join(of_clauses)})", slots))
    return "|".join(joined)


_SLOT = re.compile(r"\{([a-z]+)\}")
_GAP = re.compile(r"\{(\d)~\}")


def _expand(pattern: str, slots: Mapping[str, str]) -> str:
    while _SLOT.search(pattern):
        pattern = _SLOT.sub(lambda slot: f"(?:{slots[slot[1]]})", pattern)
    return _GAP.sub(r'(?:[^ "“”„«»]+ ){0,\1}', pattern)
