"""Reads the markers that a reply itself defines: footnotes, link definitions, and entries in its list of sources."""

import re
from collections.abc import Iterator

from judges.types import Span
from policies.citations.document_names import DocumentNames

_DEFINITION = re.compile(
    r"^[ \t]{0,3}(?:[-*+][ \t]+)?\[(?P<label>\^?[\w.-]{1,40})\](?P<colon>:?)[ \t]+(?P<text>\S.*)$", re.MULTILINE
)
_NUMBERED = re.compile(r"^[ \t]{0,3}(?P<label>[0-9]{1,3})[.)][ \t]+(?P<text>\S.*)$", re.MULTILINE)
_SECTION = re.compile(
    r"^[#>*_\s]{0,12}(?:sources?|references?|bibliography|citations?|works cited|quellen?|quellenangaben|literatur"
    r"|références?|bibliographie|fuentes?|referencias|bibliografía)[*_\s]*[:：]?[*_ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTES = "*_\"“”„'’<>.,; \t"
_SHORT_LEAD = 3


class FootnoteDefinitions:
    """The labels that ``text`` defines (``[^1]: faq.pdf``, ``[2] https://…``, the numbers of its list of sources).

    A defined label refers to the document named in its definition, regardless of the order of the documents.
    """

    def __init__(self, text: str, names: DocumentNames) -> None:
        self._targets: dict[str, int | None] = {}
        self.spans: list[Span] = []
        """Where sources are listed rather than cited."""
        for match in _DEFINITION.finditer(text) if "[" in text else ():
            index = _defined(match["text"], names, anywhere=bool(match["colon"]))
            if index is not None or match["colon"]:  # Otherwise, it is a line that begins with a marker.
                self._define(match, index)
        section = _SECTION.search(text)
        if section is not None:
            for match in _NUMBERED.finditer(text, section.end()):
                if (index := _defined(match["text"], names)) is not None:
                    self._define(match, index)
            self.spans.append(Span(section.start(), len(text)))

    def _define(self, match: re.Match[str], index: int | None) -> None:
        self.spans.append(Span(*match.span()))
        self._targets.setdefault(match["label"].casefold(), index)

    def __contains__(self, label: str) -> bool:
        return label.casefold() in self._targets

    def resolve(self, label: str) -> Iterator[int]:
        """Yield the document that a defined label refers to, or nothing if its definition names no document (a remark,
        for instance)."""
        index = self._targets[label.casefold()]
        if index is not None:
            yield index


def _defined(text: str, names: DocumentNames, *, anywhere: bool = False) -> int | None:
    """Return the document that a line names at its beginning or ``anywhere``, if it names exactly one."""
    if (index := names.get(text.strip(_QUOTES))) is not None:
        return index
    named = [(span.start, index) for index, span in names.mentions(text)]
    if len({index for _, index in named}) != 1 or not (anywhere or named[0][0] <= _SHORT_LEAD):
        return None
    return named[0][1]
