"""Claims against passages: one call, or several where the passages do not fit one."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from judges.llm.batch_merging import gather, merge_opinions
from judges.llm.context_window import batches, ends_first, estimate_tokens
from judges.llm.injection_fences import Fence
from judges.llm.llm_call import Caller, Observe
from judges.llm.prompts import claim_prompt
from judges.llm.response_parsing import read_opinion
from judges.types import Evidence, Label, Opinion

UNREADABLE = Opinion(label=Label.UNVERIFIABLE, confidence=0.5, readable=False)

Numbered = tuple[int, Evidence]


class ClaimReader:
    def __init__(self, caller: Caller, fence: Callable[[], Fence], *, budget: int) -> None:
        self._caller = caller
        self._fence = fence
        self._budget = budget

    async def judge(
        self, model: str, claim: str, context: str, passages: Sequence[Evidence], record: Observe
    ) -> Opinion:
        room = max(self._budget // 4, self._budget - estimate_tokens(claim) - estimate_tokens(context))
        numbered = list(enumerate(passages, 1))
        groups = batches(numbered, room, _tokens) or [[]]
        opinions = await gather([self._ask(model, claim, context, group, record) for group in groups])
        return merge_opinions(opinions)

    async def _ask(self, model: str, claim: str, context: str, group: Sequence[Numbered], record: Observe) -> Opinion:
        shown = [(place, passage) for place, (_, passage) in enumerate(group, 1)]
        prompt = claim_prompt(self._fence(), claim, context, ends_first(shown))

        def read(text: str) -> Opinion | None:
            opinion = read_opinion(text, sources=len(group))
            if opinion is None:
                return None
            return replace(opinion, passages=tuple(group[place][0] - 1 for place in opinion.passages))

        return await self._caller.ask("claim", model, prompt, read, record) or UNREADABLE


def _tokens(numbered: Numbered) -> int:
    return estimate_tokens(numbered[1].text)
