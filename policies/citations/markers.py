"""Resolves citation markers such as ``[1, 3-5]``, ``[faq.pdf, p. 3]`` or ``【4:0†source】`` to documents.

Square brackets contain many things that are not citations: years, intervals, indices, placeholders, link texts. So a
marker counts only if it names a document, or can hardly refer to anything but a document that does not exist.
"""

import re
from collections.abc import Iterator, Sequence

from policies.citations.document_names import DocumentNames

BRACKETS = re.compile(
    r"\[(?P<square>[^\[\]\n]{1,200}?)\\?\]|【(?P<lens>[^【】\n]{1,200})】|［(?P<wide>[^［］\n]{1,200})］"
)

_KIND = r"(?:doc|document|dokument|source|src|quelle|fuente|ref|reference|cite|citation|passage|snippet|chunk)"
_SEPARATOR = re.compile(r"[,;，、；|]")
_NUMBER = re.compile(rf"\^?(?:{_KIND}s?[.:]?[ #_-]*)?([0-9]{{1,4}})\^?", re.IGNORECASE)
_RANGE = re.compile(r"([0-9]{1,3})\s?[-–—]\s?([0-9]{1,3})")
_LABEL = re.compile(rf"{_KIND}s?\s*[:：]\s*", re.IGNORECASE)
_LENS = re.compile(r"(?:(?P<message>[0-9]{1,4}):)?(?P<number>[0-9]{1,4})(?:†(?P<name>.*))?", re.DOTALL)
_PLACE = re.compile(r"(?:[:#]\S{1,40}|\s\(?(?:pp?|pages?|s|seite|§|sec|section|ch|chapter|para)\.?\s?\S{1,20})\Z", re.I)
_PLACE_ALONE = re.compile(
    r"(?:pp?|pages?|s|seite|§|sec|section|ch|chapter|para)\.?\s?[0-9]{1,5}(?:[-–][0-9]{1,5})?", re.I
)
_UNBALANCED = re.compile(r"[(){}]")
_LARGEST_STRAY = 99
"""A larger number that matches no document is taken to be a year, a status code or an issue number, not a marker."""

_INDEX = re.compile(r"(?:(?<!\w)[a-z]|(?<=[A-Za-z0-9])_[A-Za-z0-9]{1,30})\Z")
_ASSIGNED = re.compile(r"\s?(?:=(?!=)|[+*/-]=)|\.[a-z]\w*\(|\(\)")
_RELATION = re.compile(r"(?:[={≤≥≈∈∉⊂⊆∪∩×]|[\"']:)\s?\Z")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_INTERVAL = re.compile(
    r"(?:interval|range|domain|vectors?|lists?|arrays?|tuples?|indices|intervall|bereich)(?: of| from| von)?:?\s\Z",
    re.IGNORECASE,
)
_LOOK_BACK = 40

MarkedDocument = tuple[str, int | None]
"""A marker as shown, with the index of its document, or None if it matches no document in the request."""


def read_marker(text: str, match: re.Match[str], names: DocumentNames) -> Iterator[MarkedDocument]:
    """Yield the citations in a bracket, given as a ``match`` of ``BRACKETS`` in ``text``."""
    whole = match[0]
    content = label_of(match)
    if match["lens"] is not None or "†" in content:
        yield from _lens(whole, content, names)
        return
    if (index := names.get(content)) is not None and not content.isdecimal():
        yield whole, index
        return
    # A number in a link text may mean anything, and a bracket in a document may simply be repeated.
    strays = not text.startswith("(", match.end()) and not names.is_in_documents(whole)
    for marker, index in _square(text, match, content, names):
        if index is not None or strays:
            yield marker, index


def names_only_documents(bracket: str, names: DocumentNames) -> bool:
    """Whether a bracketed text, which includes the brackets, names documents in the request and says nothing else.

    Parentheses contain numbers of many kinds, so only names count in them.
    """
    content = bracket.strip("[](){}【】［］").strip()
    if (index := names.get(content)) is not None and not content.isdecimal():
        return True
    if bracket[0] == "【" or "†" in content:
        match = _LENS.fullmatch(content)
        name = (match["name"] or "").partition("†")[0].strip() if match else ""
        known = name.casefold() in ("", "source") or names.get(name) is not None
        return match is not None and known and _of_lens(match, content, names) is not None
    label = _LABEL.match(content)
    parts = [part.strip() for part in _SEPARATOR.split(content[label.end() :] if label else content)]
    index = None
    for part in parts:
        if index is not None and _PLACE_ALONE.fullmatch(part):
            continue
        index = _named(part, names) if bracket[0] == "(" else _numbered_or_named(part, names)
        if index is None:
            return False
    return index is not None


