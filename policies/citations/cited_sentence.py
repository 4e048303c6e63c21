"""Assigns citations to sentences."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from judges.types import Sentence, Span

_NO_WORDS = re.compile(
    r"[\W_]*(?:(?:sources?|see|refs?|references?|from|via|cf|quellen?|siehe|vgl|fuentes?|voir)\b[\W_]*)?", re.IGNORECASE
)


class CitedSentences:
    """Assigns citations to sentences. ``marks`` are the spans of all citations, in order.

    A marker after a sentence's full stop belongs to that sentence, although it follows its end. So does a marker that
    forms a sentence by itself.
    """

    def __init__(self, text: str, sentences: Sequence[Sentence], marks: Sequence[Span]) -> None:
        self._text = text
        self._starts = [sentence.span.start for sentence in sentences]
        self._owners: list[int | None] = []
        self._leads: list[int] = []
        """For each sentence, the end of the citations at its beginning."""
        places = [mark.start for mark in marks]
        for place, sentence in enumerate(sentences):
            lead = start = sentence.span.start
            for mark in marks[bisect_left(places, start) : bisect_left(places, sentence.span.end)]:
                if not _NO_WORDS.fullmatch(text, lead, mark.start):
                    break
                lead = max(lead, mark.end)
            is_citation_only = lead > start and _NO_WORDS.fullmatch(text, lead, sentence.span.end)
            self._leads.append(lead)
            self._owners.append(self._before(place) if is_citation_only else sentence.index)

    def at(self, place: int) -> int | None:
        """Return the index of the sentence that a citation at ``place`` belongs to, or None."""
        at = bisect_right(self._starts, place) - 1
        if at < 0:
            return None
        before = self._before(at) if 0 < place < self._leads[at] else None
        return self._owners[at] if before is None else before

    def _before(self, at: int) -> int | None:
        """Return the sentence before the one at ``at``, or None if a line break separates them."""
        if at == 0 or self._text[self._starts[at - 1] : self._starts[at]].endswith("\n"):
            return None
        return self._owners[at - 1]
