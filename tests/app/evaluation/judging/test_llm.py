"""Evaluation with an LLM: alone, after the cross-encoder, without a key; and the cost estimate."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.evaluation.cases.case import Case, Scoring, ScoringMode
from app.evaluation.cases.case_result import from_json, to_json
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
from tests.support.judging.evaluation_cases import FALSE, TRUE, UNKNOWN, case, evaluator, scripted

pytestmark = pytest.mark.anyio

PRICES = PriceTable({"gpt-test": Price(input=2.0, output=10.0)})


class Keys:
    def __init__(self, key: str | None = "sk") -> None:
        self._key = key

    def key(self, name: str) -> str | None:
        return self._key


class Chat:
    """A model that gives every claim the same verdict, or fails; ``asked`` holds its prompts. ``scores`` are those of
    the claims that it judges in one prompt."""

    def __init__(self, verdict: str = "supported", error: JudgeError | None = None, scores: Sequence[Any] = ()) -> None:
        self._scores = scores
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
        if prompt.name == "verdicts":
            count = prompt.user.count("<data-") - 1  # without the source
            scores = {"reasoning": "The first source says so.", "verdicts": list(self._scores) or [True] * count}
            return LlmCompletion(text=json.dumps(scores), prompt_tokens=400, completion_tokens=20)
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


async def test_llm_alone_judges_a_reply_in_one_prompt_and_counts_its_cost() -> None:
    chat = Chat(scores=[5, 3, 4])
    scoring = Scoring(mode=ScoringMode.SCALE, include_reasoning=True)
    async with asking(JudgeKind.LLM, chat) as by:
        result = await by.evaluate(case(1, f"{TRUE} {UNKNOWN} {FALSE}", scoring=scoring))
    (prompt,) = chat.asked
    assert all(text in prompt.user for text in (TRUE, UNKNOWN, FALSE))
    assert [claim.own_score for claim in result.claims] == [5, 3, 4]
    assert [claim.accepted for claim in result.claims] == [True, False, True]
    assert result.score == pytest.approx((1 + 0.5 + 0.75) / 3)
    assert result.judged is not None
    assert result.judged.reasoning == "The first source says so."
    assert (result.cost.input_tokens, result.cost.output_tokens) == (400, 20)
    assert result.cost.usd == pytest.approx((400 * 2.0 + 20 * 10.0) / 1e6)
    assert from_json(json.loads(orjson.dumps(to_json(result)))).judged == result.judged


@pytest.mark.parametrize("scores", [[True], [True, True, True], [True, 4], [True, "perhaps"], [None, None]])
async def test_scores_not_matching_the_claims_fail_the_case(scores: list[Any]) -> None:
    async with asking(JudgeKind.LLM, Chat(scores=scores)) as by:
        result = await by.evaluate(case(1, f"{TRUE} {UNKNOWN}"))
    assert (result.score, result.error) == (None, "1 of 1 LLM answers could not be parsed")
    assert result.cost.input_tokens == 400


async def test_reply_without_claims_is_not_sent() -> None:
    chat = Chat()
    async with asking(JudgeKind.LLM, chat) as by:
        result = await by.evaluate(case(1, "Hello!"))
    assert (chat.asked, result.skipped) == ([], "no_claims")


async def test_scores_of_an_llm_are_cached_by_scoring_mode(tmp_path: Path) -> None:
    """Each mode has a different prompt."""
    chat = Chat(scores=[1])
    async with asking(JudgeKind.LLM, chat, cache=tmp_path / "cache") as by:
        results = [
            await by.evaluate(case(1, scoring=Scoring(mode=mode)))
            for mode in (ScoringMode.BINARY, ScoringMode.SCALE, ScoringMode.SCALE)
        ]
    assert [result.score for result in results] == [1.0, 0.0, 0.0]
    assert (len(chat.asked), results[-1].cached) == (2, True)


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


class Garbage(Chat):
    async def complete(self, endpoint: Endpoint, key: str | None, model: str, prompt: Prompt) -> LlmCompletion:
        self.asked.append(prompt)
        return LlmCompletion(text="As an AI, I like turtles.", prompt_tokens=400, completion_tokens=8)


@pytest.mark.parametrize("kind", [JudgeKind.LLM, JudgeKind.CASCADE])
async def test_unreadable_answer_fails_the_case(tmp_path: Path, kind: JudgeKind) -> None:
    cache = tmp_path / "cache"
    async with asking(kind, Garbage(), cache=cache) as by:
        result = await by.evaluate(case(1, UNKNOWN))
    assert (result.score, result.error) == (None, "1 of 1 LLM answers could not be parsed")
    async with asking(kind, Chat(), cache=cache) as by:
        assert (await by.evaluate(case(1, UNKNOWN))).score == 1.0


async def test_failed_call_fails_the_case_and_is_not_cached(tmp_path: Path) -> None:
    """The cross-encoder's verdict is kept, but it isn't the cascade's."""
    cache = tmp_path / "cache"
    async with asking(JudgeKind.CASCADE, Chat(error=JudgeError("down")), cache=cache) as by:
        result = await by.evaluate(case(1, UNKNOWN))
    assert (result.score, result.error) == (None, "1 of 1 calls to the LLM failed: error")
    async with asking(JudgeKind.CASCADE, Chat(), cache=cache) as by:
        assert (await by.evaluate(case(1, UNKNOWN))).score == 1.0


async def test_run_does_not_start_without_a_key() -> None:
    with pytest.raises(JudgeMissingError, match="no API key is configured for openai"):
        async with asking(JudgeKind.LLM, Chat(), key=None):
            pass


def test_without_a_model_an_llm_judge_is_refused() -> None:
    with pytest.raises(SettingsError, match="GROUNDLANE_LLM_JUDGE_MODEL: must be set, because the judge 'cascade'"):
        open_evaluator(Settings(_env_file=None), judge="cascade")
    with pytest.raises(SettingsError, match="GROUNDLANE_JUDGE: can't be 'none', because the judge"):
        open_evaluator(Settings(_env_file=None, judge="none"))


async def test_estimate_calls_no_llm_and_is_close_to_the_run() -> None:
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


async def test_estimate_of_the_cross_encoder_costs_nothing_and_uses_the_cache(tmp_path: Path) -> None:
    cases: list[Case] = [case(1), case(2, f"{TRUE} {FALSE}"), Case(case_id="c", output=TRUE)]
    async with evaluator(cache=tmp_path / "cache") as by:
        await by.evaluate(cases[0])
        found = await estimate_run(by, lambda: cases, model=None, prices=PRICES)
    assert (found.usd, found.calls, found.claims) == (0.0, 0, 2)
    assert (found.cases, found.cached, found.skipped, found.judged) == (3, 1, 1, 1)
    assert found.seconds is not None


async def test_model_without_a_price_has_no_cost() -> None:
    async with asking(JudgeKind.LLM, Chat()) as by:
        found = await estimate_run(by, lambda: [case(1)], model="gpt-test", prices=PriceTable())
    assert (found.calls, found.usd, found.seconds) == (1, None, None)
