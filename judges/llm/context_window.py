"""What fits a call: how long texts are, in which order sources stand, and how too many of them are split."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import TypeVar

from judges.evidence.windows import Windowing, build_index
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Chunk, Evidence, Span

T = TypeVar("T")

_CHARS_PER_TOKEN = 3.5
_EVERY_SENTENCE = 1 << 30


def estimate_tokens(text: str) -> int:
    """About how many tokens a model makes of ``text``, rather too many than too few: tokenizers differ, and this one
    knows none of them. A letter beyond ASCII counts as one, as it does in most scripts at worst."""
    wide = sum(not ch.isascii() for ch in text)
    return ceil((len(text) - wide) / _CHARS_PER_TOKEN) + wide


def ends_first(ranked: Sequence[T]) -> list[T]:
    """``ranked``, the best first, with the best two at the ends, where models read best (Liu et al. 2023, "Lost in the
    Middle")."""
    return list(ranked) if len(ranked) < 3 else [ranked[0], *ranked[2:], ranked[1]]


def whole(chunks: Sequence[Chunk]) -> list[Evidence]:
    """``chunks`` as they are, the most relevant first, those without a score behind the others."""
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


def pieces(chunks: Sequence[Chunk], limit: int) -> Sequence[Evidence]:
    """``chunks`` cut into pieces of whole sentences, a sentence in two neighbouring ones, of at most ``limit`` tokens
    each, not counting the white space within; all of every chunk lies in some piece. The most relevant first."""
    return build_index(
        chunks,
        splitter=IncrementalSplitter,
        count=estimate_tokens,
        max_tokens=2 * limit,
        windowing=Windowing(sentences=_EVERY_SENTENCE, tokens=limit, overlap=1),
    ).windows


def batches(items: Sequence[T], budget: int, size: Callable[[T], int]) -> list[list[T]]:
    """``items`` in as few runs as the order allows, each of at most ``budget`` tokens; an item over it stands alone."""
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
