"""Converts the events of a playground run to JSON Lines that contain page fragments."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.dashboard.playground.playground_runner import (
    ModelText,
    PlaygroundEvent,
    ReplacementSent,
    RunFinished,
    SentenceReleased,
)
from app.dashboard.templating import render
from app.dashboard.trace.claim_evidence import SentenceReader
from app.dashboard.trace.highlighting import shown
from app.dashboard.trace.trace_view import DEFAULT_THRESHOLDS, trace_view
from app.settings import StoreText
from judges.types import LABELS_WORST_FIRST, Chunk


class StepRenderer:
    """Renders a run event by event. ``chunks`` are the run's documents."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        documents = [
            {"position": place, "document_id": chunk.id, "title": chunk.title, "source": chunk.source}
            | {"text": chunk.text, "kept": True}
            for place, chunk in enumerate(chunks)
        ]
        self._places = {row["document_id"]: row["position"] for row in reversed(documents)}
        self._reader = SentenceReader(documents)
        self._sentences = 0

    def render(self, event: PlaygroundEvent) -> dict[str, Any]:
        """Render an event as a JSON object. Its ``kind`` is ``text`` (not judged yet), ``sent`` (to the client) or
        ``finished``."""
        match event:
            case ModelText(text=text):
                return {"kind": "text", "text": text}
            case SentenceReleased():
                return {"kind": "sent", "html": self._sentence(event), "held": event.held}
            case ReplacementSent(text=text):
                return {"kind": "sent", "html": render("playground/step.html", instead=shown(text)), "held": ""}
            case RunFinished():
                return {"kind": "finished", "html": _result(event)}

    def _sentence(self, event: SentenceReleased) -> str:
        context: dict[str, Any] = {
            "skipped": shown(event.skipped),
            "lead": event.text[: -len(event.text.lstrip())],
            "text": shown(event.text.strip()),
        }
        if not event.claims:
            return render("playground/step.html", **context)
        sentence = self._reader.sentence(self._row(event), self._sentences + 1)
        self._sentences += 1
        view = {"thresholds": (DEFAULT_THRESHOLDS.entailment, DEFAULT_THRESHOLDS.contradiction), "first": None}
        return render("playground/step.html", sentence=sentence, view=view, **context)

    def _row(self, event: SentenceReleased) -> dict[str, Any]:
        """Convert a sentence to a row of a trace."""
        labels = {claim["verdict"] for claim in event.claims}
        return {
            "choice": 0,
            "index": self._sentences,
            "label": next((label.value for label in LABELS_WORST_FIRST if label in labels), "not_a_claim"),
            "start": 0,
            "end": len(event.text.strip()),
            "delivered": True,
            "claims": [self._claim(claim, event.text) for claim in event.claims],
        }

    def _claim(self, claim: Mapping[str, Any], text: str) -> dict[str, Any]:
        source = claim["best_source"] or {}
        verdict = {"claim": {"text": claim["claim"] or ""}, "entailed": claim["score"], "escalated": claim["escalated"]}
        reasoning = {"explanation": claim["explanation"], "correction": claim["correction"]}
        if claim["verdict"] == "contradicted" and claim["confidence"] is not None:
            verdict["contradicted"] = claim["confidence"]
        return {
            "label": claim["verdict"],
            "score": claim["score"],
            "confidence": claim["confidence"],
            "document_index": self._places.get(source.get("document_id")),
            "evidence_start": (source.get("span") or {}).get("start", 0),
            "evidence_end": (source.get("span") or {}).get("end", 0),
            "text": text,
            "evidence": source.get("content"),
            "reason": claim.get("reason"),
            "extra": {"verdict": verdict | reasoning},
        }


def _result(finished: RunFinished) -> str:
    view = None if finished.trace is None else trace_view(finished.trace, store_text=StoreText.FULL)
    return render("playground/result.html", view=view, error=finished.error)
