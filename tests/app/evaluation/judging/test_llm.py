"""Evaluation with an LLM: alone, after the cross-encoder, without a key; and what it would cost."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.evaluation.cases.case import Case, Scoring
from app.evaluation.judging.case_judge import CaseJudge, JudgeKind
from app.evaluation.judging.evaluator import Evaluator, open_evaluator
from app.evaluation.judging.verdict_cache import VerdictCache
from app.evaluation.runs.cost_estimate import ANSWER_TOKENS, SAMPLED, estimate_run
from app.judge_runtime.offline import JudgeMissingError
from app.settings import Settings, SettingsError
from judges.llm import Endpoint, LlmJudge, PriceTable
from judges.llm.openai_chat_model import LlmCompletion
from judges.llm.prices import Price
from judges.llm.prompts import Prompt
from judges.protocols import JudgeError
from judges.types import Label
from tests.support.evaluation_cases import FALSE, TRUE, UNKNOWN, case, evaluator, scripted

pytestmark = pytest.mark.anyio

PRICES = PriceTable({"gpt-test": Price(input=2.0, output=10.0)})


class Keys:
    def __init__(self, key: str | None = "sk") -> None:
        self._key = key

    def key(self, name: str) -> str | None:
        return self._key


class Chat:
    """A model that gives every claim the same verdict, or fails; ``asked`` holds its prompts."""

    def __init__(self, verdict: str = "supported", error: JudgeError | None = None) -> None:
        self._answer: Mapping[str, Any] = {
            "reasoning": "The first source says so.",
            "verdict": verdict,
            "confidence": 0.9,
            "sources": [1],
            "correction": None,
        }
        self._error = error
        self.asked: list[Prompt] = []

    async def complete(self, endpoint: Endpoint, key: str | None, model: str, prompt: Prompt) -> LlmCompletion:
        self.asked.append(prompt)
        if self._error is not None:
            raise self._error
        return LlmCompletion(text=json.dumps(self._answer), prompt_tokens=400, completion_tokens=20)

    async def start(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def asking(kind: JudgeKind, chat: Chat, *, key: str | None = "sk", cache: Path | None = None) -> Evaluator:
    judge = CaseJudge(
        kind,
        scorer=scripted() if kind.reads_pairs else None,
        llm=LlmJudge(keys=Keys(key), model="gpt-test", prices=PRICES, chat=chat),
        fingerprint="test",
    )
    return Evaluator(judge, None if cache is None else VerdictCache(cache))


async def test_the_llm_alone_judges_every_claim_and_its_cost_is_counted() -> None:
    chat = Chat()
    async with asking(JudgeKind.LLM, chat) as by:
        result = await by.evaluate(case(1, f"{TRUE} {UNKNOWN}", scoring=Scoring(include_reasoning=True)))
    assert (len(chat.asked), result.score) == (2, 1.0)
    assert [claim.explanation for claim in result.claims] == ["The first source says so."] * 2
    assert (result.cost.input_tokens, result.cost.output_tokens) == (800, 40)
    assert result.cost.usd == pytest.approx((800 * 2.0 + 40 * 10.0) / 1e6)


async def test_in_a_cascade_the_llm_judges_the_undecided_claims(tmp_path: Path) -> None:
    chat = Chat()
    async with asking(JudgeKind.CASCADE, chat, cache=tmp_path / "cache") as by:
        result = await by.evaluate(case(1, f"{TRUE} {FALSE} {UNKNOWN}"))
        again = await by.evaluate(case(2, f"{TRUE} {FALSE} {UNKNOWN}"))
    assert len(chat.asked) == 1
    assert UNKNOWN in chat.asked[0].user
    assert [claim.label for claim in result.claims] == [Label.SUPPORTED, Label.CONTRADICTED, Label.SUPPORTED]
    assert [claim.escalated for claim in result.claims] == [False, False, True]
    assert (again.cached, again.judged) == (True, result.judged)


async def test_a_failed_call_fails_the_case_and_is_not_cached(tmp_path: Path) -> None:
    """The cross-encoder's verdict stands, but it is not that of the cascade."""
    cache = tmp_path / "cache"
    async with asking(JudgeKind.CASCADE, Chat(error=JudgeError("down")), cache=cache) as by:
        result = await by.evaluate(case(1, UNKNOWN))
    assert (result.score, result.error) == (None, "1 of 1 calls to the LLM failed: error")
    async with asking(JudgeKind.CASCADE, Chat(), cache=cache) as by:
        assert (await by.evaluate(case(1, UNKNOWN))).score == 1.0


async def test_without_a_key_the_run_does_not_start() -> None:
    with pytest.raises(JudgeMissingError, match="no key is configured for openai"):
        async with asking(JudgeKind.LLM, Chat(), key=None):
            pass


def test_without_a_model_an_llm_judge_is_refused() -> None:
    with pytest.raises(SettingsError, match="GROUNDLANE_LLM_JUDGE_MODEL: not set; the judge 'cascade' needs it"):
        open_evaluator(Settings(_env_file=None), judge="cascade")
    with pytest.raises(SettingsError, match="GROUNDLANE_JUDGE: 'none' cannot be used with the judge"):
        open_evaluator(Settings(_env_file=None, judge="none"))


async def test_an_estimate_calls_no_llm_and_is_close_to_the_run() -> None:
    cases = [case(number, f"{TRUE} {FALSE} {UNKNOWN}") for number in range(2 * SAMPLED)]
    chat = Chat()
    by = asking(JudgeKind.CASCADE, chat, key=None)
    await by.judge.start(ask_llm=False)
    found = await estimate_run(by, lambda: cases, model="gpt-test", prices=PRICES)
    await by.aclose()
    assert chat.asked == []
    assert (found.cases, found.judged, found.sampled) == (2 * SAMPLED, 2 * SAMPLED, SAMPLED)
    assert (found.claims, found.calls) == (6 * SAMPLED, 2 * SAMPLED)
    async with asking(JudgeKind.CASCADE, chat) as by:
        await by.evaluate(cases[0])
    (prompt,) = chat.asked
    characters = len(prompt.system) + len(prompt.user)
    assert found.input_tokens / found.calls == pytest.approx(characters / 3.5, rel=0.1)
    assert found.usd == pytest.approx((found.input_tokens * 2.0 + found.calls * ANSWER_TOKENS * 10.0) / 1e6)


async def test_an_estimate_of_the_cross_encoder_costs_nothing_and_uses_the_cache(tmp_path: Path) -> None:
    cases: list[Case] = [case(1), case(2, f"{TRUE} {FALSE}"), Case(case_id="c", output=TRUE)]
    async with evaluator(cache=tmp_path / "cache") as by:
        await by.evaluate(cases[0])
        found = await estimate_run(by, lambda: cases, model=None, prices=PRICES)
    assert (found.usd, found.calls, found.claims) == (0.0, 0, 2)
    assert (found.cases, found.cached, found.skipped, found.judged) == (3, 1, 1, 1)
    assert found.seconds is not None


async def test_a_model_without_a_price_has_no_cost() -> None:
    async with asking(JudgeKind.LLM, Chat()) as by:
        found = await estimate_run(by, lambda: [case(1)], model="gpt-test", prices=PriceTable())
    assert (found.calls, found.usd, found.seconds) == (1, None, None)
