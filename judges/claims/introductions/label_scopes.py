"""Recognises the labels of a reply, and determines which text each of them introduces."""

import re
from collections.abc import Sequence
from enum import Enum, auto

from msgspec import Struct

from judges.claims.claim_context import BOLD_LEVEL, COLON, continues_table, has_words, is_title, title_level
from judges.claims.harmless import HarmlessText
from judges.claims.sources.source_names import SourceNames
from judges.text.fragments import Resolves, spoken
from judges.text.markdown import fragments, is_row
from judges.types import Sentence

_COLONS = re.compile("[:：]")


class LabelScope(Enum):
    """The text that a label introduces."""

    SECTION = auto()
    """The text up to the next heading of the same or a higher level."""
    NEXT = auto()
    """The next sentence that has words. If that sentence is a label too, the text that it introduces."""
    TABLE = auto()
    """The rows of the table."""
    REPLY = auto()
    """The rest of the reply."""


class ScopedLabel(Struct, frozen=True):
    """A label that names something. ``level`` is that of a heading: 1 is the highest, 7 a bold line. ``is_numbered``
    means that the heading has a number. ``announces`` means that the label is a sentence about what the reply does next
    ("Let me check the policy"), which may be a tool call."""

    scope: LabelScope
    level: int = 0
    is_numbered: bool = False
    announces: bool = False

    def ends(self, other: "ScopedLabel") -> bool:
        """Return whether the section of this heading ends at the heading ``other``. Of bold lines with and without
        numbers, the first ones are above the others."""
        if other.scope is not LabelScope.SECTION or other.level != self.level:
            return other.scope is LabelScope.SECTION and other.level < self.level
        return self.level < BOLD_LEVEL or self.is_numbered == other.is_numbered


class LabelFinder:
    """Finds the labels of one reply.

    Args:
        harmless: recognises the text of labels.
        sources: recognises the titles of lists of sources.
        resolves: recognises citation markers, as in the extractor.
    """

    def __init__(self, harmless: HarmlessText, sources: SourceNames, resolves: Resolves | None) -> None:
        self._harmless = harmless
        self._sources = sources
        self._resolves = resolves

    def find(self, sentence: Sentence, previous: Sequence[Sentence]) -> ScopedLabel | None:
        """Return the label that ``sentence`` is if it makes no claim, or None. A label that names nothing but a part of
        the reply ("Answer:") or a list of sources doesn't count."""
        if sentence.in_code:
            return None
        if is_row(sentence):
            is_head = not (previous and continues_table(previous[-1])) and has_words(sentence.plain)
            return ScopedLabel(LabelScope.TABLE) if is_head else None
        harmless, titled = self._harmless, is_title(sentence)
        announces = harmless.announces(sentence.plain)
        if not (titled or announces or _COLONS.search(sentence.text)):
            return None
        told = spoken(fragments(sentence.text, self._resolves, sentence.marks))
        if not has_words(told) or harmless.names_part(told) or self._sources.is_title(told):
            return None
        if titled:
            return ScopedLabel(LabelScope.SECTION, level=title_level(sentence), is_numbered=harmless.is_numbered(told))
        if COLON.search(told):
            is_lead_in = announces or not harmless.refusal(told)
            return ScopedLabel(LabelScope.NEXT, announces=announces) if is_lead_in else None
        return ScopedLabel(LabelScope.REPLY, announces=True) if announces else None

    def refuses(self, sentence: Sentence, label: Sentence) -> bool:
        """Return whether ``sentence`` is a refusal to tell what the user asked about the thing that ``label`` names."""
        return self._harmless.refuses(spoken(fragments(sentence.text, self._resolves, sentence.marks)), label.plain)
