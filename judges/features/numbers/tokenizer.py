"""Splits text into tokens in one pass: words, numbers as written, identifiers, and relevant punctuation. Every
alternative in the pattern is bounded or cannot backtrack, so the time taken is linear in the length of the text."""

import re
import unicodedata
from typing import Final

from msgspec import Struct


class Token(Struct, frozen=True, gc=False):
    """``kind`` is the name of the matching alternative; offsets are positions in the normalized text."""

    kind: str
    text: str
    lower: str
    start: int
    end: int


_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_SCAN: Final = re.compile(
    rf"""
    (?!\ )  # No token begins with a space. Without this line, each space is compared with every alternative.
    (?:
      (?P<plain>(?:[a-zA-Z]{{3,}}|(?![apAP][mM])[a-zA-Z]{{1,2}})(?=[\ ,;\n]))
    | (?P<url>(?:https?://|www\.)[^\s<>"'{_CJK}]+)
    | (?P<email>[a-zA-Z0-9.+-]{{1,64}}@[a-zA-Z0-9-]{{1,63}}(?:\.[a-zA-Z0-9-]{{1,63}}){{1,6}})
    | (?P<phone>(?:\+?\d{{1,3}}[ .-])?(?:\(\d{{3}}\)[ ]?|\d{{3}}[ .-])\d{{3}}[ .-]\d{{4}}(?![\d.,]\d|\d))
    | (?P<isodate>\d{{4}}-\d{{1,2}}-\d{{1,2}}(?!\d))
    | (?P<ip>\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?::\d{{1,5}})?(?!\.?\d))
    | (?P<date>\d{{1,2}}(?:\.\ ?\d{{1,2}}\.\ ?|/\d{{1,2}}/)\d{{4}}(?!\d))
    | (?P<grouped>\d{{1,3}}(?:\.\d{{3}}){{2,8}}(?!\.?\d)(?:,\d{{1,20}})?)
    | (?P<version>[vV]\d{{1,6}}(?:\.\d{{1,6}}){{0,5}}(?![\w])|\d{{1,3}}(?:\.\d{{1,3}}){{2,5}}(?!\.?\d))
    | (?P<time>\d{{1,2}}[:h]\d{{2}}(?::\d{{2}})?(?![\d:]))
    | (?P<number>(?:(?<![\w)\]])[-+])?(?:\d{{1,3}}(?:,\d{{3}}){{1,8}}(?!\d)(?:\.\d{{1,20}})?
        | \d{{1,3}}(?:\.\d{{3}}){{1,8}}(?!\d)(?:,\d{{1,20}})?
        | \d{{1,3}}(?:[ '’]\d{{3}}){{1,8}}(?!\d)(?:[.,]\d{{1,20}})?
        | \d{{1,30}}(?!\d)(?:[.,]\d{{1,20}})?
        | (?<![\w.)\]])\.\d{{1,20}}(?![.,]?\w)))
    | (?P<digits>\d+)
    | (?P<ampm>[apAP](?:\.\ ?[mM]\.?|[mM])(?![^\W_]))
    | (?P<cjk>[{_CJK}])
    | (?P<code>[^\W\d_{_CJK}]{{1,12}}\d[^\W_{_CJK}]{{0,30}})
    | (?P<possessive>(?<=[\d"”)\ ])'s(?![^\W_]))
    | (?P<word>[^\W\d_{_CJK}]+(?:['’][^\W\d_{_CJK}]+)*)
    | (?P<mark>[+.!?;:,()\[\]%$€£¥₹§~≈<>≥≤°/…。！？、；「」«»“”"\n-])
    )
    """,
    re.VERBOSE,
)
_SORTED: Final = {"grouped": "number", "possessive": "mark"}
_FRACTIONS: Final = {
    "½": ".5", "¼": ".25", "¾": ".75", "⅓": ".33", "⅔": ".67", "⅛": ".125", "⅜": ".375", "⅝": ".625", "⅞": ".875"
}  # fmt: skip
_FRACTION: Final = re.compile(rf"(?P<whole>(?<=\d)[ \u202f]?)?(?P<part>[{''.join(_FRACTIONS)}])")
_POWER: Final = re.compile(r"(?<![\w.,])10(¹?[⁰¹²³⁴⁵⁶⁷⁸⁹])(?![⁰¹²³⁴⁵⁶⁷⁸⁹])")
_SINGLE: Final = str.maketrans(
    {"−": "-", "–": "-", "‐": "-", "‑": "-", "—": ";", "’": "'", "ʼ": "'", "≠": " not ", "≯": " not > ", "≮": " not < "}
)


def normalise(text: str) -> str:
    """Normalize full-width forms, dashes, apostrophes and negated signs (NFKC and a few marks)."""
    if text.isascii():
        return text
    text = _POWER.sub(lambda found: str(10 ** int(unicodedata.normalize("NFKC", found[1]))), text)
    text = _FRACTION.sub(_decimal, text)  # NFKC turns 2½ into 21/2.
    return unicodedata.normalize("NFKC", text.translate(_SINGLE)).translate(_SINGLE)


def _decimal(found: re.Match[str]) -> str:
    return ("" if found["whole"] is not None else "0") + _FRACTIONS[found["part"]]


def scan(text: str) -> list[Token]:
    """Split a normalized text into tokens. Characters that don't matter here (emphasis, spaces) are skipped."""
    tokens: list[Token] = []
    # Words followed by a space ("plain") are tried first, because they make up most of any text and no other token can
    # begin like them.
    for match in _SCAN.finditer(text):
        kind, found = match.lastgroup or "mark", match[0]
        start, end = match.span()
        if kind == "plain":
            tokens.append(Token("word", found, found.lower(), start, end))
            continue
        if kind == "url":
            found = found.rstrip(".,;:!?)]*_`”’")
        tokens.append(Token(_SORTED.get(kind, kind), found, found.lower(), start, start + len(found)))
    return tokens
