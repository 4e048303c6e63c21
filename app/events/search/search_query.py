"""Parses a search and converts it to a query for the full-text index of each database."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.events.search.indexed_text import words

_SHORTEST_PREFIX = 3
"""The minimum length of a prefix. A shorter prefix would match too many words, so it is treated as a whole word."""
_MOST_PHRASES = 20
_TERM = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class Phrase:
    """Consecutive words. With ``prefix``, the last word is only the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool = False


def phrases_of(search: str) -> tuple[Phrase, ...]:
    """Parse a search, which may contain words, ``"phrases"`` and ``prefix*``. A match must contain all of them. Any
    other character separates words, so every search is valid. If the search contains no words, the result is empty, and
    nothing matches."""
    return tuple(_phrases(search))[:_MOST_PHRASES]


def _phrases(search: str) -> Iterator[Phrase]:
    for quoted, star, plain in _TERM.findall(search):
        if found := words(quoted or plain):
            prefix = bool(star) or plain.endswith("*")
            yield Phrase(tuple(found), prefix and len(found[-1]) >= _SHORTEST_PREFIX)


def fts5_query(phrases: Sequence[Phrase]) -> str:
    """Convert ``phrases`` to a query for SQLite's FTS5. Words contain only letters and digits."""
    return " ".join(f'"{" ".join(phrase.words)}"{" *" if phrase.prefix else ""}' for phrase in phrases)


def tsquery(phrases: Sequence[Phrase]) -> str:
    """Convert ``phrases`` to a query for PostgreSQL's ``to_tsquery``."""
    return " & ".join(_tsquery(phrase) for phrase in phrases)


def _tsquery(phrase: Phrase) -> str:
    joined = " <-> ".join(f"'{word}'" for word in phrase.words)
    return f"({joined}:*)" if phrase.prefix else f"({joined})"
