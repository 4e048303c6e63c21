"""What a text states, each statement with what it needs to be understood: for holding statements against each other."""

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
"""Headings that say nothing of what stands under them."""


_ATTRIBUTED = re.compile(
    r"\b(?:according to|as (?:stated|described|noted|mentioned|reported) (?:in|by)|per|laut|gemäß|selon|según)\s+"
    r"(?:\[[^\[\]\n]{1,80}\]|【[^【】\n]{1,80}】)",
    re.IGNORECASE,
)
_AT_ONCE = 16
"""Sentences that are read before others have their turn on the event loop."""
_LOOK_BACK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """``text`` as it is quoted; ``context`` comes before it where it needs that to be understood.

    ``origin``: the text it is of, by number. ``where`` is the heading and the list item that it stands under, ``voice``
    what introduces it ("According to the handbook,"); two that differ in these speak of different things.
    """

    text: str
    span: Span
    origin: int = 0
    context: str = ""
    where: str = ""
    voice: str = ""

    @property
    def full(self) -> str:
        return f"{self.context} {self.text}" if self.context else self.text


async def statements_of(
    text: str,
    extractor: ClaimExtractor,
    splitter: Callable[[], SentenceSplitter],
    *,
    origin: int = 0,
    most: int,
) -> Sequence[Statement]:
    """The statements of ``text``, the first ``most`` of them. The time taken grows with the text read for them."""
    sentences, sections = await asyncio.to_thread(_read, text, splitter())
    found: list[Statement] = []
    for place, sentence in enumerate(sentences):
        if len(found) >= most:
            break
        if place % _AT_ONCE == 0:
            await asyncio.sleep(0)
        for claim in await extractor.extract(sentence, sentences[max(0, place - _LOOK_BACK) : place]):
            found.append(
                Statement(
                    text=claim.text,
                    span=claim.span,
                    origin=origin,
                    context=claim.context,
                    where=sections.at(claim.span.start),
                    voice=_voice(text, claim),
                )
            )
    return found[:most]


def _read(text: str, splitter: SentenceSplitter) -> tuple[Sequence[Sentence], "_Sections"]:
    return [*splitter.push(text), *splitter.flush()], _Sections(text)


def _voice(text: str, claim: Claim) -> str:
    """Who is said to say it: a source cited for it, or what was taken off before the claim in its own sentence."""
    if found := _ATTRIBUTED.search(text, claim.span.start, claim.span.end):
        return found[0].casefold()
    written = " ".join(plain(text[claim.span.start : claim.span.end]).split()).casefold()
    before = written.partition(claim.text.casefold())[0]
    return before.strip() if before != written else ""


class _Sections:
    """The headings and list items that each line of a text stands under."""

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
    """The level of a heading; a line in bold is one below the others. None for any other line."""
    if HEADING.match(line):
        return len(line.lstrip()) - len(line.lstrip().lstrip("#"))
    return 7 if _TITLE.match(line) else None
