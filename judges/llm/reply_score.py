"""Scores a whole reply against its sources in one call. If they don't fit into one call, derives the score from
verdicts on the reply's statements."""

import asyncio
from collections.abc import Callable, Sequence

from judges.label_thresholds import UNREADABLE_SCORE
from judges.llm.batch_merging import gather, merge_labels
from judges.llm.context_window import batches, best_at_ends, estimate_tokens, split_sources, whole_sources
from judges.llm.injection_fences import Fence
from judges.llm.llm_client import LlmClient, Observe
from judges.llm.prompts import score_prompt, statements_prompt
from judges.llm.response_parsing import read_statement_verdicts
from judges.llm.scoring_modes import SCALES, LlmScoringMode
from judges.llm_types import ScoreRequest
from judges.protocols import JudgeOverloadedError
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Chunk, Evidence, Label

MAX_CALLS = 64
"""Maximum number of LLM calls. A reply that would need more is not scored."""

_STATEMENTS_SHARE = 0.25
"""Share of a call's tokens reserved for statements when more than one call is needed."""

Numbered = tuple[int, str]


class ReplyScorer:
    """Asks an LLM to score replies. ``budget`` is the maximum number of tokens of text per call."""

    def __init__(
        self,
        client: LlmClient,
        fence: Callable[[], Fence],
        *,
        budget: int,
        scoring_mode: LlmScoringMode,
        include_reasoning: bool,
    ) -> None:
        self._client = client
        self._fence = fence
        self._budget = budget
        self._scale = SCALES[scoring_mode]
        self._reasoning = include_reasoning

    async def score(
        self, request: ScoreRequest, reply: str, chunks: Sequence[Chunk], record: Observe
    ) -> tuple[float, str | None]:
        """Return the score of ``reply``, 0 to 1, and the reasoning. Raises JudgeError or TimeoutError."""
        self._client.check(request.model)
        sources = whole_sources(chunks)
        if estimate_tokens(reply) + sum(estimate_tokens(source.text) for source in sources) > self._budget:
            return await self._score_in_parts(request, reply, chunks, record)
        prompt = score_prompt(
            self._fence(),
            reply,
            _numbered(best_at_ends(sources)),
            scale=self._scale,
            criteria=request.criteria,
            reasoning=self._reasoning,
        )
        found = await self._client.ask("score", request.model, prompt, self._scale.read, record)
        return found or (UNREADABLE_SCORE, None)

    async def _score_in_parts(
        self, request: ScoreRequest, reply: str, chunks: Sequence[Chunk], record: Observe
    ) -> tuple[float, str | None]:
        """Return the share of statements that at least one batch of sources supports. Every statement is judged against
        every source."""
        for_statements = int(self._budget * _STATEMENTS_SHARE)
        for_sources = self._budget - for_statements
        statements = list(enumerate(await asyncio.to_thread(_statements, reply, for_statements), 1))
        sources = await asyncio.to_thread(split_sources, chunks, for_sources)
        groups = batches(statements, for_statements, lambda statement: estimate_tokens(statement[1]))
        parts = batches(sources, for_sources, lambda source: estimate_tokens(source.text))
        if len(groups) * len(parts) > MAX_CALLS:
            raise JudgeOverloadedError(
                f"the reply and its sources would take {len(groups) * len(parts)} calls (limit {MAX_CALLS})"
            )
        answers = await gather([self._verdicts(request, group, part, record) for group in groups for part in parts])
        found: dict[int, list[Label]] = {number: [] for number, _ in statements}
        for verdicts in answers:
            for number, label in verdicts:
                found[number].append(label)
        labels = [merge_labels(labels) for labels in found.values()]
        return _share(labels), f"{labels.count(Label.SUPPORTED)} of {_claims(labels)} statements supported"

    async def _verdicts(
        self, request: ScoreRequest, group: Sequence[Numbered], part: Sequence[Evidence], record: Observe
    ) -> list[tuple[int, Label]]:
        prompt = statements_prompt(self._fence(), group, _numbered(best_at_ends(part)), criteria=request.criteria)
        found = await self._client.ask("statements", request.model, prompt, read_statement_verdicts, record) or {}
        return [(number, found[number]) for number, _ in group if number in found]


def _share(labels: Sequence[Label | None]) -> float:
    """Return the mean score of all statements that make a claim. A statement scores 1 if it is supported, 0.5 if it has
    no readable verdict, and otherwise 0."""
    claims = _claims(labels)
    if not claims:
        return 1.0
    return (labels.count(Label.SUPPORTED) + UNREADABLE_SCORE * labels.count(None)) / claims


def _claims(labels: Sequence[Label | None]) -> int:
    return len(labels) - labels.count(Label.NOT_A_CLAIM)


def _statements(reply: str, limit: int) -> list[str]:
    """Split ``reply`` into sentences, and sentences longer than ``limit`` tokens into parts."""
    splitter = IncrementalSplitter(max_chars=max(200, 2 * limit))
    return [text for sentence in [*splitter.push(reply), *splitter.flush()] if (text := sentence.text.strip())]


def _numbered(sources: Sequence[Evidence]) -> list[tuple[int, Evidence]]:
    """Pair each source with its number in the reply's citation markers."""
    return [(source.chunk_index + 1, source) for source in sources]
