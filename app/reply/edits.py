"""The delivered text of a choice: how it closes up where a sentence is left out, and how a correction is put in."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.protocols.common.logprobs import places_of
from app.protocols.common.stream_events import TextSlice
from judges.types import Sentence, Span

_LEAD = re.compile(
    r"(?P<gap>\s*)"
    r"(?P<marker>(?:>[ \t]?){0,8}(?:(?:[-*+•◦‣▪–—]|\d{1,3}\.|\(?(?:\d{1,3}|[A-Za-z])\))[ \t]+(?:\[[ xX]\][ \t]+)?)?)"
)


@dataclass(frozen=True, slots=True)
class Lead:
    """What precedes a sentence: the white space before it, and the marker of a list item or quotation that it
    begins."""

    gap: str = ""
    marker: str = ""

    def then(self, own: "Lead") -> "Lead":
        """The lead of the next sentence, whose own lead is ``own``, if the sentence with this lead is left out.

        The stronger break stays, and an item keeps its marker as long as any of it is left.
        """
        marker = own.marker if own.marker or "\n" in own.gap else self.marker
        if own.gap and own.gap.count("\n") >= self.gap.count("\n"):
            return Lead(own.gap, marker)
        indent = own.gap[own.gap.rfind("\n") + 1 :] if "\n" in own.gap else ""
        return Lead(self.gap[: self.gap.rfind("\n") + 1] + indent if indent else self.gap, marker)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingText:
    """Text on its way out, in slices. ``lead``: how much of its beginning does not come from the upstream."""

    text: str
    slices: Sequence[TextSlice]
    lead: int = 0


def outgoing_text(slices: Sequence[TextSlice]) -> OutgoingText:
    return OutgoingText(text="".join(piece.text for piece in slices), slices=slices)


def without_spans(piece: OutgoingText, sentence: Sentence, spans: Sequence[Span]) -> OutgoingText:
    """``piece``, which is ``sentence`` with the white space before it, without ``spans`` of the reply, in order, and
    without the tokens that spell any of them."""
    begin = sentence.span.start + len(sentence.text.rstrip()) - len(piece.text)
    ranges = [(max(0, span.start - begin), max(0, min(span.end - begin, len(piece.text)))) for span in spans]
    slices: list[TextSlice] = []
    start = 0
    for part in piece.slices:
        end = start + len(part.text)
        gone = [(max(a, start) - start, min(b, end) - start) for a, b in ranges if a < end and b > start]
        slices.append(_cut_out(part, gone) if gone else part)
        start = end
    kept = tuple(part for part in slices if part.text)
    lead = piece.lead - sum(min(b, piece.lead) - a for a, b in ranges if a < piece.lead)
    return OutgoingText(text="".join(part.text for part in kept), slices=kept, lead=lead)


def _cut_out(part: TextSlice, gone: Sequence[tuple[int, int]]) -> TextSlice:
    edges = [0, *(edge for pair in gone for edge in pair), len(part.text)]
    text = "".join(part.text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    tokens, at = [], 0
    for token in part.tokens:
        begin, at = at, at + len(str(token.get("token", "")))
        if not any(a < at and b > begin for a, b in gone):
            tokens.append(token)
    return TextSlice(frame=part.frame, text=text, tokens=tokens)


def lead_of(text: str) -> Lead:
    found = _LEAD.match(text)
    if found is None:
        return Lead()
    begins_line = "\n" in found["gap"] or not found["gap"]
    return Lead(found["gap"], found["marker"] if begins_line else "")


def closed_up(piece: OutgoingText, left_out: Lead | None, *, opening: bool) -> OutgoingText:
    """``piece`` as it follows on a left-out sentence with the lead ``left_out``; ``opening``: nothing is left before
    it."""
    if left_out is None:
        return piece
    own = lead_of(piece.text)
    lead = left_out.then(own)
    if opening:
        lead = Lead("", lead.marker)
    if lead == own:
        return piece
    written = lead.gap + ("" if own.marker else lead.marker)
    rest = _without(piece.slices, len(own.gap))
    ours = (TextSlice(frame=piece.slices[0].frame, text=written),) if written else ()
    beyond = max(0, piece.lead - len(own.gap))
    return OutgoingText(text=written + piece.text[len(own.gap) :], slices=(*ours, *rest), lead=len(written) + beyond)


def correction(texts: Sequence[str]) -> str:
    """The text that replaces a sentence that documents contradict."""
    return f"[CORRECTED: {' '.join(' '.join(texts).split())}]"


def corrected(piece: OutgoingText, replacement: str) -> OutgoingText:
    """``piece`` with ``replacement`` instead of its sentence; a list item or table row stays one."""
    lead = lead_of(piece.text)
    body = piece.text[len(lead.gap) + len(lead.marker) :]
    text = lead.gap + lead.marker + (f"| {replacement} |" if body.startswith("|") else replacement)
    return OutgoingText(text=text, slices=(TextSlice(frame=piece.slices[0].frame, text=text),), lead=len(text))


class DeliveredText:
    """The text that the client got, or gets as soon as the whole reply is decided on. ``length`` is in code points."""

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
        """Add a sentence; return it as it follows on the text before it. ``opening``: all before it was left out."""
        text = closed_up(text, self._left_out or (Lead() if opening else None), opening=opening)
        self._left_out = None
        self.add(text.text)
        return text

    def leave_out(self, text: OutgoingText) -> None:
        """A sentence is left out here."""
        lead = lead_of(text.text)
        self._left_out = self._left_out.then(lead) if self._left_out is not None else lead

    def pause(self) -> None:
        """The text pauses: what comes next follows on nothing that was left out before."""
        self._left_out = None

    def replace(self, text: str) -> str:
        """Add a text that replaces what is blocked, set off from the text before it."""
        if self._texts and not self._texts[-1][-1:].isspace():
            text = f" {text}"
        self.add(text)
        return text

    def clear(self) -> None:
        self._texts.clear()
        self.length = 0


def _without(slices: Sequence[TextSlice], length: int) -> list[TextSlice]:
    """``slices`` without the first ``length`` code points of their text, and without the tokens of those."""
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
