"""Converts a window of evidence to the source of a verdict."""

from judges.types import Evidence, Source


def source_of(window: Evidence, score: float) -> Source:
    """Convert ``window`` to a source. ``score`` is how strongly it supports or contradicts the claim, 0 to 1."""
    return Source(
        document_id=window.document_id,
        document_index=window.chunk_index,
        source=window.source,
        content=window.text,
        score=score,
        span=window.span,
    )
