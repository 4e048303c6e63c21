"""How the checker handles a remote judge, or a judge that doesn't support every language."""

import asyncio

import pytest

from judges import checker as pipeline
from judges.checker import GroundingChecker
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.label_thresholds import Thresholds
from judges.llm_types import LlmVerdict
from judges.protocols import JudgeUnavailableError, JudgeUnreachableError
from judges.testing import ScriptedJudge, ScriptedLlm, entails
from judges.types import Chunk, GroundingReport, Label

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


async def test_claim_in_an_unknown_language_is_not_sent_to_the_judge() -> None:
    judge = EnglishJudge(lambda evidence, claim: entails())
    checker = GroundingChecker(CachingScorer(BatchingScorer(judge), max_bytes=10_000))
    report = await check(checker, "Pets are not allowed. Haustiere sind nicht erlaubt.", "Pets are not allowed.")
    await checker.aclose()
    assert [(claim.label, claim.reason) for claim in report.claims] == [
        (Label.SUPPORTED, None),
        (Label.UNVERIFIABLE, "language"),
    ]
    assert {claim for _, claim in judge.pairs} == {"Pets are not allowed."}


async def test_sentence_of_the_evidence_is_supported_in_any_language() -> None:
    checker = GroundingChecker(EnglishJudge())
    report = await check(checker, "Haustiere sind in der Wohnung nicht erlaubt.", GERMAN)
    assert [claim.label for claim in report.claims] == [Label.SUPPORTED]


async def test_languages_can_be_configured_and_default_to_all() -> None:
    for judge, said in ((EnglishJudge(default=entails()), {"de", "en"}), (ScriptedJudge(default=entails()), None)):
        report = await check(GroundingChecker(judge, languages=said), "Hunde sind nicht erlaubt.", GERMAN)
        assert [claim.reason for claim in report.claims] == [None]
        assert judge.pairs


async def test_llm_judges_languages_unknown_to_the_judge() -> None:
    llm = ScriptedLlm(default=LlmVerdict(label=Label.CONTRADICTED, confidence=0.9))
    checker = GroundingChecker(EnglishJudge(), llm=llm)
    report = await check(checker, "Haustiere sind in der Wohnung natürlich erlaubt.", GERMAN)
    assert [(claim.label, claim.escalated, claim.reason) for claim in report.claims] == [
        (Label.CONTRADICTED, True, None)
    ]


async def test_unavailable_judge_is_retried_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_unusable_judge_is_not_retried() -> None:
    judge = ScriptedJudge(start_error=JudgeUnavailableError("no such folder"))
    checker = GroundingChecker(judge)
    await checker.start()
    judge.start_error = None
    await checker.start()
    assert (checker.available, checker.error) == (False, "no such folder")


async def test_requests_do_not_wait_for_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_retry_runs_in_the_background_and_ends_with_the_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(ScriptedJudge):
        starts = 0
        cancelled = False

        async def start(self) -> None:
            self.starts += 1
            if self.starts == 1:
                raise JudgeUnreachableError("cannot connect")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise

    judge = Slow()
    checker = GroundingChecker(judge)
    checker.retry()
    assert judge.starts == 0, "nothing has failed yet"
    await checker.start()
    checker.retry()
    await asyncio.sleep(0)
    assert judge.starts == 1, "not before the pause is over"
    monkeypatch.setattr(pipeline, "_RETRY_S", 0.0)
    judge.starts = 0
    checker = GroundingChecker(judge)
    await checker.start()
    for _ in range(3):
        checker.retry()
        await asyncio.sleep(0)
    assert judge.starts == 2
    await checker.aclose()
    assert judge.cancelled
