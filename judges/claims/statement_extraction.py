"""Extracts statements from text, each with its context, for comparing statements with each other."""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from judges.protocols import ClaimExtractor, SentenceSplitter
from judges.text.markdown import HEADING, ITEM, plain
from judges.types import Claim, Sentence, Span

_TITLE = re.compile(r"\s*(?:\*\*|__)[^*_\n]{1,80}(?:\*\*|__):?\s*\Z")
_GENERAL = re.compile(
    r"(?:the )?(?:summary|overview|details?|conclusions?|introduction|background|(?:short |direct |final )?answer"
    r"|notes?|key (?:points|facts|takeaways)|in short|zusammenfassung|überblick|fazit|einleitung|antwort|hinweise?"
    r"|résumé|conclusion|détails|resumen|conclusión|detalles)\W*",
    re.IGNORECASE,
)
"""Generic headings, which don't describe the text below them."""
_ATTRIBUTED = re.compile(
    r"\b(?:according to|as (?:stated|described|noted|mentioned|reported) (?:in|by)|per|laut|gemäß|selon|según)\s+"
    r"(?:\[[^\[\]\n]{1,80}\]|【[^【】\n]{1,80}】)",
    re.IGNORECASE,
)
_YIELD_EVERY = 16
"""Number of sentences to process before yielding to other tasks on the event loop."""
_MAX_LOOK_BACK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement from a text. ``text`` is verbatim. ``context`` is the text needed to understand it, or "" if none is
    needed. ``origin`` is the number of the text that the statement comes from. ``section`` is the heading and list item
    above it, and ``attribution`` is its introduction ("According to the handbook,"). Statements that differ in
    ``section`` or ``attribution`` are about different things."""

    text: str
    span: Span
    origin: int = 0
    context: str = ""
    section: str = ""
    attribution: str = ""

    @property
    def full(self) -> str:
        return f"{self.context} {self.text}" if self.context else self.text


async def statements_of(
    text: str,
    extractor: ClaimExtractor,
    splitter: Callable[[], SentenceSplitter],
    *,
    origin: int = 0,
    limit: int,
) -> Sequence[Statement]:
    """Return the first ``limit`` statements in ``text``, with their context. The time taken is proportional to the
    amount of text read.

    ``splitter`` creates the splitter for the text; ``origin`` is the number of the text.
    """
    sentences, sections = await asyncio.to_thread(_read, text, splitter())
    found: list[Statement] = []
    for place, sentence in enumerate(sentences):
        if len(found) >= limit:
            break
        if place % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
        for claim in await extractor.extract(sentence, sentences[max(0, place - _MAX_LOOK_BACK) : place]):
            found.append(
                Statement(
                    text=claim.text,
                    span=claim.span,
                    origin=origin,
                    context=claim.context,
                    section=sections.at(claim.span.start),
                    attribution=_attribution(text, claim),
                )
            )
    return found[:limit]


def _read(text: str, splitter: SentenceSplitter) -> tuple[Sequence[Sentence], "_Sections"]:
    return [*splitter.push(text), *splitter.flush()], _Sections(text)


def _attribution(text: str, claim: Claim) -> str:
    """Return the attribution of a claim: a source that it cites, or the introduction that the extractor removed."""
    if found := _ATTRIBUTED.search(text, claim.span.start, claim.span.end):
        return found[0].casefold()
    written = " ".join(plain(text[claim.span.start : claim.span.end]).split()).casefold()
    before = written.partition(claim.text.casefold())[0]
    return before.strip() if before != written else ""


class _Sections:
    """Tracks the headings and list items above each line of the text."""

    def __init__(self, text: str) -> None:
        self._starts: list[int] = []
        self._paths: list[str] = []
        headings: list[tuple[int, str]] = []
        items: list[tuple[int, str]] = []
        start = 0
        for line in text.splitlines(keepends=True):
            indent = len(line) - len(line.lstrip())
            if (level := _level(line)) is not None:
                headings = [*(one for one in headings if one[0] < level), (level, plain(line))]
                items = []
            elif ITEM.match(line):
                items = [one for one in items if one[0] < indent]
            elif line.strip() and not indent:
                items = []
            self._starts.append(start)
            path = [title for _, title in (*headings, *items) if not _GENERAL.fullmatch(title)]
            self._paths.append(" / ".join(path))
            if ITEM.match(line):
                items.append((indent, plain(line)))
            start += len(line)

    def at(self, place: int) -> str:
        found = bisect_right(self._starts, place) - 1
        return self._paths[found] if found >= 0 else ""


def _level(line: str) -> int | None:
    """Return the level of a heading (7 for a bold line), or None for any other line."""
    if HEADING.match(line):
        return len(line.lstrip()) - len(line.lstrip().lstrip("#"))
    return 7 if _TITLE.match(line) else None
