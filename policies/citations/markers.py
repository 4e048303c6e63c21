"""Resolves citation markers such as ``[1, 3-5]``, ``[faq.pdf, p. 3]`` or ``【4:0†source】`` to documents.

Square brackets contain many things other than citations: years, intervals, indices, placeholders, link texts. A marker
counts only if it names a document or can hardly refer to anything but a missing one.
"""

import re
from collections.abc import Iterator, Sequence

from policies.citations.document_names import DocumentNames, Documents

BRACKETS = re.compile(
    r"\[(?P<square>[^\[\]\n]{1,200}?)\\?\]|【(?P<lens>[^【】\n]{1,200})】|［(?P<wide>[^［］\n]{1,200})］"
)

NAMING = re.compile(r"[({（〔⟨<](?P<named>[^()\[\]{}<>（）〔〕⟨⟩\n]{1,120})[)}）〕⟩>]")
"""Brackets in which only document names are citations."""
_BRACKETS = "[](){}<>【】［］（）〔〕⟨⟩"
_NUMBERING = "[【［"
_QUOTES = "`*_\"'“”„‘’ \t"
_LEAD = re.compile(
    r"(?:see(?: also)?|cf\.?|from|via|per|according to|as (?:stated|described|noted|mentioned) in"
    r"|siehe|s\.|vgl\.?|aus|laut|voir|selon|d'après|véase|ver|según)\s+",
    re.IGNORECASE,
)
_KIND = r"(?:doc|document|dokument|source|src|quelle|fuente|ref|reference|cite|citation|passage|snippet|chunk)"
_SEPARATOR = re.compile(r"[,;，、；|]")
_NUMBER = re.compile(rf"\^?(?:{_KIND}s?[.:]?[ #_-]*)?([0-9]{{1,4}})\^?", re.IGNORECASE)
_RANGE = re.compile(r"([0-9]{1,3})\s?[-–—]\s?([0-9]{1,3})")
_LABEL = re.compile(rf"{_KIND}s?\s*[:：]\s*", re.IGNORECASE)
_LENS = re.compile(r"(?:(?P<message>[0-9]{1,4}):)?(?P<number>[0-9]{1,4})(?:†(?P<name>.*))?", re.DOTALL)
_PLACE = re.compile(r"(?:[:#]\S{1,40}|\s\(?(?:pp?|pages?|s|seite|§|sec|section|ch|chapter|para)\.?\s?\S{1,20})\Z", re.I)
_NUMBERED_PLACE = re.compile(
    r"[:#(]?\s?(?:(?:pp?|pages?|s|seite|§|sec|section|ch|chapter|para|l|lines?|chunk|part|slide)[.=_-]?\s?)?"
    r"[0-9]{1,5}(?:[-–.:](?:p|l)?[0-9]{1,5}){0,3}\)?",
    re.I,
)
_PLACE_ALONE = re.compile(
    r"(?:pp?|pages?|s|seite|§|sec|section|ch|chapter|para)\.?\s?[0-9]{1,5}(?:[-–][0-9]{1,5})?", re.I
)
_UNBALANCED = re.compile(r"[(){}]")
_LARGEST_STRAY = 99
"""A larger number that matches no document is taken for a year, a status code or an issue number rather than a
marker."""

_INDEX = re.compile(r"(?:(?<!\w)[a-z]|(?<=[A-Za-z0-9])_[A-Za-z0-9]{1,30})\Z")
_ASSIGNED = re.compile(r"\s?(?:=(?!=)|[+*/-]=)|\.[a-z]\w*\(|\(\)")
_RELATION = re.compile(r"(?:[={≤≥≈∈∉⊂⊆∪∩×]|[\"']:)\s?\Z")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_INTERVAL = re.compile(
    r"(?:interval|range|domain|vectors?|lists?|arrays?|tuples?|indices|intervall|bereich)(?: of| from| von)?:?\s\Z",
    re.IGNORECASE,
)
_LOOK_BACK = 40

MarkedDocuments = tuple[str, Documents]
"""A marker as it appears in the text, and the documents that it refers to. If its name isn't unique, there are several;
if it matches no document in the request, there are none."""


def read_marker(text: str, match: re.Match[str], names: DocumentNames) -> Iterator[MarkedDocuments]:
    """Yield the citations in a bracket, given as a ``match`` of ``BRACKETS`` in ``text``."""
    whole = match[0]
    content = label_of(match)
    if match["lens"] is not None or "†" in content:
        yield from _lens(whole, content, names)
        return
    if (named := names.get(content)) and not content.isdecimal():
        yield whole, named
        return
    # A number in a link text may mean anything, and a bracket that also occurs in a document may just be repeated.
    strays = not text.startswith("(", match.end()) and not names.is_in_documents(whole)
    for marker, documents in _square(text, match, content, names):
        if documents or strays:
            yield marker, documents


def names_only_documents(bracket: str, names: DocumentNames) -> bool:
    """Return whether a bracketed text (given with its brackets) contains only the names of the request's documents and
    locations in them: numbers, or anchors that repeat the documents' words."""
    return bool(documents_named(bracket, names))


def documents_named(bracket: str, names: DocumentNames) -> Sequence[Documents]:
    """Return the documents for each name in a bracketed text, or none if ``names_only_documents`` is False for the
    text.

    Numbers count only in the brackets in ``_NUMBERING``, because other brackets contain numbers of many kinds.
    """
    content = _LEAD.sub("", bracket.strip(_BRACKETS).strip(_QUOTES), count=1).strip(_QUOTES)
    if (named := names.get(content)) and not content.isdecimal():
        return [named] if _is_place(_fragment_of(content, names), names) else []
    if bracket[0] == "【" or "†" in content:
        match = _LENS.fullmatch(content)
        return _document_in_lens(match, content, names) if match is not None else []
    return _documents_listed(content, names, numbers=bracket[0] in _NUMBERING)


