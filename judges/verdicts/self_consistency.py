"""Which statements contradict each other: those of one reply, of a run's replies, of documents.

Every statement is laid beside every other one that is much like it, and the few pairs that seem to be of one thing and
to differ in one respect are judged, both ways. What it costs is bounded, however long the texts: so many statements are
read at most (``REPLY_STATEMENTS``, ``DOCUMENT_STATEMENTS``), and so many pairs judged (``MOST_PAIRS``), each twice.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Final, Protocol

from judges.claims.statements import Statement, statements_of
from judges.features import Combined, Prepared
from judges.protocols import ClaimExtractor, JudgeError, JudgeOverloadedError, PairScorer, SentenceSplitter
from judges.text.bm25 import substance, terms
from judges.types import Chunk, Claim, Consistency, Contradiction, Probabilities, Stated
from judges.verdicts.statement_contrast import Contrast, contrast

log = logging.getLogger(__name__)

REPLY_STATEMENTS: Final = 256
DOCUMENT_STATEMENTS: Final = 512
DOCUMENT_CHARS: Final = 200_000
"""Characters of all documents together that are read, each document's first ones."""
MOST_PAIRS: Final = 24
_EARLIER, _REPLY = 0, 1
"""Where statements of a reply come from."""
_MOST_ALIKE: Final = 512
"""Pairs that are looked at closely before any is judged, and so many at most for each statement:"""
_NEAREST: Final = 8
_LEAST_ALIKE: Final = 0.5
_LEAST_SCORE: Final = 0.5
_DEFINITE: Final = 0.9
"""The least score of a pair whose words and numbers alone contradict each other: what a small model may not see."""


class Signals(Protocol):
    """Compares what can be seen in two texts. ``judges.features`` is one."""

    def prepare(self, text: str, context: str = "", /) -> Prepared: ...

    def combine(self, evidence: Prepared | str, claim: Prepared | str, model: Probabilities, /) -> Combined: ...


@dataclass(frozen=True, slots=True)
class _Pair:
    first: int
    second: int
    alike: float
    contrast: Contrast


