"""All that the page of a request shows, made from its trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.dashboard.trace.claims import ShownSentence, name_of, sentences_of
from app.dashboard.trace.reply import Piece, Storage, pieces_of, storage_of
from app.dashboard.trace.text import marked, shown
from app.dashboard.trace.timings import Timing, timing_of
from app.events.feedback import Mark
from judges.types import LABELS_WORST_FIRST, Label

MOST_SENTENCES = 400
"""Of a longer reply the page shows the first ones; the JSON has all."""
_LONGEST_PIECE, _LONGEST_REPLY, _BEGIN = 4_000, 40_000, 160
"""Characters: of one piece, and of the reply until only the begin of each piece is shown. Browsers take their time to
lay out a text without end."""
_LONGEST_PROMPT = 20_000
_LONGEST_DOCUMENT = 12_000
_PHASES = {
    "before_workflow": ("Before the call", "What the documents were like, and whether the model was asked at all."),
    "mid_execution": ("While the reply came", "Each sentence, before it left."),
    "after_workflow": ("At its end", "The reply as a whole."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPiece:
    piece: Piece
    text: Markup
    sentence: ShownSentence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDocument:
    """``sentences`` are those whose verdict rests on it. ``text`` has their passages marked."""

    row: Mapping[str, Any]
    name: str
    sentences: Sequence[ShownSentence]
    text: Markup | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseGroup:
    name: str
    about: str
    decisions: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """``marks`` are the latest of each decision by its id, and of the request as a whole under None. ``first`` is the
    sentence to look at first. ``cut``: how many sentences are not shown."""

    request: Mapping[str, Any]
    storage: Storage
    pieces: Sequence[ShownPiece]
    sentences: Sequence[ShownSentence]
    counts: Mapping[str, int]
    first: ShownSentence | None
    cut: int
    documents: Sequence[ShownDocument]
    phases: Sequence[PhaseGroup]
    shadow: Sequence[Mapping[str, Any]]
    timing: Timing
    prompt: Markup | None
    marks: Mapping[str | None, Mark]
    thresholds: tuple[float, float]


def trace_view(trace: Mapping[str, Any], *, store_text: str, marks: Sequence[Mark] = ()) -> TraceView:
    """What to show of ``trace``, as ``EventQueries.trace`` gives it. ``store_text`` is what the setting is now;
    ``marks`` come with the newest first."""
    request, rows = trace["request"], trace["sentences"]
    storage = storage_of(trace, store_text)
    told = {**trace, "sentences": rows[:MOST_SENTENCES]}
    sentences = sentences_of(told)
    full = storage is Storage.FULL
    pieces = pieces_of(request["reply"] or "", told["sentences"]) if full and len(rows) <= MOST_SENTENCES else []
    if full and len(rows) > MOST_SENTENCES:
        pieces = pieces_of("", told["sentences"])
    thresholds = (request.get("judging") or {}).get("thresholds") or {}
    return TraceView(
        request=request,
        storage=storage,
        pieces=_shown_pieces(pieces, sentences),
        sentences=sentences,
        counts={label.value: sum(row["label"] == label for row in rows) for label in LABELS_WORST_FIRST},
        first=min(sentences, key=lambda sentence: LABELS_WORST_FIRST.index(Label(sentence.label)), default=None),
        cut=len(rows) - len(sentences),
        documents=[_document(row, sentences, full=full) for row in trace["documents"]],
        phases=_phases([row for row in trace["decisions"] if not row["shadow"]]),
        shadow=[row for row in trace["decisions"] if row["shadow"]],
        timing=timing_of(request, sentences),
        prompt=shown(request["prompt"], _LONGEST_PROMPT) if full and request["prompt"] else None,
        marks={mark.decision_id: mark for mark in reversed(marks)},
        thresholds=(thresholds.get("entailment", 0.7), thresholds.get("contradiction", 0.7)),
    )


def _shown_pieces(pieces: Sequence[Piece], sentences: Sequence[ShownSentence]) -> list[ShownPiece]:
    made, length = [], 0
    for piece in pieces:
        limit = _LONGEST_PIECE if length < _LONGEST_REPLY else _BEGIN
        sentence = None if piece.sentence is None else sentences[piece.sentence]
        made.append(ShownPiece(piece=piece, text=shown(piece.text, limit), sentence=sentence))
        length += min(limit, len(piece.text or ""))
    return made


def _document(row: Mapping[str, Any], sentences: Sequence[ShownSentence], *, full: bool) -> ShownDocument:
    position = row["position"]
    passages = [
        (claim.passage.start, claim.passage.end)
        for sentence in sentences
        for claim in sentence.claims
        if claim.passage is not None and claim.passage.document == position
    ]
    return ShownDocument(
        row=row,
        name=name_of(row, position),
        sentences=[sentence for sentence in sentences if position in sentence.documents],
        text=marked(row["text"], passages, _LONGEST_DOCUMENT) if full and row["text"] else None,
    )


def _phases(decisions: Sequence[Mapping[str, Any]]) -> list[PhaseGroup]:
    return [
        PhaseGroup(name=name, about=about, decisions=found)
        for phase, (name, about) in _PHASES.items()
        if (found := [row for row in decisions if row["phase"] == phase])
    ]
