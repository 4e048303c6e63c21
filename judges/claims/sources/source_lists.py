"""Finds lists of sources that consist of links: "Sources: [1](url), [2](url)", or such links below "Sources"."""

from collections.abc import Callable, Sequence

from judges.claims.known_text import fold
from judges.text.fragments import Fragment, FragmentKind, Resolves, spoken
from judges.text.languages.rules import LANGUAGES, claim_rules
from judges.text.markdown import fragments
from judges.types import Sentence, Span

_MAX_CHARS = 2000
"""The maximum length of a line in a list of sources."""


class SourceLists:
    """The lists of sources in one reply.

    Args:
        read: returns the Markdown text of a sentence, or "" if it has none.
        resolves: recognises citation markers, as in the extractor. Without it, there are no lists.
        languages: codes of the phrase tables to use.
    """

    def __init__(
        self,
        read: Callable[[Sentence], str],
        resolves: Resolves | None = None,
        languages: Sequence[str] = LANGUAGES,
    ) -> None:
        self._read = read
        self._resolves = resolves
        self._labels = claim_rules(tuple(languages)).labels
        self._continues: dict[int, bool] = {}
        """Whether a sentence, given by its index, is the label or an item of a list of sources."""

    def markers(self, sentence: Sentence, reply: Sequence[Sentence]) -> Sequence[Span]:
        """Return the positions of the markers in ``sentence`` if it only names documents as sources."""
        for index in range(len(self._continues), sentence.index):
            self._continues[index] = self._lists_sources(self._read(reply[index]), index)[0]
        listed, markers = self._lists_sources(self._read(sentence), sentence.index)
        self._continues[sentence.index] = listed
        return markers

    def _lists_sources(self, text: str, index: int) -> tuple[bool, Sequence[Span]]:
        """Return whether ``text`` is the label or an item of a list of sources, and the markers in it."""
        resolves = self._resolves
        if resolves is None or len(text) > _MAX_CHARS:
            return False, ()
        parts = fragments(text, resolves) if "](" in text else ()
        told = spoken(parts) if parts else text.strip("#*_ \t\r\n")
        label = self._labels.match(fold(told).rstrip(": ") + ":")
        rest = told[label.end() :] if label else told
        links = [part for part in parts if _is_stray_link(text, part)]
        if any(map(str.isalnum, rest)) or not (label or (links and self._continues.get(index - 1, False))):
            return False, ()
        if not all(resolves(text[part.start : part.end]) for part in links):
            return False, ()
        return True, [Span(part.start, part.end) for part in links]


def _is_stray_link(text: str, part: Fragment) -> bool:
    return part.kind is FragmentKind.STRAY_MARKER and text[part.end : part.end + 1] == "("
