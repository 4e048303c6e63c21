"""OpenAI's annotation objects: the citations of the delivered text."""

from collections.abc import Sequence
from typing import Any

from app.reply.judged_sentence import JudgedSentence
from judges.types import Chunk, Span


def annotations_of(sentences: Sequence[JudgedSentence], chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """OpenAI's citation objects: one for each delivered sentence and document that supports it or that it cites."""
    annotations = []
    for sentence in sentences:
        span = sentence.span
        if span is None:
            continue
        supporting = [source.document_index for source in sentence.supporting]
        cited = [c.document_index for c in sentence.citations if c.document_index is not None]
        for index in dict.fromkeys((*supporting, *cited)):
            annotations.append(_annotation(chunks[index], span))
    return annotations


def _annotation(chunk: Chunk, span: Span) -> dict[str, Any]:
    place = {"start_index": span.start, "end_index": span.end}
    if chunk.url and chunk.url.startswith(("https://", "http://")):  # a client may make a link of it
        citation = {**place, "url": chunk.url, "title": chunk.title or chunk.source or chunk.id}
        return {"type": "url_citation", "url_citation": citation}
    filename = chunk.source or chunk.title or chunk.id
    return {"type": "file_citation", "file_citation": {**place, "file_id": chunk.id, "filename": filename}}
