"""Finds citation markers that a reply turns into links by defining their labels (``[8]: url``).

A client shows such a marker as a link with the text "8". At the end of a clause, that is a citation. Elsewhere, it can
be part of the statement: "at most [8] tablets". The definition may come before or after the marker.
"""

from collections.abc import Callable, Iterator, Sequence

from judges.text.fragments import Resolves
from judges.text.link_patterns import LINK_DEFINITIONS
from judges.text.markdown import fragments
from judges.text.marker_positions import labels_in_clauses
from judges.types import Sentence, Span


class ReferenceLabels:
    """The labels that one reply has used and defined so far.

    Args:
        read: returns the Markdown text of a sentence, or "" if it has none.
        resolves: recognises citation markers, as in the extractor.
    """

    def __init__(self, read: Callable[[Sentence], str], resolves: Resolves | None = None) -> None:
        self._read = read
        self._resolves = resolves
        self._used: dict[str, int] = {}
        """The index of the first sentence that uses a label inside a clause."""
        self._defined: dict[str, int] = {}
        """The index of the first sentence that defines a label."""
        self._next = 0

    def links(self, sentence: Sentence, reply: Sequence[Sentence]) -> Sequence[Span]:
        """Return the positions, in the text of ``sentence``, of markers inside clauses that are links because ``reply``
        has defined their labels. Also return the positions of definitions whose labels ``reply`` has used inside
        clauses."""
        for index in range(self._next, sentence.index + 1):
            text = self._read(reply[index])
            for first, labels in ((self._defined, _defined(text)), (self._used, self._used_in(text))):
                for label, _ in labels:
                    first.setdefault(label, index)
            self._next = max(self._next, index + 1)
        text, later = self._read(sentence), sentence.index + 1
        found = [span for label, span in _defined(text) if self._used.get(label, later) < later]
        if self._defined:
            found += [span for label, span in self._used_in(text) if self._defined.get(label, later) < later]
        return sorted(found, key=lambda span: span.start)

    def _used_in(self, text: str) -> Iterator[tuple[str, Span]]:
        """Yield the labels of markers inside clauses, and the positions of these markers."""
        if "[" not in text:
            return
        defined = {span.start for _, span in _defined(text)}
        parts = fragments(text, self._resolves)
        for start, end in labels_in_clauses(text, parts):
            if start not in defined:
                yield _folded(text[start:end]), Span(start, end)


def _defined(text: str) -> Iterator[tuple[str, Span]]:
    """Yield the label and the position of each definition in ``text``, except footnotes."""
    for found in LINK_DEFINITIONS.finditer(text) if "]:" in text else ():
        if not found["label"].startswith("[^"):
            yield _folded(found["label"]), Span(found.start("label"), found.end())


def _folded(label: str) -> str:
    return " ".join(label.strip("[]").split()).casefold()