def _numbered_or_named(part: str, names: DocumentNames) -> int | None:
    if several := _RANGE.fullmatch(part):
        return int(several[2]) - 1 if 0 < int(several[1]) < int(several[2]) <= names.count else None
    if not part.isdecimal() and (index := _named(part, names)) is not None:
        return index
    number = _NUMBER.fullmatch(part)
    return names.at_number(int(number[1])) if number else None


def label_of(match: re.Match[str]) -> str:
    """Return the text between the brackets."""
    return (match["square"] or match["wide"] or match["lens"]).strip()


def _square(text: str, match: re.Match[str], content: str, names: DocumentNames) -> Iterator[MarkedDocument]:
    if _UNBALANCED.search(content) or _THOUSANDS.fullmatch(content) or _is_code_or_maths(text, match, content):
        return
    label = _LABEL.match(content)
    parts = [part.strip() for part in _SEPARATOR.split(content[label.end() :] if label else content)]
    if len(parts) > 1 and "0" in parts:
        return  # This is an interval, because markers start at one.
    yield from _listed(parts, names)


def _listed(parts: Sequence[str], names: DocumentNames) -> Iterator[MarkedDocument]:
    """Yield the citations in a list such as ``1, 3-5``, ``faq, 2`` or ``4, p. 17``, up to the first part that is not a
    citation."""
    for part in parts:
        if (several := _RANGE.fullmatch(part)) and 0 < int(several[1]) < int(several[2]) <= names.count:
            for position in range(int(several[1]), int(several[2]) + 1):
                yield f"[{position}]", position - 1
        elif not part.isdecimal() and (index := _named(part, names)) is not None:
            yield f"[{part}]", index
        elif number := _NUMBER.fullmatch(part):
            index = names.at_number(int(number[1]))
            index = names.get(part) if index is None else index
            if index is None and int(number[1]) > _LARGEST_STRAY:
                return
            yield f"[{part}]", index
        elif names.resembles_name(part):
            yield f"[{part}]", None
        else:
            return


def _named(part: str, names: DocumentNames) -> int | None:
    """Return the document that ``part`` names, with or without a location in it (``faq.pdf p. 3``, ``faq:2``,
    ``faq#leave``)."""
    if (index := names.get(part)) is not None:
        return index
    place = _PLACE.search(part)
    name = part[: place.start()].rstrip() if place else ""
    return names.get(name) if name and not name.isdecimal() else None


def _lens(whole: str, content: str, names: DocumentNames) -> Iterator[MarkedDocument]:
    """Yield the citations in lenticular brackets: ``4†source``, ``1:0†name`` (message and result number, starting at
    zero), an id or a number. Anything else is not a citation: Chinese and Japanese use such brackets for headings
    too."""
    match = _LENS.fullmatch(content)
    if match is None:
        if (index := names.get(content)) is not None:
            yield whole, index
        return
    if (index := _of_lens(match, content, names)) is not None or not names.is_in_documents(whole):
        yield whole, index


def _of_lens(match: re.Match[str], content: str, names: DocumentNames) -> int | None:
    name = (match["name"] or "").partition("†")[0].strip()
    index = names.get(name) if name else None
    if index is not None or (match["message"] and name.casefold() not in ("", "source")):
        return index
    number = int(match["number"])
    index = names.at_number(number + 1 if match["message"] else number)
    return names.get(content) if index is None else index


def _is_code_or_maths(text: str, match: re.Match[str], content: str) -> bool:
    """Whether a bracket is code or maths: ``x[1]``, ``row_b[1]``, ``[1] = 5``, ``x ∈ [1, 2]``, ``in the interval [1,
    2]``."""
    before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
    if _INDEX.search(before) or _ASSIGNED.match(text, match.end()):
        return True
    several = _SEPARATOR.search(content) or _RANGE.fullmatch(content)
    return bool(_RELATION.search(before) or (several and _INTERVAL.search(before)))
