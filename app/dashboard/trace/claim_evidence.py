"""The sentences of a trace, with their claims and evidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from app.dashboard.trace.highlighting import Excerpt, emphasise, excerpt, nearest_sentence, shown
from app.dashboard.trace.reply_pieces import Fate, Row, fate_of
from judges.features.numbers import Relation, compare

_LONGEST_CLAIM = 2_000
_MOST_COMPARED = 60
"""Maximum number of claims per page whose numbers are compared with the evidence. A long reply may have more claims."""
_COMPARED_CHARS = 1_000
_REASONS = {
    "timeout": "The judge timed out.",
    "overloaded": "The judge's queue was full.",
    "judge_error": "The judge failed.",
    "unavailable": "The judge was unreachable.",
    "skipped": "The policy's limit on judged claims was reached.",
    "language": "The judge doesn't support this language.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberDifference:
    """A number in a claim that the evidence doesn't confirm. ``other`` is the number in the evidence, if any."""

    said: str
    other: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPassage:
    """The passage on which a verdict is based, from character ``start`` to ``end`` of the document. ``text`` is None if
    text wasn't stored. ``against`` means that the passage contradicts the claim."""

    document: int
    name: str
    score: float | None
    against: bool
    start: int
    end: int
    text: Excerpt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSupport:
    """How strongly one document supports a claim, from 0 to 1."""

    document: int
    name: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """A claim with its evidence. ``text`` is None if the claim is the whole sentence. ``unsupported`` lists the parts
    that no document supports, if the judge reports them and text was stored."""

    label: str
    text: Markup | None
    entailed: float | None
    contradicted: float | None
    confidence: float | None
    why_open: str | None
    escalated: bool
    explanation: Markup | None
    correction: Markup | None
    numbers: Sequence[NumberDifference]
    unsupported: Sequence[Markup]
    passage: ShownPassage | None
    support: Sequence[DocumentSupport]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceView:
    """``key`` identifies the sentence within the page. ``start`` is its offset within its choice, and ``length`` is its
    length. Both are in characters."""

    key: str
    number: int
    choice: int
    label: str
    fate: Fate
    start: int
    length: int
    came_ms: float | None
    judged_ms: float | None
    claims: Sequence[ClaimView]

    @property
    def documents(self) -> set[int]:
        """Return the documents on which the verdict is based."""
        return {claim.passage.document for claim in self.claims if claim.passage is not None}


def sentences_of(trace: Mapping[str, Any]) -> list[SentenceView]:
    """Return the sentences of a trace, in order."""
    return list(SentenceReader(trace["documents"]).sentences(trace["sentences"]))


