"""Judges one claim against passages, or all claims of a reply at once. This takes one LLM call, or several if the text
doesn't fit into one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from judges.llm.batch_merging import gather, merge_verdicts
from judges.llm.context_window import batches, best_at_ends, estimate_tokens, split_sources, whole_sources
from judges.llm.injection_fences import Fence
from judges.llm.llm_client import LlmClient, Observe
from judges.llm.prompts import Prompt, claim_prompt, claims_prompt
from judges.llm.response_parsing import read_claim_verdict, read_raw_scores
from judges.llm.scoring_modes import CLAIM_SCALES, LlmScoringMode
from judges.llm_types import LlmVerdict
from judges.protocols import JudgeOverloadedError
from judges.types import Chunk, Claim, Evidence, Label

UNREADABLE = LlmVerdict(label=Label.UNVERIFIABLE, confidence=0.5, readable=False)

Numbered = tuple[int, Evidence]

MAX_CALLS = 64
"""Maximum number of LLM calls. Claims that would need more are not scored."""
_CLAIMS_SHARE = 0.25
"""Share of a call's tokens reserved for claims when more than one call is needed."""


class ClaimVerifier:
    """Asks an LLM for verdicts on claims. ``budget`` is the maximum number of tokens of text per call."""

    def __init__(self, client: LlmClient, fence: Callable[[], Fence], *, budget: int) -> None:
        self._client = client
        self._fence = fence
        self._budget = budget

    async def judge(
        self, model: str, claim: str, context: str, passages: Sequence[Evidence], record: Observe
    ) -> LlmVerdict:
        """Judge ``claim`` with ``model``; see ``LlmJudge.judge``."""
        room = max(self._budget // 4, self._budget - estimate_tokens(claim) - estimate_tokens(context))
        numbered = list(enumerate(passages, 1))
        groups = batches(numbered, room, _tokens) or [[]]
        verdicts = await gather([self._ask(model, claim, context, group, record) for group in groups])
        return merge_verdicts(verdicts)

    async def _ask(
        self, model: str, claim: str, context: str, group: Sequence[Numbered], record: Observe
    ) -> LlmVerdict:
        shown = [(place, passage) for place, (_, passage) in enumerate(group, 1)]
        prompt = claim_prompt(self._fence(), claim, context, best_at_ends(shown))

        def read(text: str) -> LlmVerdict | None:
            verdict = read_claim_verdict(text, sources=len(group))
            if verdict is None:
                return None
            return replace(verdict, passages=tuple(group[place][0] - 1 for place in verdict.passages))

        return await self._client.ask("claim", model, prompt, read, record) or UNREADABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimScores:
    """The LLM's raw scores for the claims, in order, and its reasoning about all of them."""

    raw: tuple[int, ...]
    reasoning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsCall:
    """A prompt that scores claims, beginning with the one at position ``first``."""

    prompt: Prompt
    first: int
    count: int


class ClaimScorer:
    """Asks an LLM to score all claims of a reply against its sources. ``budget`` is the maximum number of tokens of
    text per call."""

    def __init__(self, client: LlmClient, fence: Callable[[], Fence], *, budget: int) -> None:
        self._client = client
        self._fence = fence
        self._budget = budget

    def calls(
        self, claims: Sequence[Claim], chunks: Sequence[Chunk], *, mode: LlmScoringMode, reasoning: bool
    ) -> list[ClaimsCall]:
        """Build the calls: a single call if everything fits, otherwise one for each combination of a part of the claims
        and a part of the sources.

        Raises JudgeOverloadedError if there are more than ``MAX_CALLS``.
        """
        sources = whole_sources(chunks)
        groups, parts = [list(claims)], [sources]
        if sum(map(_claim_tokens, claims)) + sum(map(_source_tokens, sources)) > self._budget:
            for_claims = int(self._budget * _CLAIMS_SHARE)
            for_sources = self._budget - for_claims
            groups = batches(claims, for_claims, _claim_tokens)
            parts = batches(split_sources(chunks, for_sources), for_sources, _source_tokens)
        if len(groups) * len(parts) > MAX_CALLS:
            raise JudgeOverloadedError(
                f"the claims and their sources need {len(groups) * len(parts)} calls (limit {MAX_CALLS})"
            )
        made, first = [], 0
        for group in groups:
            for part in parts:
                shown = [(source.chunk_index + 1, source) for source in best_at_ends(part)]
                prompt = claims_prompt(self._fence(), group, shown, scale=CLAIM_SCALES[mode], reasoning=reasoning)
                made.append(ClaimsCall(prompt=prompt, first=first, count=len(group)))
            first += len(group)
        return made

    async def score(
        self, model: str, calls: Sequence[ClaimsCall], record: Observe, *, mode: LlmScoringMode
    ) -> ClaimScores | None:
        """Return the scores, or None if an answer cannot be parsed. If several calls score a claim, the highest score
        counts. Raises JudgeError or TimeoutError.
        """
        answers = await gather([self._ask(model, call, record, mode) for call in calls])
        best: dict[int, int] = {}
        told: list[str] = []
        for call, answer in zip(calls, answers, strict=True):
            if answer is None:
                return None
            scores, reasoning = answer
            for place, score in enumerate(scores, call.first):
                best[place] = max(score, best.get(place, score))
            told += [] if reasoning is None else [reasoning]
        return ClaimScores(raw=tuple(best[place] for place in sorted(best)), reasoning="\n".join(told) or None)

    async def _ask(
        self, model: str, call: ClaimsCall, record: Observe, mode: LlmScoringMode
    ) -> tuple[tuple[int, ...], str | None] | None:
        read = partial(read_raw_scores, count=call.count, values=CLAIM_SCALES[mode].values)
        return await self._client.ask("claims", model, call.prompt, read, record)


def _tokens(numbered: Numbered) -> int:
    return _source_tokens(numbered[1])


def _claim_tokens(claim: Claim) -> int:
    return estimate_tokens(claim.text) + estimate_tokens(claim.context)


def _source_tokens(source: Evidence) -> int:
    return estimate_tokens(source.text)
