"""Builds passages for an LLM, which can read more than a cross-encoder: windows extended by their neighbours."""

from collections.abc import Sequence

from judges.evidence.index import EvidenceIndex
from judges.types import Evidence, Span

_REACH = 2
"""Number of neighbouring windows on either side. They often contain a condition, an exception, or the noun that a
pronoun stands for."""


def passages_for(index: EvidenceIndex, claim: str, k: int, *, reach: int = _REACH) -> Sequence[Evidence]:
    """Return the ``k`` windows closest to ``claim``, closest first. Each is extended by up to ``reach`` windows of its
    chunk on either side. Adjacent and overlapping passages are merged."""
    place = {window: number for number, window in enumerate(index.windows)}
    ranges: list[tuple[int, int]] = []
    for window in index.select(claim, k):
        at = place[window]
        chunk = window.chunk_index
        first = last = at
        while at - first < reach and first > 0 and index.windows[first - 1].chunk_index == chunk:
            first -= 1
        while last - at < reach and last + 1 < len(index.windows) and index.windows[last + 1].chunk_index == chunk:
            last += 1
        ranges = _add(ranges, (first, last), index.windows)
    return [_join(index.windows[first : last + 1]) for first, last in ranges]


def _add(ranges: list[tuple[int, int]], new: tuple[int, int], windows: Sequence[Evidence]) -> list[tuple[int, int]]:
    """Add ``new`` to ``ranges``. If it adjoins or overlaps other ranges of the same chunk, merge them at the position
    of the first."""
    first, last = new
    chunk = windows[first].chunk_index
    touching = [r for r in ranges if windows[r[0]].chunk_index == chunk and r[0] <= last + 1 and first <= r[1] + 1]
    if not touching:
        return [*ranges, new]
    joined = (min(first, *(r[0] for r in touching)), max(last, *(r[1] for r in touching)))
    return [joined if r is touching[0] else r for r in ranges if r is touching[0] or r not in touching]


def _join(windows: Sequence[Evidence]) -> Evidence:
    first, end = windows[0], windows[0].span.start
    text = ""
    for window in windows:
        if window.span.end <= end:
            continue
        if text and window.span.start > end:
            text += " "  # There is only whitespace between windows that do not overlap.
        text += window.text[max(0, end - window.span.start) :]
        end = window.span.end
    return Evidence(
        chunk_index=first.chunk_index,
        document_id=first.document_id,
        source=first.source,
        text=text,
        span=Span(first.span.start, end),
    )
