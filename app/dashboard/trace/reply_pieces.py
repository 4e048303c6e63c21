"""Reconstructs a reply from the event log: the model's sentences, and the text that the client received."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from judges.text.corrections import MARK, marked, replacement

Row = Mapping[str, Any]
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


class Storage(StrEnum):
    """How the text of a request was stored."""

    FULL = "full"
    HASH = "hash"
    NONE = "none"


class Fate(StrEnum):
    """What the gateway did with a sentence. ``RETRACTED`` means that the sentence was regenerated."""

    SENT = "sent"
    CORRECTED = "corrected"
    WITHHELD = "withheld"
    RETRACTED = "retracted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPiece:
    """Part of the reply. ``sentence`` is the index of the sentence. It is None for text that wasn't judged, or that was
    sent ``instead`` of withheld text. ``lead`` is the whitespace before the piece. ``choice`` is the choice that
    begins here, if the reply has several."""

    text: str | None
    lead: str = ""
    sentence: int | None = None
    fate: Fate = Fate.SENT
    instead: bool = False
    choice: int | None = None


def storage_of(trace: Mapping[str, Any], default: str) -> Storage:
    """Infer the storage mode from the stored text. If there is none, return ``default``."""
    sentences = [row["text"] for sentence in trace["sentences"] for row in sentence["claims"][:1]]
    texts = [trace["request"]["prompt"], trace["request"]["reply"], *(doc["text"] for doc in trace["documents"])]
    known = [text for text in (*texts, *sentences) if text]
    if known:
        return Storage.HASH if all(_HASH.fullmatch(text) for text in known) else Storage.FULL
    # A document of a run may have no text.
    expected = sentences or (trace["documents"] and not trace["request"]["api"].startswith("runs."))
    return Storage.NONE if expected else Storage(default)


def fate_of(sentence: Row) -> Fate:
    """Return what happened to a sentence of a trace."""
    extras = [row["extra"] or {} for row in sentence["claims"]]
    if any(extra.get("retracted") for extra in extras):
        return Fate.RETRACTED
    return Fate.SENT if sentence["delivered"] else Fate.WITHHELD


def pieces_of(reply: str, sentences: Sequence[Row]) -> list[ReplyPiece]:
    """Return the parts of the reply in order. ``reply`` is all text that the client received, one choice after
    another."""
    return list(_Composition(reply, sentences).pieces())


def corrections_of(sentence: Row) -> list[str]:
    """Return the corrections that an LLM judge proposed for a sentence's claims."""
    verdicts = [(row["extra"] or {}).get("verdict") or {} for row in sentence["claims"]]
    return [verdict["correction"] for verdict in verdicts if verdict.get("correction")]


class _Composition:
    """Locates the sentences in the reply, in order."""

    def __init__(self, reply: str, sentences: Sequence[Row]) -> None:
        self._reply, self._sentences = reply, sentences
        self._at = 0
        self._left_out = False

    def pieces(self) -> Iterator[ReplyPiece]:
        several = len({sentence["choice"] for sentence in self._sentences}) > 1
        choice = None
        for place, sentence in enumerate(self._sentences):
            if several and sentence["choice"] != choice:
                choice = sentence["choice"]
                yield ReplyPiece(text=None, choice=choice)
            yield from self._sentence(place, sentence)
        yield from self._between(len(self._reply))

    def _sentence(self, place: int, sentence: Row) -> Iterator[ReplyPiece]:
        raw = sentence["claims"][0]["text"] or ""
        text, fate = raw.strip(), fate_of(sentence)
        if fate is Fate.WITHHELD and (corrections := corrections_of(sentence)):
            inside = marked(text, corrections[0]) if len(corrections) == 1 else None
            for standing in (replacement(corrections), inside):
                if standing is not None and (found := self._reply.find(standing, self._at)) >= 0:
                    yield ReplyPiece(text=text, lead=self._lead(raw), sentence=place, fate=Fate.CORRECTED)
                    yield from self._between(found + len(standing), instead=True)
                    return
            if self._reply.find(MARK, self._at) >= 0:
                fate = Fate.CORRECTED  # The text occurs several times; the next sentence shows which one.
        if fate is not Fate.SENT:
            self._left_out = True
            yield ReplyPiece(text=text, lead=self._lead(raw), sentence=place, fate=fate)
            return
        found = self._reply.find(text, self._at)
        lead = self._lead(raw)
        if found >= 0:
            between = self._reply[self._at : found]
            lead = between[len(between.rstrip()) :]
            yield from self._between(found - len(lead))
            self._at = found + len(text)
        self._left_out = False
        yield ReplyPiece(text=text, lead=lead, sentence=place)

    def _between(self, end: int, *, instead: bool = False) -> Iterator[ReplyPiece]:
        """Return text before ``end`` that the client received but that isn't part of any sentence."""
        text, self._at = self._reply[self._at : end], max(end, self._at)
        if text.strip():
            own = text.lstrip()
            yield ReplyPiece(text=own, lead=text[: len(text) - len(own)] or " ", instead=instead or self._left_out)

    def _lead(self, raw: str) -> str:
        own = raw[: len(raw) - len(raw.lstrip())]
        return own or (" " if self._at else "")
