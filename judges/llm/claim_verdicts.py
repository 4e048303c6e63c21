"""Judges a claim against passages, in one LLM call or, if they don't fit, in several."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from judges.llm.batch_merging import gather, merge_verdicts
from judges.llm.context_window import batches, best_at_ends, estimate_tokens
from judges.llm.injection_fences import Fence
from judges.llm.llm_client import LlmClient, Observe
from judges.llm.prompts import claim_prompt
from judges.llm.response_parsing import read_claim_verdict
from judges.types import Evidence, Label, LlmVerdict

UNREADABLE = LlmVerdict(label=Label.UNVERIFIABLE, confidence=0.5, readable=False)

Numbered = tuple[int, Evidence]


class ClaimVerifier:
    """Asks an LLM for verdicts on claims. ``budget`` is the maximum number of text tokens per call."""

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


def _tokens(numbered: Numbered) -> int:
    return estimate_tokens(numbered[1].text)