class SentenceReader:
    """Builds sentences from the rows of a trace. ``documents`` are the documents they were judged against."""

    def __init__(self, documents: Sequence[Row]) -> None:
        self._documents = {row["position"]: row for row in documents}
        self._kept = [row["position"] for row in documents if row["kept"]]
        self._compared = 0

    def sentences(self, rows: Sequence[Row]) -> Iterator[SentenceView]:
        for number, row in enumerate(rows, 1):
            yield self.sentence(row, number)

    def sentence(self, row: Row, number: int) -> SentenceView:
        times = next((at for claim in row["claims"] if (at := (claim["extra"] or {}).get("at"))), None)
        judged = [claim for claim in row["claims"] if claim["score"] is not None or claim["label"] != "not_a_claim"]
        return SentenceView(
            key=f"{row['choice']}-{row['index']}",
            number=number,
            choice=row["choice"],
            label=row["label"],
            fate=fate_of(row),
            start=row["start"],
            length=row["end"] - row["start"],
            came_ms=times[0] if times else None,
            judged_ms=times[1] if times else None,
            claims=[self._claim(claim, several=len(judged) > 1) for claim in judged],
        )

    def _claim(self, row: Row, *, several: bool) -> ClaimView:
        verdict = (row["extra"] or {}).get("verdict") or {}
        said = (verdict.get("claim") or {}).get("text") or ""
        sentence = (row["text"] or "").strip()
        full = said not in ("", "…")
        passage = self._place(row, verdict)
        numbers: list[NumberDifference] = []
        if full and passage is not None:
            text, span = self._text_of(row, passage)
            key = nearest_sentence(text, span, said)
            numbers = self._numbers(row, said, text[slice(*key)])
            words = [each.other for each in numbers if each.other]
            passage = replace(passage, text=excerpt(text, span, key, words) if text else None)
        different = full and (several or said.strip() != sentence)
        return ClaimView(
            label=row["label"],
            text=emphasise(said[:_LONGEST_CLAIM], [each.said for each in numbers]) if different or numbers else None,
            entailed=verdict.get("entailed", row["score"]),
            contradicted=verdict.get("contradicted"),
            confidence=row["confidence"],
            why_open=_REASONS.get(row["reason"], row["reason"]) if row["reason"] else None,
            escalated=bool(verdict.get("escalated")),
            explanation=shown(verdict["explanation"], _LONGEST_CLAIM) if verdict.get("explanation") else None,
            correction=shown(verdict["correction"], _LONGEST_CLAIM) if verdict.get("correction") else None,
            numbers=numbers,
            unsupported=_unsupported(row),
            passage=passage,
            support=self._support(verdict, passage),
        )

    def _text_of(self, row: Row, passage: ShownPassage) -> tuple[str, tuple[int, int]]:
        """Return the text that contains the passage, and the passage's span in it. The text is the document or, if that
        wasn't stored, the passage itself."""
        text = self._documents.get(passage.document, {}).get("text") or ""
        end = min(passage.end, len(text))
        if text[passage.start : end].strip():
            return text, (passage.start, end)
        alone = row["evidence"] or ""
        return alone, (0, len(alone))

    def _numbers(self, row: Row, said: str, evidence: str) -> list[NumberDifference]:
        if not evidence or row["label"] == "supported" or self._compared >= _MOST_COMPARED:
            return []
        self._compared += 1
        found = compare(said[:_COMPARED_CHARS], evidence[:_COMPARED_CHARS]).findings
        differing = [
            NumberDifference(said=finding.quantity.text, other=finding.other.text if finding.other else None)
            for finding in found
            if finding.relation is not Relation.AGREE
        ]
        return list(dict.fromkeys(differing))

    def _place(self, row: Row, verdict: Mapping[str, Any]) -> ShownPassage | None:
        at = row["document_index"]
        if at is None:
            return None
        against = row["label"] == "contradicted"
        source = verdict.get("contradicting_source" if against else "best_source") or {}
        return ShownPassage(
            document=at,
            name=name_of(self._documents.get(at, {}), at),
            score=source.get("score", row["score"]),
            against=against,
            start=row["evidence_start"],
            end=row["evidence_end"],
        )

    def _support(self, verdict: Mapping[str, Any], main: ShownPassage | None) -> list[DocumentSupport]:
        """Return how strongly the other documents support the claim, strongest first. Indexes count only kept
        documents."""
        found = []
        for index, score in (verdict.get("support") or {}).items():
            place = int(index)
            position = self._kept[place] if 0 <= place < len(self._kept) else None
            if position is not None and (main is None or position != main.document):
                name = name_of(self._documents.get(position, {}), position)
                found.append(DocumentSupport(document=position, name=name, score=float(score)))
        return sorted(found, key=lambda each: -each.score)


def _unsupported(row: Row) -> list[Markup]:
    spans = (row["extra"] or {}).get("unsupported") or ()
    texts = ((row["text"] or "")[start:end] for start, end, _ in spans)
    return [shown(text, _LONGEST_CLAIM) for text in texts if text.strip()]


def name_of(document: Mapping[str, Any], position: int) -> str:
    """Return a document's title, source or id: the first one that is set."""
    for column in ("title", "source", "document_id"):
        if name := document.get(column):
            return str(name)
    return f"document {position + 1}"
