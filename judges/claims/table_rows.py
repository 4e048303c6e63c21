"""Reads table rows as statements: each cell, preceded by the name of its column."""

from collections.abc import Sequence

from judges.claims.claim_context import continues_table, has_words
from judges.claims.harmless import HarmlessText
from judges.claims.sources.source_names import SourceNames
from judges.text.fragments import FragmentKind, Resolves, spoken
from judges.text.markdown import cell_fragments, fragments, verbalise_row
from judges.types import Sentence


class TableRows:
    """The table rows of one reply.

    Args:
        harmless: recognises header cells that state nothing.
        sources: recognises names of documents in a column of sources.
        resolves: recognises citation markers, as in the extractor.
    """

    def __init__(self, harmless: HarmlessText, sources: SourceNames, resolves: Resolves | None) -> None:
        self._harmless = harmless
        self._sources = sources
        self._resolves = resolves
        self._headers: dict[int, tuple[Sentence, Sequence[str]]] = {}
        """Maps each row read so far to the cells of the table's header."""

    def stated(self, sentence: Sentence, previous: Sequence[Sentence]) -> str:
        """Return what a row states, or "" if it states nothing. Markers alone in a row cite nothing, so they state
        something. Known names in a column of sources are left out. The first row is the header, which states something
        only if one of its cells is not a label, or if no row with a statement follows."""
        header, values = self._header(previous), self._cells(sentence.text)
        self._headers[sentence.index] = (sentence, values if header is None else header)
        if not any(has_words(value) or self._harmless.is_unknown_address(value) for value in values):
            pieces = fragments(sentence.text, self._resolves)
            is_marked = self._resolves is not None and any(piece.kind is FragmentKind.MARKER for piece in pieces)
            return sentence.text.strip() if is_marked else ""
        if header is None:
            is_claim = any(value and not self._harmless.is_label(value) for value in values)
            is_claim = is_claim or self._harmless.heads_side_by_side(values)
            return ", ".join(filter(None, values)) if is_claim or sentence.introduces_nothing else ""
        if len(header) == len(values):
            listed = map(self._sources.are_listed, values, (f"{name}:" for name in header))
            values = ["" if is_source else value for value, is_source in zip(values, listed, strict=True)]
        return verbalise_row(header, values)

    def _header(self, previous: Sequence[Sentence]) -> Sequence[str] | None:
        """Return the cells of the header row of the table that continues after ``previous``, or None if there is no
        such table. The search stops at a row that was already processed, because its header is known.
        """
        above: Sentence | None = None
        for place in range(len(previous) - 1, -1, -1):
            if not continues_table(previous[place]):
                break
            above = previous[place]
            known = self._headers.get(above.index)
            if known is not None and known[0] is above:
                return known[1]
        return None if above is None else self._cells(above.text)

    def _cells(self, row: str) -> list[str]:
        cells = [spoken(cell) for cell in cell_fragments(row, fragments(row, self._resolves))]
        return cells[1:-1] if len(cells) > 2 and not cells[-1] else cells[1:]