class ConsistencyChecker:
    """Holds statements against each other; safe to use from many tasks at once."""

    def __init__(
        self,
        scorer: PairScorer,
        signals: Signals,
        extractor: ClaimExtractor,
        splitter: Callable[[], SentenceSplitter],
    ) -> None:
        self._scorer = scorer
        self._signals = signals
        self._extractor = extractor
        self._splitter = splitter

    async def reply(self, text: str, earlier: Sequence[Claim] = (), *, timeout_s: float) -> Consistency:
        """The contradictions within ``text``, and between it and claims of ``earlier`` replies of its run, the latest
        last.

        Never raises for trouble with the judge: ``reason`` says what it was.
        """
        return await _within(timeout_s, self._reply(text, earlier))

    async def documents(self, chunks: Sequence[Chunk], *, timeout_s: float) -> Consistency:
        """The contradictions between documents: of each two the one with the highest score. Never raises, likewise."""
        return await _within(timeout_s, self._documents(chunks))

    async def _reply(self, text: str, earlier: Sequence[Claim]) -> Consistency:
        said = await self._read(text, _REPLY, REPLY_STATEMENTS)
        before = [
            Statement(text=claim.text, span=claim.span, origin=_EARLIER, context=claim.context)
            for claim in earlier[max(0, len(earlier) + len(said) - REPLY_STATEMENTS) :]
        ]
        found, skipped = await self._compare([*before, *said], lambda one, other: _REPLY in (one.origin, other.origin))
        return Consistency(
            contradictions=[
                Contradiction(first=_said(first), second=_said(second), score=score) for first, second, score in found
            ],
            skipped=skipped,
        )

    async def _documents(self, chunks: Sequence[Chunk]) -> Consistency:
        statements: list[Statement] = []
        for index, chunk in enumerate(chunks[:DOCUMENT_STATEMENTS]):
            text = chunk.text[: max(1, DOCUMENT_CHARS // len(chunks))]
            statements += await self._read(text, index, max(1, DOCUMENT_STATEMENTS // len(chunks)))
        found, skipped = await self._compare(statements, lambda one, other: one.origin != other.origin)
        best: dict[tuple[int, int], Contradiction] = {}
        for first, second, score in found:
            made = Contradiction(first=_written(first), second=_written(second), score=score)
            best.setdefault((first.origin, second.origin), made)
        return Consistency(contradictions=tuple(best.values()), skipped=skipped)

    async def _read(self, text: str, origin: int, most: int) -> Sequence[Statement]:
        return await statements_of(text, self._extractor, self._splitter, origin=origin, most=most)

    async def _compare(
        self, statements: Sequence[Statement], comparable: Callable[[Statement, Statement], bool]
    ) -> tuple[list[tuple[Statement, Statement, float]], int]:
        """The pairs that contradict each other, the highest score first, and how many pairs were left out."""
        texts = _Texts(self._signals, statements)
        pairs = await asyncio.to_thread(_pairs, statements, texts, comparable)
        count, room = self._scorer.count_tokens, self._scorer.max_tokens // 2
        fitting = [
            pair for pair in pairs if max(count(statements[at].full) for at in (pair.first, pair.second)) <= room
        ]
        chosen = fitting[:MOST_PAIRS]
        ways = [way for pair in chosen for way in ((pair.first, pair.second), (pair.second, pair.first))]
        scores = await self._scorer.score([(statements[a].full, statements[b].full) for a, b in ways]) if ways else ()
        scored = [
            (statements[pair.first], statements[pair.second], texts.score(pair, there, back))
            for pair, there, back in zip(chosen, scores[::2], scores[1::2], strict=True)
        ]
        found = sorted((one for one in scored if one[2] >= _LEAST_SCORE), key=lambda one: -one[2])
        return found, len(pairs) - len(chosen)


async def _within(timeout_s: float, work: Awaitable[Consistency]) -> Consistency:
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        return Consistency(reason="timeout")
    except JudgeOverloadedError:
        return Consistency(reason="overloaded")
    except JudgeError as error:
        log.warning("statements were not compared: %s", error)
        return Consistency(reason="judge_error")


def _said(statement: Statement) -> Stated:
    return Stated(text=statement.text, span=statement.span, earlier=statement.origin == _EARLIER)


def _written(statement: Statement) -> Stated:
    return Stated(text=statement.text, span=statement.span, document_index=statement.origin)


class _Texts:
    """The statements made ready for comparison, each once and only if it is looked at."""

    def __init__(self, signals: Signals, statements: Sequence[Statement]) -> None:
        self._signals = signals
        self._statements = statements
        self._full: dict[int, Prepared] = {}

    def contrast(self, first: int, second: int) -> Contrast | None:
        return contrast(self._whole(first), self._whole(second))

    def score(self, pair: _Pair, there: Probabilities, back: Probabilities) -> float:
        """The probability of a contradiction: the lower one of the two ways to read the pair."""
        combined = [
            self._signals.combine(self._whole(pair.first), self._claim(pair.second), there).probabilities,
            self._signals.combine(self._whole(pair.second), self._claim(pair.first), back).probabilities,
        ]
        score = min(one.contradicted for one in combined)
        return max(score, _DEFINITE) if pair.contrast.definite else score

    def _whole(self, at: int) -> Prepared:
        if (prepared := self._full.get(at)) is None:
            prepared = self._full[at] = self._signals.prepare(self._statements[at].full)
        return prepared

    def _claim(self, at: int) -> Prepared:
        return self._signals.prepare(self._statements[at].text, self._statements[at].context)


def _pairs(
    statements: Sequence[Statement], texts: _Texts, comparable: Callable[[Statement, Statement], bool]
) -> list[_Pair]:
    """The pairs to judge: those that surely contradict each other first, then those most alike."""
    # The nearest one of every statement before the second nearest of any: a text full of statements of one form has
    # more pairs of them than can be looked at.
    ranked = (
        (rank, -alike, first, second)
        for second, partners in _partners(statements, comparable)
        for rank, (alike, first) in enumerate(nlargest(_NEAREST, partners))
    )
    pairs = [
        _Pair(first, second, -unlike, found)
        for _, unlike, first, second in nsmallest(_MOST_ALIKE, ranked)
        if (found := texts.contrast(first, second)) is not None
    ]
    return sorted(pairs, key=lambda pair: (not pair.contrast.definite, -pair.alike, pair.first, pair.second))


def _partners(
    statements: Sequence[Statement], comparable: Callable[[Statement, Statement], bool]
) -> Iterator[tuple[int, list[tuple[float, int]]]]:
    """For each statement, by place, those before it that are much like it: how much, and their places."""
    weights = [{term: substance(term) for term in terms(one.full) if not term.isdecimal()} for one in statements]
    totals = [sum(words.values()) for words in weights]
    having: dict[str, list[int]] = defaultdict(list)
    for second, words in enumerate(weights):
        shared: dict[int, float] = defaultdict(float)
        for term, weight in words.items():
            for first in having[term]:
                shared[first] += weight
            having[term].append(second)
        found = []
        for first, weight in shared.items():
            alike = weight / (max(totals[first], totals[second]) or 1.0)
            one, other = statements[first], statements[second]
            if alike >= _LEAST_ALIKE and _of_one_thing(one, other) and comparable(one, other):
                found.append((alike, first))
        yield second, found


def _of_one_thing(one: Statement, other: Statement) -> bool:
    """Whether nothing round the two says that they are of different things, and they don't say the same."""
    parted = one.where != other.where and bool(one.where and other.where)
    return one.text != other.text and one.voice == other.voice and not parted
