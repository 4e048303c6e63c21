"""Finds statements that contradict each other within a reply, across the replies of a run, or between documents. Every
statement is compared with all similar ones, and the few pairs that seem to be about the same thing and differ in one
respect are judged in both directions. The cost is bounded for texts of any length: at most ``REPLY_STATEMENTS`` or
``DOCUMENT_STATEMENTS`` statements are read, and at most ``MAX_PAIRS`` pairs are judged."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Final

from judges.claims.statement_extraction import Statement, statements_of
from judges.features import FeatureExtractor, Prepared
from judges.label_thresholds import DEFINITE_INCONSISTENCY_SCORE, INCONSISTENCY_MIN_SCORE
from judges.protocols import ClaimExtractor, JudgeError, JudgeOverloadedError, PairScorer, SentenceSplitter
from judges.text.bm25 import substance, terms
from judges.types import Chunk, Claim, Consistency, Contradiction, LocatedStatement, Probabilities
from judges.verdicts.contradiction_candidates import ContradictionCandidate, contradiction_candidate

log = logging.getLogger(__name__)

REPLY_STATEMENTS: Final = 256
DOCUMENT_STATEMENTS: Final = 512
DOCUMENT_CHARS: Final = 200_000
"""Maximum number of characters read from all documents together. Each document is read from its beginning."""
MAX_PAIRS: Final = 24
_EARLIER, _REPLY = 0, 1
"""The origin of a statement: an earlier reply, or this one."""
_MAX_SIMILAR: Final = 512
"""Maximum number of pairs compared in detail before any is judged."""
_MAX_PARTNERS: Final = 8
"""Maximum number of pairs compared in detail that contain the same statement."""
_MIN_SIMILARITY: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Pair:
    first: int
    second: int
    similarity: float
    candidate: ContradictionCandidate


class ConsistencyChecker:
    """Compares statements with each other. Safe to use from many tasks at once."""

    def __init__(
        self,
        scorer: PairScorer,
        features: FeatureExtractor,
        extractor: ClaimExtractor,
        splitter: Callable[[], SentenceSplitter],
    ) -> None:
        self._scorer = scorer
        self._features = features
        self._extractor = extractor
        self._splitter = splitter

    async def reply(self, text: str, earlier: Sequence[Claim] = (), *, timeout_s: float) -> Consistency:
        """Find contradictions within ``text``, and between ``text`` and ``earlier`` (the claims in the run's earlier
        replies, in order). Failures of the judge are not raised; ``reason`` describes them."""
        return await _bounded(timeout_s, self._reply(text, earlier))

    async def documents(self, chunks: Sequence[Chunk], *, timeout_s: float) -> Consistency:
        """Find contradictions between documents. For each pair of documents, only the contradiction with the highest
        score is reported. Failures are reported as in ``reply``."""
        return await _bounded(timeout_s, self._documents(chunks))

    async def _reply(self, text: str, earlier: Sequence[Claim]) -> Consistency:
        current = await self._statements(text, _REPLY, REPLY_STATEMENTS)
        previous = [
            Statement(text=claim.text, span=claim.span, origin=_EARLIER, context=claim.context)
            for claim in earlier[max(0, len(earlier) + len(current) - REPLY_STATEMENTS) :]
        ]
        found, skipped = await self._compare(
            [*previous, *current], lambda one, other: _REPLY in (one.origin, other.origin)
        )
        return Consistency(
            contradictions=[
                Contradiction(first=_in_reply(first), second=_in_reply(second), score=score)
                for first, second, score in found
            ],
            skipped=skipped,
        )

    async def _documents(self, chunks: Sequence[Chunk]) -> Consistency:
        statements: list[Statement] = []
        for index, chunk in enumerate(chunks[:DOCUMENT_STATEMENTS]):
            text = chunk.text[: max(1, DOCUMENT_CHARS // len(chunks))]
            statements += await self._statements(text, index, max(1, DOCUMENT_STATEMENTS // len(chunks)))
        found, skipped = await self._compare(statements, lambda one, other: one.origin != other.origin)
        best: dict[tuple[int, int], Contradiction] = {}
        for first, second, score in found:
            contradiction = Contradiction(first=_in_document(first), second=_in_document(second), score=score)
            best.setdefault((first.origin, second.origin), contradiction)
        return Consistency(contradictions=tuple(best.values()), skipped=skipped)

    async def _statements(self, text: str, origin: int, limit: int) -> Sequence[Statement]:
        return await statements_of(text, self._extractor, self._splitter, origin=origin, limit=limit)

    async def _compare(
        self, statements: Sequence[Statement], comparable: Callable[[Statement, Statement], bool]
    ) -> tuple[list[tuple[Statement, Statement, float]], int]:
        """Return the pairs that contradict each other, highest score first, and the number of pairs skipped."""
        prepared = _PreparedStatements(self._features, statements)
        pairs = await asyncio.to_thread(_pairs, statements, prepared, comparable)
        count, limit = self._scorer.count_tokens, self._scorer.max_tokens // 2
        fitting = [
            pair for pair in pairs if max(count(statements[at].full) for at in (pair.first, pair.second)) <= limit
        ]
        chosen = fitting[:MAX_PAIRS]
        both = [order for pair in chosen for order in ((pair.first, pair.second), (pair.second, pair.first))]
        scores = await self._scorer.score([(statements[a].full, statements[b].full) for a, b in both]) if both else ()
        scored = [
            (statements[pair.first], statements[pair.second], prepared.score(pair, forward, backward))
            for pair, forward, backward in zip(chosen, scores[::2], scores[1::2], strict=True)
        ]
        found = sorted((one for one in scored if one[2] >= INCONSISTENCY_MIN_SCORE), key=lambda one: -one[2])
        return found, len(pairs) - len(chosen)


async def _bounded(timeout_s: float, work: Awaitable[Consistency]) -> Consistency:
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        return Consistency(reason="timeout")
    except JudgeOverloadedError:
        return Consistency(reason="overloaded")
    except JudgeError as error:
        log.warning("cannot compare statements: %s", error)
        return Consistency(reason="judge_error")


def _in_reply(statement: Statement) -> LocatedStatement:
    return LocatedStatement(text=statement.text, span=statement.span, earlier=statement.origin == _EARLIER)


def _in_document(statement: Statement) -> LocatedStatement:
    return LocatedStatement(text=statement.text, span=statement.span, document_index=statement.origin)


class _PreparedStatements:
    """The parsed statements. Each is parsed when it is first compared."""

    def __init__(self, features: FeatureExtractor, statements: Sequence[Statement]) -> None:
        self._features = features
        self._statements = statements
        self._full: dict[int, Prepared] = {}

    def candidate(self, first: int, second: int) -> ContradictionCandidate | None:
        return contradiction_candidate(self._whole(first), self._whole(second))

    def score(self, pair: _Pair, forward: Probabilities, backward: Probabilities) -> float:
        """Return the probability of a contradiction, which is the lower of the probabilities in the two directions."""
        combined = [
            self._features.combine(self._whole(pair.first), self._claim(pair.second), forward).probabilities,
            self._features.combine(self._whole(pair.second), self._claim(pair.first), backward).probabilities,
        ]
        score = min(one.contradicted for one in combined)
        return max(score, DEFINITE_INCONSISTENCY_SCORE) if pair.candidate.definite else score

    def _whole(self, at: int) -> Prepared:
        if (prepared := self._full.get(at)) is None:
            prepared = self._full[at] = self._features.prepare(self._statements[at].full)
        return prepared

    def _claim(self, at: int) -> Prepared:
        return self._features.prepare(self._statements[at].text, self._statements[at].context)


def _pairs(
    statements: Sequence[Statement], prepared: _PreparedStatements, comparable: Callable[[Statement, Statement], bool]
) -> list[_Pair]:
    """Return the pairs to judge: definite contradictions first, then by similarity."""
    # A text full of similar statements has more pairs than can be compared, so every statement's nearest partner comes
    # first, then every statement's second nearest, and so on.
    ranked = (
        (rank, -similarity, first, second)
        for second, partners in _partners(statements, comparable)
        for rank, (similarity, first) in enumerate(nlargest(_MAX_PARTNERS, partners))
    )
    pairs = [
        _Pair(first, second, -negated, candidate)
        for _, negated, first, second in nsmallest(_MAX_SIMILAR, ranked)
        if (candidate := prepared.candidate(first, second)) is not None
    ]
    return sorted(pairs, key=lambda pair: (not pair.candidate.definite, -pair.similarity, pair.first, pair.second))


def _partners(
    statements: Sequence[Statement], comparable: Callable[[Statement, Statement], bool]
) -> Iterator[tuple[int, list[tuple[float, int]]]]:
    """Yield the position of each statement, with the similarity and position of each similar statement before it."""
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
            similarity = weight / (max(totals[first], totals[second]) or 1.0)
            one, other = statements[first], statements[second]
            if similarity >= _MIN_SIMILARITY and _same_subject(one, other) and comparable(one, other):
                found.append((similarity, first))
        yield second, found


def _same_subject(one: Statement, other: Statement) -> bool:
    """Return whether two statements with different texts can be about the same thing, judging by their context."""
    apart = one.section != other.section and bool(one.section and other.section)
    return one.text != other.text and one.attribution == other.attribution and not apart
