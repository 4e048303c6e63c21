"""Estimates the cost of a run without calling an LLM."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from time import monotonic
from typing import Final

from app.evaluation.cases.case import Case
from app.evaluation.cases.case_result import JudgedClaim
from app.evaluation.judging.case_judge import CaseJudge, JudgeKind
from app.evaluation.judging.evaluator import Evaluator
from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.llm_decomposition import is_complex
from judges.evidence.llm_passages import passages_for
from judges.llm import PriceTable
from judges.llm.context_window import estimate_tokens
from judges.llm.injection_fences import Fence
from judges.llm.prompts import Prompt, claim_prompt, decompose_prompt
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Claim, Label

SAMPLED: Final = 200
"""Number of cases whose claims are counted. They are spread over the input, and the other cases are assumed to be
similar."""
TRIED: Final = 20
"""Number of sampled cases that the cross-encoder judges, to measure its speed and the share of claims that it leaves
undecided."""
ANSWER_TOKENS: Final = 150
"""Assumed number of tokens per LLM answer."""
PARTS: Final = 3
"""Assumed number of claims into which an LLM decomposes one claim."""

_NONCE: Final = "0" * 32
_SOURCES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """The estimated cost of a run. ``judged`` is the number of cases that a run would judge. The other cases are
    ``skipped`` or ``cached``. ``claims``, ``calls`` and token counts are estimates. ``usd`` is None if the model's
    price is unknown. ``seconds`` is the time that the cross-encoder would take on this machine, or None if it is not
    used."""

    kind: JudgeKind
    judge: str
    cases: int
    skipped: int
    cached: int
    judged: int
    claims: int
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    seconds: float | None
    sampled: int


@dataclass(slots=True)
class _Counts:
    claims: int = 0
    calls: float = 0.0
    tokens: float = 0.0


async def estimate_run(
    evaluator: Evaluator, read: Callable[[], Iterable[Case]], *, model: str | None, prices: PriceTable
) -> RunEstimate:
    """Estimate the cost of judging the cases that ``read`` returns. Each call of ``read`` must return the same cases.
    ``model`` is the name of the LLM.

    The cross-encoder must be loaded. The LLM isn't called, so its key isn't needed. Raises CacheError and any error
    from ``read``.
    """
    judge = evaluator.judge
    total = skipped = cached = 0
    to_judge: list[int] = []
    for case in read():
        known = await evaluator.known(case, evaluator.key(case))
        if known is None:
            to_judge.append(total)
        elif known.cached:
            cached += 1
        else:
            skipped += 1
        total += 1
    step = max(1, ceil(len(to_judge) / SAMPLED))
    places = set(to_judge[::step])
    sample = [case for place, case in enumerate(read()) if place in places]
    open_share, per_claim = await _try(judge, sample[:TRIED])
    counts = _Counts()
    for case in sample:
        await _count(judge, case, counts, open_share)
    scale = len(to_judge) / len(sample) if sample else 0.0
    calls, tokens = round(counts.calls * scale), round(counts.tokens * scale)
    answers = calls * ANSWER_TOKENS
    claims = round(counts.claims * scale)
    return RunEstimate(
        kind=judge.kind,
        judge=judge.name,
        cases=total,
        skipped=skipped,
        cached=cached,
        judged=len(to_judge),
        claims=claims,
        calls=calls,
        input_tokens=tokens,
        output_tokens=answers,
        usd=0.0 if calls == 0 or model is None else prices.cost(model, tokens, answers),
        seconds=None if per_claim is None else per_claim * claims,
        sampled=len(sample),
    )


async def _try(judge: CaseJudge, cases: Sequence[Case]) -> tuple[float, float | None]:
    """Measure the share of claims that the LLM must judge, and the cross-encoder's time per claim in seconds."""
    if not judge.kind.reads_pairs:
        return 1.0, None
    began = monotonic()
    rulings = await asyncio.gather(*(judge.judge(case, llm=False) for case in cases))
    took = monotonic() - began
    claims = [claim for ruling in rulings for claim in ruling.judged.claims]
    if not claims:
        return 0.0, 0.0
    left = sum(_is_left(claim) for claim in claims) / len(claims) if judge.kind.asks_llm else 0.0
    return left, took / len(claims)


def _is_left(claim: JudgedClaim) -> bool:
    return claim.label is Label.UNVERIFIABLE


async def _count(judge: CaseJudge, case: Case, counts: _Counts, open_share: float) -> None:
    claims = await claims_of(case.output)
    counts.claims += len(claims)
    if not judge.kind.asks_llm or not claims:
        return
    if not judge.kind.reads_pairs:
        prompts = [call.prompt for call in await judge.claims_calls(case, claims)]
        counts.calls += len(prompts)
        counts.tokens += sum(map(_length, prompts))
        return
    index = await judge.checker.prepare(case.documents)
    fence = Fence(_NONCE)
    for claim in claims:
        passages = list(enumerate(passages_for(index, f"{claim.context} {claim.text}".strip(), _SOURCES), 1))
        asked = _length(claim_prompt(fence, claim.text, claim.context, passages))
        apart = is_complex(claim.text)
        verdicts = open_share * (PARTS if apart else 1)
        counts.calls += verdicts + apart
        counts.tokens += verdicts * asked
        if apart:
            counts.tokens += _length(decompose_prompt(fence, claim.text, claim.context))


async def claims_of(output: str) -> Sequence[Claim]:
    """Return the claims in an output before any LLM decomposition."""
    splitter, extractor = IncrementalSplitter(), HeuristicClaimExtractor()
    sentences = [*splitter.push(output), *splitter.flush()]
    found: list[Claim] = []
    for sentence in sentences:
        found.extend(await extractor.extract(sentence, sentences[: sentence.index]))
    return found


def _length(prompt: Prompt) -> int:
    return estimate_tokens(prompt.system) + estimate_tokens(prompt.user)
