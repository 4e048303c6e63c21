"""A window of evidence as the source of a verdict."""

from judges.types import Evidence, Source


def source_of(window: Evidence, score: float) -> Source:
    """``window`` as a source; ``score`` is how far it supports or contradicts the claim, 0–1."""
    return Source(
        document_id=window.document_id,
        document_index=window.chunk_index,
        source=window.source,
        content=window.text,
        score=score,
        span=window.span,
    )
