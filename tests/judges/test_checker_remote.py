"""What the checker does with a judge that is served elsewhere, or that does not know every language."""

import asyncio

import pytest

from judges import checker as pipeline
from judges.checker import GroundingChecker
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.protocols import JudgeUnavailableError, JudgeUnreachableError
from judges.testing import ScriptedJudge, ScriptedLlm, entails
from judges.thresholds import Thresholds
from judges.types import Chunk, GroundingReport, Label, LlmVerdict

pytestmark = pytest.mark.anyio

GERMAN = "Die Kaution beträgt zwei Monatsmieten. Haustiere sind in der Wohnung nicht erlaubt."


class EnglishJudge(ScriptedJudge):
    languages = frozenset({"en"})


async def check(checker: GroundingChecker, text: str, *documents: str) -> GroundingReport:
    evidence = await checker.prepare([Chunk(id=f"d{n}", text=text) for n, text in enumerate(documents)])
    reply = checker.reply(evidence, thresholds=Thresholds())
    for sentence in [*reply.push(text), *reply.flush()]:
        await reply.check(sentence)
    return reply.report()


async def test_a_claim_in_a_language_that_the_judge_does_not_know_is_not_put_to_it() -> None:
    judge = EnglishJudge(lambda evidence, claim: entails())
    checker = GroundingChecker(CachingScorer(BatchingScorer(judge), max_bytes=10_000))
    report = await check(checker, "Pets are not allowed. Haustiere sind nicht erlaubt.", "Pets are not allowed.")
    await checker.aclose()
    assert [(claim.label, claim.reason) for claim in report.claims] == [
        (Label.SUPPORTED, None),
        (Label.UNVERIFIABLE, "language"),
    ]
    assert {claim for _, claim in judge.pairs} == {"Pets are not allowed."}


async def test_a_sentence_of_the_evidence_is_supported_in_any_language() -> None:
    checker = GroundingChecker(EnglishJudge())
    report = await check(checker, "Haustiere sind in der Wohnung nicht erlaubt.", GERMAN)
    assert [claim.label for claim in report.claims] == [Label.SUPPORTED]


async def test_the_languages_can_be_said_and_a_judge_that_says_none_knows_all() -> None:
    for judge, said in ((EnglishJudge(default=entails()), {"de", "en"}), (ScriptedJudge(default=entails()), None)):
        report = await check(GroundingChecker(judge, languages=said), "Hunde sind nicht erlaubt.", GERMAN)
        assert [claim.reason for claim in report.claims] == [None]
        assert judge.pairs


async def test_an_llm_is_asked_about_what_the_judge_cannot_read() -> None:
    llm = ScriptedLlm(default=LlmVerdict(label=Label.CONTRADICTED, confidence=0.9))
    checker = GroundingChecker(EnglishJudge(), llm=llm)
    report = await check(checker, "Haustiere sind in der Wohnung natürlich erlaubt.", GERMAN)
    assert [(claim.label, claim.escalated, claim.reason) for claim in report.claims] == [
        (Label.CONTRADICTED, True, None)
    ]


async def test_a_judge_that_did_not_answer_is_asked_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = ScriptedJudge(start_error=JudgeUnreachableError("cannot connect"))
    checker = GroundingChecker(judge)
    await checker.start()
    assert (checker.available, checker.error) == (False, "cannot connect")
    judge.start_error = None
    await checker.start()
    assert not checker.available, "not before the pause is over"
    judge.start_error = JudgeUnreachableError("cannot connect")
    monkeypatch.setattr(pipeline, "_RETRY_S", 0.0)
    other = GroundingChecker(judge)
    await other.start()
    judge.start_error = None
    await other.start()
    assert (other.available, other.error) == (True, None)


async def test_a_judge_of_no_use_is_not_asked_again() -> None:
    judge = ScriptedJudge(start_error=JudgeUnavailableError("no such folder"))
    checker = GroundingChecker(judge)
    await checker.start()
    judge.start_error = None
    await checker.start()
    assert (checker.available, checker.error) == (False, "no such folder")


async def test_nobody_waits_while_a_judge_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(ScriptedJudge):
        opened = asyncio.Event()
        starts = 0

        async def start(self) -> None:
            self.starts += 1
            if self.starts > 1:
                await self.opened.wait()
            raise JudgeUnreachableError("cannot connect")

    monkeypatch.setattr(pipeline, "_RETRY_S", 0.0)
    judge = Slow()
    checker = GroundingChecker(judge)
    await checker.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(checker.start())
        await asyncio.sleep(0)
        await checker.start()
        judge.opened.set()
    assert judge.starts == 2