def _document_in_lens(match: re.Match[str], content: str, names: DocumentNames) -> Sequence[Documents]:
    name, _, place = (match["name"] or "").partition("†")
    name = name.strip()
    known = name.casefold() in ("", "source") or names.get(name)
    documents = _of_lens(match, content, names) if known else ()
    places = _is_place(place, names) and _is_place(_fragment_of(name, names), names)
    return [documents] if documents and places else []


def _documents_listed(content: str, names: DocumentNames, *, numbers: bool) -> Sequence[Documents]:
    """Return the documents for each name or number in a list such as ``1, faq.pdf, p. 3``; none if the list contains
    anything else."""
    label = _LABEL.match(content)
    found: list[Documents] = []
    for part in _SEPARATOR.split(content[label.end() :] if label else content):
        part = part.strip(_QUOTES)
        if found and _PLACE_ALONE.fullmatch(part):
            continue
        documents = _numbered_or_named(part, names) if numbers else _named(part, names)
        if not documents or not _is_place(_place_in(part, names), names):
            return []
        found.append(documents)
    return found


def _place_in(part: str, names: DocumentNames) -> str:
    """Return the location given in ``part``, which names a document, or "" if it gives none."""
    if names.get(part):
        return _fragment_of(part, names)
    return place[0] if (place := _PLACE.search(part)) else ""


def _fragment_of(name: str, names: DocumentNames) -> str:
    """If a URL names a document only without its fragment, return the fragment; otherwise, return ""."""
    return "" if names.is_name(name) else name.partition("#")[2]


def _is_place(place: str, names: DocumentNames) -> bool:
    """Return whether the text is nothing but a location in a document: a number, or an anchor that repeats words of a
    document in their order."""
    place = place.strip()
    return not place or _NUMBERED_PLACE.fullmatch(place) is not None or names.has_anchor(place)


def _numbered_or_named(part: str, names: DocumentNames) -> Documents:
    if several := _RANGE.fullmatch(part):
        return names.at_number(int(several[2])) if 0 < int(several[1]) < int(several[2]) else ()
    if not part.isdecimal() and (named := _named(part, names)):
        return named
    number = _NUMBER.fullmatch(part)
    return names.at_number(int(number[1])) if number else ()


def label_of(match: re.Match[str]) -> str:
    """Return the text between the brackets."""
    return (match["square"] or match["wide"] or match["lens"]).strip()


def _square(text: str, match: re.Match[str], content: str, names: DocumentNames) -> Iterator[MarkedDocuments]:
    if _UNBALANCED.search(content) or _THOUSANDS.fullmatch(content) or _is_code_or_maths(text, match, content):
        return
    label = _LABEL.match(content)
    parts = [part.strip() for part in _SEPARATOR.split(content[label.end() :] if label else content)]
    if len(parts) > 1 and "0" in parts:
        return  # This is an interval, because markers start at one.
    yield from _listed(parts, names)


def _listed(parts: Sequence[str], names: DocumentNames) -> Iterator[MarkedDocuments]:
    """Yield the citations in a list such as ``1, 3-5``, ``faq, 2`` or ``4, p. 17``, up to the first part that is not a
    citation."""
    for part in parts:
        if (several := _RANGE.fullmatch(part)) and 0 < int(several[1]) < int(several[2]) <= names.count:
            for position in range(int(several[1]), int(several[2]) + 1):
                yield f"[{position}]", names.at_number(position)
        elif not part.isdecimal() and (named := _named(part, names)):
            yield f"[{part}]", named
        elif number := _NUMBER.fullmatch(part):
            documents = names.at_number(int(number[1])) or names.get(part)
            if not documents and int(number[1]) > _LARGEST_STRAY:
                return
            yield f"[{part}]", documents
        elif names.resembles_name(part):
            yield f"[{part}]", ()
        else:
            return


def _named(part: str, names: DocumentNames) -> Documents:
    """Return the documents that ``part`` names. It may include a location in the document (``faq.pdf p. 3``, ``faq:2``,
    ``faq#leave``)."""
    if named := names.get(part):
        return named
    place = _PLACE.search(part)
    name = part[: place.start()].rstrip() if place else ""
    return names.get(name) if name and not name.isdecimal() else ()


def _lens(whole: str, content: str, names: DocumentNames) -> Iterator[MarkedDocuments]:
    """Yield the citations in lenticular brackets: ``4†source``, ``1:0†name`` (message and result numbers, starting at
    zero), an id or a number. Anything else is not a citation, because Chinese and Japanese also use such brackets for
    headings."""
    match = _LENS.fullmatch(content)
    if match is None:
        if named := names.get(content):
            yield whole, named
        return
    if (documents := _of_lens(match, content, names)) or not names.is_in_documents(whole):
        yield whole, documents


def _of_lens(match: re.Match[str], content: str, names: DocumentNames) -> Documents:
    name = (match["name"] or "").partition("†")[0].strip()
    named = names.get(name) if name else ()
    if named or (match["message"] and name.casefold() not in ("", "source")):
        return named
    number = int(match["number"])
    return names.at_number(number + 1 if match["message"] else number) or names.get(content)


def _is_code_or_maths(text: str, match: re.Match[str], content: str) -> bool:
    """Return whether a bracket is code or maths: ``x[1]``, ``row_b[1]``, ``[1] = 5``, ``x ∈ [1, 2]``, ``in the interval
    [1, 2]``."""
    before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
    if _INDEX.search(before) or _ASSIGNED.match(text, match.end()):
        return True
    several = _SEPARATOR.search(content) or _RANGE.fullmatch(content)
    return bool(_RELATION.search(before) or (several and _INTERVAL.search(before)))
