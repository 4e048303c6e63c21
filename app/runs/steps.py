"""The steps of a run, and the record that summarizes them. Steps are only ever added, so concurrent calls can't
overwrite each other's data."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.runs.reported_names import citations_of, hidden
from judges.llm_types import LlmScore
from judges.types import Chunk, Claim, ClaimVerdict, Consistency, Contradiction, Label, LocatedStatement, Source, Span
from policies.reason_texts import redacted_marker
from policies.types import Citation, PolicyInputs

_NOWHERE = Span(0, 0)


class StepKind(StrEnum):
    START = "start"
    RETRIEVAL = "retrieval"
    GROUNDING = "grounding"
    CALL = "call"
    """The kind of step for a gateway request that names the run."""
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """A step in a run. ``data`` and ``decisions`` are plain JSON. ``key`` is the caller's idempotency key."""

    seq: int
    ts: datetime
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    decisions: Sequence[Mapping[str, Any]] = ()
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything recorded in a run. The order of reports doesn't affect decisions.

    ``cited`` contains the source names that the caller reported. Unless text is stored in full, these names are hidden.
    ``citations`` contains the citations found in the replies of the run. ``stated`` contains all claims in the replies,
    whether or not they were judged, and ``contradictions`` contains the contradictions between them.
    ``output_confidence`` is the lowest value reported, so a later report cannot raise it.
    """

    chunks: tuple[Chunk, ...] = ()
    scores: tuple[float, ...] = ()
    cited: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    output_confidence: float | None = None
    claims: tuple[ClaimVerdict, ...] = ()
    citations: tuple[Citation, ...] = ()
    stated: tuple[Claim, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    requests: tuple[str, ...] = ()

    @classmethod
    def of(cls, steps: Iterable[RunStep]) -> "RunRecord":
        builder = _RecordBuilder()
        for step in steps:
            builder.add(step)
        return builder.build()

    @property
    def counts(self) -> dict[str, int]:
        """The number of recorded items of each kind."""
        return {
            "documents": len(self.chunks),
            "grounding_scores": len(self.scores),
            "citations": len(self.cited),
            "unsupported_claims": len(self.unsupported),
            "claims": sum(claim.label is not Label.NOT_A_CLAIM for claim in self.claims),
            "requests": len(self.requests),
        }

    @property
    def trust_score(self) -> float | None:
        """The share of judged claims that are supported, or None if no claim was judged."""
        claims = [claim for claim in self.claims if claim.label is not Label.NOT_A_CLAIM]
        if not claims:
            return None
        return sum(claim.label is Label.SUPPORTED for claim in claims) / len(claims)

    def policy_inputs(self, llm_scores: Sequence[LlmScore] = ()) -> PolicyInputs:
        """Return the inputs for policies that evaluate the complete run, with the scores for its result."""
        return PolicyInputs(
            chunks=self.chunks,
            strippable=False,
            claims=self.claims,
            citations=(*self.citations, *citations_of(self.cited, self.chunks)),
            reported_scores=self.scores,
            reported_unsupported=self.unsupported,
            output_confidence=self.output_confidence,
            trust_score=self.trust_score,
            judged=bool(self.claims),
            consistency=Consistency(contradictions=self.contradictions) if self.contradictions else None,
            llm_scores=llm_scores,
            of_run=True,
        )


def document_json(chunk: Chunk, run_id: str, *, keep_text: bool) -> dict[str, Any]:
    """Build the JSON that a run stores for a document. It contains a digest of the text, so that the text can be
    recognized later. With ``keep_text``, it also contains the text."""
    kept = ("id", "source", "collection", "relevance_score", "age_days", "title", "url")
    document = {name: getattr(chunk, name) for name in kept}
    if chunk.text:
        document["digest"] = _digest(chunk.text, run_id)
        if keep_text:
            document["text"] = chunk.text
    return document


def _digest(text: str, run_id: str) -> str:
    return hashlib.blake2b(f"{run_id}\0{text}".encode("utf-8", "replace"), digest_size=16).hexdigest()


def claim_json(verdict: ClaimVerdict) -> dict[str, Any]:
    """Build the JSON that a run stores for a verdict."""
    return {
        "text": verdict.claim.text,
        "sentence": verdict.claim.sentence_index,
        "label": verdict.label.value,
        "entailed": verdict.entailed,
        "contradicted": verdict.contradicted,
        "reason": verdict.reason,
        "escalated": verdict.escalated,
        "support": list(verdict.support.items()),
        "best_source": _source_json(verdict.best_source),
        "contradicting_source": _source_json(verdict.contradicting_source),
    }


def citation_json(citation: Citation, run_id: str, *, keep_text: bool) -> dict[str, Any]:
    """Build the JSON that a run stores for a citation. Without ``keep_text``, text in its marker is removed. If the
    cited document is known only by its marker, the marker is replaced by a digest instead."""
    marker = citation.marker
    if not keep_text and redacted_marker(marker) != marker:
        named = citation.document_index is None
        marker = _digest(marker.strip(), run_id) if named else redacted_marker(marker)
    return {
        "marker": marker,
        "document": citation.document_index,
        "other_documents": list(citation.other_documents),
        "sentence": citation.sentence_index,
        "reported": citation.reported,
    }


def contradiction_json(found: Contradiction) -> dict[str, Any]:
    """Build the JSON that a run stores for two statements that contradict each other."""
    return {"texts": [found.first.text, found.second.text], "score": found.score}


def with_texts(data: Mapping[str, Any], change: Callable[[str], str | None]) -> dict[str, Any]:
    """Return the ``data`` of a step with ``change`` applied to all text that the model or the caller wrote. The names
    in reported citations are replaced by hidden names, so that the citations still count."""
    changed = dict(data)
    if "document" in data:
        changed["document"] = _with_text(data["document"], change)
    if "documents" in data:
        changed["documents"] = [_with_text(document, change) for document in data["documents"]]
    if "statements" in data:
        changed["statements"] = [{**said, "text": change(said["text"]) or ""} for said in data["statements"]]
    if "citations" in data:
        changed["citations"] = [hidden(name) for name in data["citations"]]
    if "unsupported_claims" in data:
        changed["unsupported_claims"] = [change(text) or "" for text in data["unsupported_claims"]]
    if "claims" in data:
        changed["claims"] = [{**claim, "text": change(claim["text"]) or ""} for claim in data["claims"]]
    if "inconsistencies" in data:
        changed["inconsistencies"] = [
            {**found, "texts": [change(text) or "" for text in found["texts"]]} for found in data["inconsistencies"]
        ]
    return changed


def texts_of(data: Mapping[str, Any]) -> list[str]:
    """Return the texts that ``with_texts`` changes."""
    documents = [*data.get("documents", ()), *((data["document"],) if "document" in data else ())]
    return [
        *(document["text"] for document in documents if "text" in document),
        *(said["text"] for said in data.get("statements", ())),
        *(name for name in data.get("citations", ()) if hidden(name) != name),
        *data.get("unsupported_claims", ()),
        *(claim["text"] for claim in data.get("claims", ())),
        *(text for found in data.get("inconsistencies", ()) for text in found["texts"]),
    ]


def _with_text(document: Mapping[str, Any], change: Callable[[str], str | None]) -> dict[str, Any]:
    """Return a document with its changed text, or without its text."""
    changed = dict(document)
    if text := changed.pop("text", None):
        text = change(text)
    return changed | {"text": text} if text else changed


def _source_json(source: Source | None) -> dict[str, Any] | None:
    if source is None:
        return None
    return {
        "document": source.document_index,
        "document_id": source.document_id,
        "source": source.source,
        "score": source.score,
        "span": [source.span.start, source.span.end],
    }


class _RecordBuilder:
    """Summarizes a run's steps, which must be added in order."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._digests: list[str | None] = []
        self._named: dict[tuple[str, str | None], list[int]] = {}
        self._scores: list[float] = []
        self._cited: list[str] = []
        self._unsupported: list[str] = []
        self._confidences: list[float] = []
        self._claims: list[ClaimVerdict] = []
        self._citations: list[Citation] = []
        self._stated: list[Claim] = []
        self._contradictions: list[Contradiction] = []
        self._requests: list[str] = []
        self._sentences = 0

    def add(self, step: RunStep) -> None:
        match step.kind:
            case StepKind.RETRIEVAL:
                self._document(step.data["document"])
            case StepKind.GROUNDING:
                self._reported(step.data)
            case StepKind.CALL:
                self._call(step.data)

    def build(self) -> RunRecord:
        return RunRecord(
            chunks=tuple(self._chunks),
            scores=tuple(self._scores),
            cited=tuple(self._cited),
            unsupported=tuple(self._unsupported),
            output_confidence=min(self._confidences, default=None),
            claims=tuple(self._claims),
            citations=tuple(self._citations),
            stated=tuple(self._stated),
            contradictions=tuple(self._contradictions),
            requests=tuple(self._requests),
        )

    def _document(self, document: Mapping[str, Any]) -> int:
        values = {name: value for name, value in document.items() if name != "digest"}
        self._chunks.append(Chunk(**({"text": ""} | values)))
        self._digests.append(document.get("digest"))
        place = len(self._chunks) - 1
        self._named.setdefault((values["id"], values["source"]), []).append(place)
        return place

    def _reported(self, data: Mapping[str, Any]) -> None:
        self._scores += data.get("grounding_scores", ())
        self._cited += data.get("citations", ())
        self._unsupported += data.get("unsupported_claims", ())
        if (confidence := data.get("output_confidence")) is not None:
            self._confidences.append(confidence)

    def _call(self, data: Mapping[str, Any]) -> None:
        """Add a gateway request. Documents that the run already contains are not added again."""
        self._requests.append(data["request_id"])
        self._reported(data)
        places = [self._known(document) for document in data["documents"]]
        claims = [_verdict(verdict, places, self._sentences) for verdict in data["claims"]]
        self._claims += claims
        self._stated += (verdict.claim for verdict in claims)
        self._stated += (_claim(said, self._sentences) for said in data.get("statements", ()))
        for citation in data["found_citations"]:
            document, sentence = citation["document"], citation["sentence"]
            self._citations.append(
                Citation(
                    marker=citation["marker"],
                    document_index=None if document is None else places[document],
                    other_documents=tuple(places[other] for other in citation.get("other_documents", ())),
                    sentence_index=None if sentence is None else sentence + self._sentences,
                    reported=citation["reported"],
                )
            )
        for found in data.get("inconsistencies", ()):
            first, second = (LocatedStatement(text=text, span=_NOWHERE, earlier=True) for text in found["texts"])
            self._contradictions.append(Contradiction(first=first, second=second, score=found["score"]))
        self._sentences += data["sentences"]

    def _known(self, document: Mapping[str, Any]) -> int:
        """Return a document's position in the run. Documents are identified by id, source and text. If the document is
        new, it is added."""
        digest = document.get("digest")
        for place in self._named.get((document["id"], document["source"]), ()):
            if self._digests[place] in (None, digest):
                self._digests[place] = digest
                if "text" in document:
                    self._chunks[place] = replace(self._chunks[place], text=document["text"])
                return place
        return self._document(document)


def _claim(data: Mapping[str, Any], sentences: int) -> Claim:
    return Claim(text=data["text"], span=_NOWHERE, sentence_index=data["sentence"] + sentences)


def _verdict(data: Mapping[str, Any], places: Sequence[int], sentences: int) -> ClaimVerdict:
    """Read a verdict. ``places`` maps the document positions in the request to positions in the run. ``sentences``, the
    number of sentences in earlier requests, is added to the sentence number."""
    return ClaimVerdict(
        claim=_claim(data, sentences),
        label=Label(data["label"]),
        entailed=data["entailed"],
        contradicted=data["contradicted"],
        reason=data["reason"],
        escalated=data["escalated"],
        support={places[document]: entailed for document, entailed in data["support"]},
        best_source=_source(data["best_source"], places),
        contradicting_source=_source(data["contradicting_source"], places),
    )


def _source(data: Mapping[str, Any] | None, places: Sequence[int]) -> Source | None:
    if data is None:
        return None
    return Source(
        document_id=data["document_id"],
        document_index=places[data["document"]],
        source=data["source"],
        content="",
        score=data["score"],
        span=Span(*data["span"]),
    )
