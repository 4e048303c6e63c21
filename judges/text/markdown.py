"""Converts Markdown to the plain text that a judge reads."""

import html
import re
from collections.abc import Sequence

_NAMED = r"(?:[Dd]oc(?:ument)?|[Ss]ource|[Rr]ef(?:erence)?|[Cc]hunk|[Qq]uelle|[Dd]okument|[Ff]uente)s?"
CITATION = re.compile(
    rf"\[\[?\^?(?:{_NAMED}[ :#_-]{{0,2}})?\d{{1,3}}(?:[ ,;–†-]{{1,2}}\^?\d{{1,3}}){{0,8}}\]?\](?:\([^()\s]{{0,300}}\))?"
    rf"|\[{_NAMED}: ?[^\[\]\n]{{1,60}}\]"
    r"|【[^【】\n]{1,60}】"
)
"""A citation marker: ``[1]``, ``[^2]``, ``[3, 4]``, ``[doc 5]``, ``【6†source】``."""

ROW = re.compile(r"\s*\|")
HEADING = re.compile(r"\s*#{1,6}(?:[ \t]|\Z)")
ITEM = re.compile(r"\s*(?:>\s?){0,8}(?:[-*+•◦‣▪–—]|\d{1,3}\.|\(?(?:\d{1,3}|[A-Za-z])\))[ \t]+(?:\[[ xX]\][ \t]+)?")

_BLOCK = re.compile(rf"(?:\s*>){{0,8}}(?:\s*#{{1,6}}[ \t]+|{ITEM.pattern})?(?:\s*\Z)?")
_QUOTE = re.compile(r"\n[ \t]{0,8}(?:>[ \t]?){1,8}")
_FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_RULE = re.compile(r"\s*(?:[-_*=]\s*){3,}\Z")
_INLINE = re.compile(
    r"(?P<code>(?P<ticks>`{1,3})(?P<literal>[^`]{1,1000})(?P=ticks))"
    rf"|[ \t]?(?P<cite>{CITATION.pattern})"
    r"|!?\[(?P<link>[^\[\]]{0,500})\]"
    r"(?:\([^()\s]{0,1000}(?:\([^()\s]{0,200}\)[^()\s]{0,200})?(?: \"[^\"]{0,200}\")?\)|\[[^\[\]]{0,100}\])"
    r"|[ \t]?(?P<note><sup>\[?\d{1,3}\]?</sup>)"
    r"|<(?P<auto>(?:https?://|mailto:)[^<>\s]{1,1000})>"
    r"|(?P<tag></?[a-zA-Z][^<>\n]{0,100}>)"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<marks>\*+|_+|~~)"
)
_MARKED = re.compile(r"[`*_~<\\\[【]")
"""A character that all inline Markdown has, and most sentences lack."""
_DELIMITER = re.compile(r"\s*:?-+:?\s*\Z")


def plain(text: str) -> str:
    """A sentence or block of Markdown as it would be read aloud: without markup and citations, with link texts and
    code, white space collapsed. "" if nothing is left (a rule, a marker alone)."""
    if ROW.match(text):
        return ", ".join(cell for cell in cells(text) if cell)
    if _RULE.match(text):
        return ""
    block = _BLOCK.match(text)
    return inline(_QUOTE.sub("\n", text[block.end() if block else 0 :]))


def plain_code(text: str) -> str:
    """The code of a fenced block without its fences, white space collapsed."""
    return " ".join(_FENCE.sub("", _join_surrogates(text)).split())


def _join_surrogates(text: str) -> str:
    """``text`` with surrogate pairs joined that a stream delivered in halves; a lone half is replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cells(row: str) -> list[str]:
    """The plain texts of a table row's cells; empty for the delimiter row below a header."""
    raw = re.split(r"(?<!\\)\|", row.strip().strip("|"))
    if all(_DELIMITER.match(cell) for cell in raw):
        return []
    return [inline(cell) for cell in raw]


def verbalise_row(header: Sequence[str], values: Sequence[str]) -> str:
    """A table row in words: each cell after its column's name, if there is a name for each."""
    names = header if len(header) == len(values) else [""] * len(values)
    return "; ".join(f"{name}: {value}" if name else value for name, value in zip(names, values, strict=True) if value)


def inline(text: str) -> str:
    """``text`` without inline Markdown; block markers are kept."""
    spoken = _join_surrogates(text)
    if _MARKED.search(spoken):
        spoken = _INLINE.sub(_speak, spoken)
    if "&" in spoken:
        spoken = html.unescape(spoken)
    return " ".join(spoken.split())


def _speak(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "code":
            return found["literal"]
        case "link":
            return inline(found["link"])
        case "auto":
            return found["auto"]
        case "escaped":
            return found["escaped"]
        case "tag":
            return " " if found["tag"].lower().startswith("<br") else ""
        case "marks":
            return _emphasis(found)
        case _:
            return ""


def _emphasis(found: re.Match[str]) -> str:
    """ "" for emphasis; the characters themselves if they are an operator or part of a name (2*3, a_b)."""
    marks, text = found["marks"], found.string
    before = text[found.start() - 1 : found.start()] or " "
    after = text[found.end() : found.end() + 1] or " "
    within_word = before.isalnum() and after.isalnum()
    is_text = (within_word and (len(marks) == 1 or marks[0] == "_")) or (before.isspace() and after.isspace())
    return marks if is_text else ""
