"""Builds the contents of a trace page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.dashboard.trace.claim_evidence import SentenceView, name_of, sentences_of
from app.dashboard.trace.highlighting import marked, shown
from app.dashboard.trace.reply_pieces import ReplyPiece, Storage, pieces_of, storage_of
from app.dashboard.trace.timings import Timing, timing_of
from app.events.feedback import FeedbackMark
from judges.label_thresholds import Thresholds
from judges.types import LABELS_WORST_FIRST, Label

DEFAULT_THRESHOLDS = Thresholds()
MOST_SENTENCES = 400
"""Maximum number of sentences on the page. The JSON download has all of them."""
_LONGEST_PIECE, _LONGEST_REPLY, _BEGIN = 4_000, 40_000, 160
"""Limits in characters, for a piece and for the whole reply. If the reply is longer, only the beginning of each piece
is shown, because browsers lay out very long texts slowly."""
_LONGEST_PROMPT = 20_000
_LONGEST_DOCUMENT = 12_000
_PHASES = {
    "before_workflow": ("Before the call", "Decisions about the documents, and about whether to call the model."),
    "mid_execution": ("During the reply", "Decisions about each sentence before it is sent."),
    "after_workflow": ("After the reply", "Decisions about the reply as a whole."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceView:
    piece: ReplyPiece
    text: Markup
    sentence: SentenceView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentView:
    """A document of a request. ``sentences`` are the sentences whose verdicts are based on it. ``text`` has their
    passages marked."""

    row: Mapping[str, Any]
    name: str
    sentences: Sequence[SentenceView]
    text: Markup | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseView:
    name: str
    about: str
    decisions: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """``marks`` holds the latest feedback by subject. The keys are the ids of decisions, ``decision`` for the outcome,
    and ``reply`` for the reply. ``first`` is the sentence that is selected initially. ``cut`` is the number of
    sentences that are not shown."""

    request: Mapping[str, Any]
    storage: Storage
    pieces: Sequence[PieceView]
    sentences: Sequence[SentenceView]
    counts: Mapping[str, int]
    first: SentenceView | None
    cut: int
    documents: Sequence[DocumentView]
    phases: Sequence[PhaseView]
    shadow: Sequence[Mapping[str, Any]]
    timing: Timing
    prompt: Markup | None
    marks: Mapping[str, FeedbackMark]
    thresholds: tuple[float, float]


def trace_view(trace: Mapping[str, Any], *, store_text: str, marks: Sequence[FeedbackMark] = ()) -> TraceView:
    """Build the view of ``trace``, as returned by ``EventQueries.trace``. ``store_text`` is the current setting.
    ``marks`` are sorted newest first."""
    request, rows = trace["request"], trace["sentences"]
    storage = storage_of(trace, store_text)
    limited = {**trace, "sentences": rows[:MOST_SENTENCES]}
    sentences = sentences_of(limited)
    full = storage is Storage.FULL
    pieces = pieces_of(request["reply"] or "", limited["sentences"]) if full and len(rows) <= MOST_SENTENCES else []
    if full and len(rows) > MOST_SENTENCES:
        pieces = pieces_of("", limited["sentences"])
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
        marks={mark.decision_id or mark.about: mark for mark in reversed(marks)},
        thresholds=(
            thresholds.get("entailment", DEFAULT_THRESHOLDS.entailment),
            thresholds.get("contradiction", DEFAULT_THRESHOLDS.contradiction),
        ),
    )


def _shown_pieces(pieces: Sequence[ReplyPiece], sentences: Sequence[SentenceView]) -> list[PieceView]:
    made, length = [], 0
    for piece in pieces:
        limit = _LONGEST_PIECE if length < _LONGEST_REPLY else _BEGIN
        sentence = None if piece.sentence is None else sentences[piece.sentence]
        made.append(PieceView(piece=piece, text=shown(piece.text, limit), sentence=sentence))
        length += min(limit, len(piece.text or ""))
    return made


def _document(row: Mapping[str, Any], sentences: Sequence[SentenceView], *, full: bool) -> DocumentView:
    position = row["position"]
    passages = [
        (claim.passage.start, claim.passage.end)
        for sentence in sentences
        for claim in sentence.claims
        if claim.passage is not None and claim.passage.document == position
    ]
    return DocumentView(
        row=row,
        name=name_of(row, position),
        sentences=[sentence for sentence in sentences if position in sentence.documents],
        text=marked(row["text"], passages, _LONGEST_DOCUMENT) if full and row["text"] else None,
    )


def _phases(decisions: Sequence[Mapping[str, Any]]) -> list[PhaseView]:
    return [
        PhaseView(name=name, about=about, decisions=found)
        for phase, (name, about) in _PHASES.items()
        if (found := [row for row in decisions if row["phase"] == phase])
    ]
