"""Fits sources into an LLM's context: estimates tokens, orders sources, and splits long ones."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import TypeVar

from judges.evidence.windowing import DocumentCutter, build_index
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Chunk, Evidence, Span, Windowing

T = TypeVar("T")

_CHARS_PER_TOKEN = 3.5
_EVERY_SENTENCE = 1 << 30


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in ``text`` for any tokenizer, erring on the high side. Each non-ASCII character
    counts as one token, which is the worst case in most scripts."""
    wide = sum(not ch.isascii() for ch in text)
    return ceil((len(text) - wide) / _CHARS_PER_TOKEN) + wide


def best_at_ends(ranked: Sequence[T]) -> list[T]:
    """Reorder ``ranked`` (best first) so that the best two items are at the two ends. Models pay the most attention to
    the ends of their input (Liu et al., 2023, "Lost in the Middle")."""
    return list(ranked) if len(ranked) < 3 else [ranked[0], *ranked[2:], ranked[1]]


def whole_sources(chunks: Sequence[Chunk]) -> list[Evidence]:
    """Return ``chunks`` uncut, most relevant first; chunks without a score come last."""
    order = sorted(range(len(chunks)), key=lambda place: -_rank(chunks[place]))
    return [
        Evidence(
            chunk_index=place,
            document_id=chunks[place].id,
            source=chunks[place].title or chunks[place].source,
            text=chunks[place].text,
            span=Span(0, len(chunks[place].text)),
        )
        for place in order
    ]


def split_sources(chunks: Sequence[Chunk], limit: int) -> Sequence[Evidence]:
    """Cut ``chunks`` into pieces of whole sentences, most relevant chunk first.

    Each piece has at most ``limit`` tokens, not counting whitespace. Neighbouring pieces share one sentence, and
    together the pieces cover each chunk completely.
    """
    return build_index(
        chunks,
        cutter=DocumentCutter(IncrementalSplitter),
        count=estimate_tokens,
        max_tokens=2 * limit,
        windowing=Windowing(sentences=_EVERY_SENTENCE, tokens=limit, overlap=1),
    ).windows


def batches(items: Sequence[T], budget: int, size: Callable[[T], int]) -> list[list[T]]:
    """Divide ``items`` into the fewest consecutive batches of at most ``budget`` tokens. An item over the budget gets
    its own batch."""
    made: list[list[T]] = []
    room = 0
    for item in items:
        tokens = size(item)
        if not made or tokens > room:
            made.append([])
            room = budget
        made[-1].append(item)
        room -= tokens
    return made


def _rank(chunk: Chunk) -> float:
    return -1.0 if chunk.relevance_score is None else chunk.relevance_score
