"""Finds citations at the beginning of a reply. Before the first statement, there is nothing that they can cite."""

from collections.abc import Callable, Sequence

from judges.claims.harmless import HarmlessText
from judges.claims.sources.source_names import SourceNames
from judges.text.fragments import Fragment, FragmentKind, spoken
from judges.text.markdown import is_row
from judges.types import Sentence

_MARKERS = frozenset([FragmentKind.MARKER, FragmentKind.STRAY_MARKER])
_MAX_SENTENCES = 64
"""The number of sentences, at the beginning of a reply and before the current sentence, that are read."""


class ReplyOpening:
    """The beginning of one reply, up to its first statement.

    Args:
        stated: returns the claims in a sentence as one text, or "" if there are none.
        harmless: recognises refusals.
        sources: recognises the names of documents.
        is_polite: returns whether a text consists of courtesies.
    """

    def __init__(
        self,
        stated: Callable[[Sentence], str],
        harmless: HarmlessText,
        sources: SourceNames,
        is_polite: Callable[[str], bool],
    ) -> None:
        self._stated = stated
        self._harmless = harmless
        self._sources = sources
        self._is_polite = is_polite
        self._says: dict[int, tuple[Sentence, bool]] = {}

    def begins_after(self, previous: Sequence[Sentence]) -> bool:
        """Return whether the sentences of the reply in ``previous`` say nothing that can be cited, because they are
        courtesies, questions, labels that introduce something, or sources."""
        ends = previous[:_MAX_SENTENCES], previous[-_MAX_SENTENCES:]
        return not any(self._says_something(sentence) for part in ends for sentence in part)

    def cites_nothing(self, text: str, pieces: Sequence[Fragment]) -> bool:
        """Return whether a sentence at the beginning that makes no claim has markers ("[8]", "Hello! [8]"), unless its
        words name sources."""
        kinds = {piece.kind for piece in pieces}
        is_hidden = FragmentKind.LINK in kinds and "]:" in text  # a definition
        if _MARKERS.isdisjoint(kinds) or is_hidden:
            return False
        told = spoken(pieces)
        if not any(map(str.isalnum, told)) or self._is_polite(told) or self._sources.is_title(told):
            return True
        return FragmentKind.MARKER in kinds and not self._names_document(told)

    def _names_document(self, text: str) -> bool:
        return self._harmless.is_name(text) or self._harmless.is_footnote(text)

    def _says_something(self, sentence: Sentence) -> bool:
        if sentence.index < 0:
            return False
        known = self._says.get(sentence.index)
        if known is not None and known[0] is sentence:
            return known[1]
        if sentence.in_code or sentence.introduces_nothing or is_row(sentence):
            says = any(map(str.isalnum, sentence.plain))
        elif stated := self._stated(sentence):
            says = not self._sources.names(stated)
        else:
            says = self._harmless.refusal(sentence.plain) > 0
        self._says[sentence.index] = sentence, says
        return says
