"""Builds the delivered text of a choice for each of its fields. Closes gaps where sentences are left out, inserts
corrections, and chooses the text that replaces a blocked reply."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.protocols.common.logprobs import places_of
from app.protocols.common.stream_events import TextDelta, TextSlice
from judges.text.corrections import LEAD, CorrectedSentence
from judges.text.markdown import begins_with_number
from judges.types import Sentence, Span

DEFAULT_REPLACEMENT = "I can't answer that from the documents provided."
"""The text that replaces a blocked reply if the policies set no ``abstention_response``."""

_BULLETS = "-*+•◦‣▪–—"


@dataclass(frozen=True, slots=True)
class Lead:
    """The whitespace before a sentence, and the list or quotation marker at its beginning."""

    gap: str = ""
    marker: str = ""

    def then(self, own: "Lead") -> "Lead":
        """Return the lead of the next sentence when the sentence with this lead is left out. ``own`` is the next
        sentence's original lead. Of the two breaks, the one with more line breaks is kept. If the omitted sentence
        began a list item, the next sentence begins it instead. A bullet then replaces the item's number, because the
        number was judged only as part of the omitted sentence."""
        marker = own.marker if own.marker or "\n" in own.gap else _bullet(self.marker)
        if own.gap and own.gap.count("\n") >= self.gap.count("\n"):
            return Lead(own.gap, marker)
        indent = own.gap[own.gap.rfind("\n") + 1 :] if "\n" in own.gap else ""
        return Lead(self.gap[: self.gap.rfind("\n") + 1] + indent if indent else self.gap, marker)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingText:
    """Outgoing text, in slices. ``lead`` is the length of the part at its beginning that doesn't come from the
    upstream."""

    text: str
    slices: Sequence[TextSlice]
    lead: int = 0


def without_spans(piece: OutgoingText, sentence: Sentence, spans: Sequence[Span]) -> OutgoingText:
    """Remove ``spans`` and their tokens from ``piece``, which contains the sentence and the whitespace before it.

    The spans are positions in the reply, in ascending order.
    """
    begin = sentence.span.start + len(sentence.text.rstrip()) - len(piece.text)
    ranges = [(max(0, span.start - begin), max(0, min(span.end - begin, len(piece.text)))) for span in spans]
    slices: list[TextSlice] = []
    start = first = 0
    for part in piece.slices:
        end = start + len(part.text)
        first, gone = _overlapping(ranges, first, start, end)
        slices.append(_cut_out(part, [(max(a, start) - start, min(b, end) - start) for a, b in gone]) if gone else part)
        start = end
    kept = tuple(part for part in slices if part.text)
    lead = piece.lead - sum(min(b, piece.lead) - a for a, b in ranges if a < piece.lead)
    return OutgoingText(text="".join(part.text for part in kept), slices=kept, lead=lead)


def _overlapping(
    ranges: Sequence[tuple[int, int]], first: int, start: int, end: int
) -> tuple[int, Sequence[tuple[int, int]]]:
    """Return the ranges that overlap ``[start, end)``, and the index of the first range that ends after ``start``.
    ``ranges`` must be sorted. The search starts at index ``first``.
    """
    while first < len(ranges) and ranges[first][1] <= start:
        first += 1
    last = first
    while last < len(ranges) and ranges[last][0] < end:
        last += 1
    return first, ranges[first:last]


def _cut_out(part: TextSlice, gone: Sequence[tuple[int, int]]) -> TextSlice:
    edges = [0, *(edge for pair in gone for edge in pair), len(part.text)]
    text = "".join(part.text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    tokens, first = [], 0
    # If the tokens don't spell the text, none is kept, because they might spell the text that is left out.
    for token, (begin, end) in zip(part.tokens, places_of(part.tokens, part.text) or (), strict=False):
        first, overlapping = _overlapping(gone, first, begin, end)
        if not overlapping:
            tokens.append(token)
    return TextSlice(frame=part.frame, text=text, tokens=tokens)


def _bullet(marker: str) -> str:
    """Replace the number of a list item with a bullet."""
    item = marker.lstrip("> \t")
    return f"{marker[: -len(item)]}{item[0] if item[0] in _BULLETS else '-'} " if item else marker


def lead_of(text: str) -> Lead:
    found = LEAD.match(text)
    if found is None:
        return Lead()
    begins_line = "\n" in found["gap"] or not found["gap"]
    return Lead(found["gap"], found["marker"] if begins_line else "")


def closed_up(piece: OutgoingText, left_out: Lead | None, *, opening: bool) -> OutgoingText:
    """Adjust ``piece`` to follow a sentence that was left out. ``left_out`` is the lead of that sentence, or None if no
    sentence was left out. ``opening`` means that no text remains before ``piece``."""
    if left_out is None:
        return piece
    own = lead_of(piece.text)
    lead = left_out.then(own)
    if not own.marker and begins_with_number(piece.text):  # the marker might look like a sign
        lead = Lead(lead.gap)
    if opening:
        lead = Lead("", lead.marker)
    if lead == own:
        return piece
    written = lead.gap + ("" if own.marker else lead.marker)
    rest = _without(piece.slices, len(own.gap))
    ours = (TextSlice(frame=piece.slices[0].frame, text=written),) if written else ()
    beyond = max(0, piece.lead - len(own.gap))
    return OutgoingText(text=written + piece.text[len(own.gap) :], slices=(*ours, *rest), lead=len(written) + beyond)


def replacement_text(abstention: str | None, *, is_json: bool) -> str:
    """Choose the text that replaces blocked text. In a JSON reply, any text would be a syntax error, so the replacement
    is empty."""
    return "" if is_json else abstention or DEFAULT_REPLACEMENT


def corrected(piece: OutgoingText, sentence: CorrectedSentence) -> OutgoingText:
    """Replace the sentence in ``piece`` with its corrected text. The whitespace before it stays."""
    text = f"{lead_of(piece.text).gap}{sentence}"
    return OutgoingText(text=text, slices=(TextSlice(frame=piece.slices[0].frame, text=text),), lead=len(text))


class DeliveredText:
    """The text that the client received, or will receive after the decision on the whole reply. ``length`` is in code
    points.
    """

    def __init__(self) -> None:
        self.length = 0
        self._texts: list[str] = []
        self._left_out: Lead | None = None

    def __bool__(self) -> bool:
        return bool(self._texts)

    def __str__(self) -> str:
        return "".join(self._texts)

    def add(self, text: str) -> None:
        self._texts.append(text)
        self.length += len(text)

    def follow(self, text: OutgoingText, *, opening: bool) -> OutgoingText:
        """Add a sentence, and return it adjusted to the preceding text. ``opening`` means that all text before it was
        left out."""
        text = closed_up(text, self._left_out or (Lead() if opening else None), opening=opening)
        self._left_out = None
        self.add(text.text)
        return text

    def leave_out(self, text: OutgoingText) -> None:
        """Record that a sentence was left out at this position."""
        lead = lead_of(text.text)
        self._left_out = self._left_out.then(lead) if self._left_out is not None else lead

    def pause(self) -> None:
        """Record a pause in the text. The next sentence is then not adjusted to sentences that were left out before the
        pause."""
        self._left_out = None

    def replace(self, text: str) -> str:
        """Add ``text``, which replaces blocked text. If necessary, a space separates it from the preceding text. Return
        the added text."""
        if self._texts and not self._texts[-1][-1:].isspace():
            text = f" {text}"
        self.add(text)
        return text

    def clear(self) -> None:
        self._texts.clear()
        self.length = 0


class FieldTexts:
    """The delivered text of each field, and the field that each sentence belongs to. A field is given by its name, or
    by None for the text of the reply itself. All fields are judged as a single text, in the order in which their text
    arrives. No sentence spans two fields."""

    def __init__(self) -> None:
        self.last: str | None = None
        """The field of the latest text."""
        self._delivered: dict[str | None, DeliveredText] = {None: DeliveredText()}
        self._received: Counter[str | None] = Counter()
        self._length = 0
        self._starts = [0]
        self._segments: list[tuple[str | None, int]] = [(None, 0)]
        """The field of each segment of the judged text, and the position at which the segment begins in that field."""

    def __getitem__(self, field: str | None) -> DeliveredText:
        return self._delivered[field]

    @property
    def others(self) -> Mapping[str, str]:
        """The delivered text of each field other than the text of the reply itself."""
        return {field: str(text) for field, text in self._delivered.items() if field is not None}

    def receive(self, part: TextDelta) -> None:
        """Record text that will be judged."""
        field = part.frame.field
        if field != self.last:
            self._begin(field, self._received[field])
        self._received[field] += len(part.text)
        self._length += len(part.text)

    def restart(self, position: int) -> None:
        """Record that the reply is regenerated and judged again from ``position`` on."""
        self._length = self._received[None] = position
        self._begin(None, position)

    def place_of(self, sentence: Sentence) -> tuple[str | None, int]:
        """Return the field of a sentence, and the position at which the sentence starts in that field."""
        start = sentence.span.start
        index = bisect_right(self._starts, start) - 1
        field, begin = self._segments[index]
        return field, begin + start - self._starts[index]

    def clear(self) -> None:
        """Discard all delivered text."""
        for text in self._delivered.values():
            text.clear()

    def _begin(self, field: str | None, place: int) -> None:
        self.last = field
        self._delivered.setdefault(field, DeliveredText())
        self._starts.append(self._length)
        self._segments.append((field, place))


def _without(slices: Sequence[TextSlice], length: int) -> list[TextSlice]:
    """Return ``slices`` without the first ``length`` code points of their text, and without the tokens of that text."""
    kept: list[TextSlice] = []
    for piece in slices:
        cut = min(length, len(piece.text))
        length -= cut
        if not cut:
            kept.append(piece)
        elif cut < len(piece.text):
            kept.append(TextSlice(frame=piece.frame, text=piece.text[cut:], tokens=_tokens_beyond(piece, cut)))
    return kept


def _tokens_beyond(piece: TextSlice, cut: int) -> Sequence[Mapping[str, Any]]:
    places = places_of(piece.tokens, piece.text)
    if places is None:
        return list(piece.tokens)
    return [token for token, (_, end) in zip(piece.tokens, places, strict=True) if end > cut]
