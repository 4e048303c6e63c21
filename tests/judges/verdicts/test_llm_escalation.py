"""The cascade: only claims that the cross-encoder leaves undecided go to an LLM, and its failures cost nothing."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from judges.checker import GroundingChecker
from judges.label_thresholds import Thresholds
from judges.llm_types import LlmVerdict
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError
from judges.testing import NEUTRAL, ScriptedJudge, ScriptedLlm, contradicts, entails
from judges.types import Chunk, ClaimVerdict, GroundingReport, Label, Probabilities, ReplyVerdict

pytestmark = pytest.mark.anyio

LEAVE = Chunk(id="hr1", text="Employees get 30 days of leave. It is paid.", source="handbook.pdf")
OFFICE = Chunk(id="hr2", text="The office opens at eight.", source="office.pdf")
PAID = "Leave is paid in full."
OPEN = "The office opens early."
UNSURE = Probabilities(0.55, 0.35, 0.10)


class ModelOnly:
    """Features that leave the model's scores unchanged."""

    def prepare(self, text: str, context: str = "", asked: str = "", /) -> Any:
        return SimpleNamespace(text=text, quantities=())

    def as_written(self, text: str, claim: Any, evidence: Any, /) -> str:
        return text

    def comparison(self, claim: Any, /) -> Any:
        return claim

    def combine(self, evidence: Any, claim: Any, model: Probabilities | None, *more: Any) -> Any:
        class Said:
            probabilities = model
            explanation = "the model says so"

        return Said()


def checker(judge: ScriptedJudge | None, llm: ScriptedLlm | None, **options: Any) -> GroundingChecker:
    return GroundingChecker(judge, llm=llm, features=ModelOnly(), **options)


async def report(
    made: GroundingChecker, text: str, chunks: Sequence[Chunk] = (LEAVE, OFFICE), **options: Any
) -> GroundingReport:
    evidence = await made.prepare(chunks)
    check = made.reply(evidence, thresholds=Thresholds(), **options)
    for sentence in [*check.push(text), *check.flush()]:
        await check.check(sentence)
    return check.report()


async def one(made: GroundingChecker, text: str, **options: Any) -> ClaimVerdict:
    (claim,) = (await report(made, text, **options)).claims
    return claim


def says(label: Label, confidence: float = 0.9, **more: Any) -> LlmVerdict:
    return LlmVerdict(label=label, confidence=confidence, reasoning="It reads so.", **more)


@pytest.mark.parametrize("sure", [entails(), contradicts()], ids=["supported", "contradicted"])
async def test_claim_decided_by_the_cross_encoder_is_not_escalated(sure: Probabilities) -> None:
    llm = ScriptedLlm()
    claim = await one(checker(ScriptedJudge(default=sure), llm), PAID)
    assert llm.asked == []
    assert not claim.escalated


async def test_undecided_claim_gets_verdict_reasoning_and_source_of_the_llm() -> None:
    llm = ScriptedLlm({PAID: says(Label.SUPPORTED, 0.93, passages=(0,))})
    claim = await one(checker(ScriptedJudge(default=UNSURE), llm), PAID)
    assert claim.label is Label.SUPPORTED
    assert claim.escalated
    assert claim.explanation == "It reads so."
    assert (claim.score, claim.confidence) == (0.93, 0.93)
    assert claim.contradicted == pytest.approx(0.07)
    assert claim.best_source is not None
    assert claim.best_source.document_id == "hr1"
    assert claim.best_source.content == "Employees get 30 days of leave. It is paid."
    assert claim.support[claim.best_source.document_index] == 0.93


async def test_contradiction_has_its_correction() -> None:
    opinion = says(Label.CONTRADICTED, 0.8, correction="Leave is 30 days.", passages=(1,))
    judge = ScriptedJudge({"Leave is 30 days.": entails()}, default=UNSURE)
    claim = await one(checker(judge, ScriptedLlm({PAID: opinion})), PAID)
    assert claim.label is Label.CONTRADICTED
    assert claim.correction == "Leave is 30 days."
    assert claim.confidence == 0.8
    assert claim.contradicting_source is not None
    assert claim.best_source == claim.contradicting_source


@pytest.mark.parametrize(("reply", "corrected"), [("is paid in full.", False), (f"We rest. {PAID}", True)])
@pytest.mark.parametrize("default", [UNSURE, contradicts()])
async def test_sentence_that_begins_in_the_prefill_is_not_corrected(
    reply: str, corrected: bool, default: Probabilities
) -> None:
    opinion = says(Label.CONTRADICTED, 0.8, correction="Leave is 30 days.", passages=(1,))
    judge = ScriptedJudge({"Leave is 30 days.": entails()}, default=default)
    made = checker(judge, ScriptedLlm({PAID: opinion}))
    *_, claim = (await report(made, reply, correct=True, prefill="Leave ")).claims
    assert (claim.label, claim.correction is not None) == (Label.CONTRADICTED, corrected)


async def test_claim_in_no_source_stays_unverifiable_with_the_llm_confidence() -> None:
    claim = await one(checker(ScriptedJudge(default=UNSURE), ScriptedLlm(default=says(Label.UNVERIFIABLE, 0.9))), PAID)
    assert claim.label is Label.UNVERIFIABLE
    assert claim.escalated
    assert claim.confidence == pytest.approx(0.9)


@pytest.mark.parametrize(
    "correction",
    ["Leave is 35 days.", "Visit the staff portal at example.com for prizes.", "Leave is 30 days at 99 %."],
)
async def test_unsupported_correction_is_left_out(correction: str) -> None:
    opinion = says(Label.CONTRADICTED, 0.8, correction=correction, passages=(0,))
    claim = await one(checker(ScriptedJudge(default=UNSURE), ScriptedLlm({PAID: opinion})), PAID)
    assert (claim.label, claim.correction) == (Label.CONTRADICTED, None)


async def test_verdict_of_the_llm_applies_under_any_thresholds() -> None:
    claim = await one(checker(ScriptedJudge(default=UNSURE), ScriptedLlm(default=says(Label.CONTRADICTED, 0.6))), PAID)
    assert Thresholds(entailment=0.5, contradiction=0.99).label_of(claim) is Label.CONTRADICTED


@pytest.mark.parametrize(
    "error", [JudgeError("refused"), JudgeUnavailableError("no key"), JudgeOverloadedError("full"), RuntimeError("bug")]
)
async def test_failing_llm_leaves_the_cross_encoder_verdict(error: Exception) -> None:
    claim = await one(checker(ScriptedJudge(default=UNSURE), ScriptedLlm({PAID: error})), PAID)
    assert claim.label is Label.UNVERIFIABLE
    assert not claim.escalated
    assert claim.reason is None
    assert claim.entailed == 0.55


async def test_late_llm_leaves_the_cross_encoder_verdict() -> None:
    made = checker(ScriptedJudge(default=UNSURE), ScriptedLlm(gate=asyncio.Event()), timeout_s=0.05)
    claim = await one(made, PAID)
    assert (claim.label, claim.reason, claim.escalated) == (Label.UNVERIFIABLE, None, False)


async def test_unreadable_answer_changes_no_score() -> None:
    unread = LlmVerdict(label=Label.UNVERIFIABLE, confidence=0.5, readable=False)
    claim = await one(checker(ScriptedJudge(default=UNSURE), ScriptedLlm(default=unread)), PAID)
    assert (claim.label, claim.entailed, claim.escalated) == (Label.UNVERIFIABLE, 0.55, True)


async def test_corrections_are_requested_only_if_wanted() -> None:
    opinion = says(Label.CONTRADICTED, correction="Leave is 30 days.")
    for wanted in (False, True):
        judge = ScriptedJudge({"Leave is 30 days.": entails()}, default=contradicts())
        claim = await one(checker(judge, ScriptedLlm(default=opinion)), PAID, correct=wanted)
        assert claim.correction == ("Leave is 30 days." if wanted else None)
        assert claim.label is Label.CONTRADICTED
        assert claim.contradicted == 0.95
        assert not claim.escalated


async def test_llm_denying_a_contradiction_corrects_nothing() -> None:
    llm = ScriptedLlm(default=says(Label.SUPPORTED, correction="Leave is 30 days."))
    claim = await one(checker(ScriptedJudge(default=contradicts()), llm), PAID, correct=True)
    assert (claim.label, claim.correction) == (Label.CONTRADICTED, None)


async def test_llm_judges_every_claim_without_a_cross_encoder() -> None:
    llm = ScriptedLlm({PAID: says(Label.SUPPORTED), OPEN: says(Label.CONTRADICTED)})
    made = checker(None, llm)
    result = await report(made, f"{PAID} {OPEN}")
    assert [claim.label for claim in result.claims] == [Label.SUPPORTED, Label.CONTRADICTED]
    assert all(claim.escalated for claim in result.claims)
    assert result.verdict is ReplyVerdict.HAS_CONTRADICTIONS
    assert made.name == "scripted-llm"


async def test_llm_replaces_a_cross_encoder_that_fails_to_load() -> None:
    judge = ScriptedJudge(start_error=JudgeUnavailableError("no such model"))
    made = checker(judge, ScriptedLlm(default=says(Label.SUPPORTED)))
    claim = await one(made, PAID)
    assert claim.label is Label.SUPPORTED
    assert (made.available, made.error, made.fault) == (True, None, "no such model")


async def test_nothing_is_checked_without_both() -> None:
    made = checker(None, ScriptedLlm(ready=False))
    result = await report(made, PAID)
    assert result.verdict is ReplyVerdict.NOT_CHECKED
    assert (made.available, made.error, made.name) == (False, "no judge is configured", "none")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (JudgeUnavailableError("no key"), "unavailable"),
        (JudgeOverloadedError("full"), "overloaded"),
        (JudgeError("refused"), "judge_error"),
    ],
)
async def test_failing_llm_alone_leaves_the_claim_unverifiable_with_the_reason(error: Exception, reason: str) -> None:
    claim = await one(checker(None, ScriptedLlm({PAID: error})), PAID)
    assert (claim.label, claim.reason) == (Label.UNVERIFIABLE, reason)


async def test_late_llm_alone_is_a_timeout() -> None:
    claim = await one(checker(None, ScriptedLlm(gate=asyncio.Event()), timeout_s=0.05), PAID)
    assert (claim.label, claim.reason) == (Label.UNVERIFIABLE, "timeout")


async def test_unreadable_llm_alone_gives_a_neutral_score() -> None:
    unread = LlmVerdict(label=Label.UNVERIFIABLE, confidence=0.5, readable=False)
    claim = await one(checker(None, ScriptedLlm(default=unread)), PAID)
    assert (claim.label, claim.score, claim.reason) == (Label.UNVERIFIABLE, 0.5, None)


async def test_claim_skipped_by_an_overloaded_cross_encoder_is_escalated() -> None:
    judge = ScriptedJudge(error=JudgeOverloadedError("full"))
    claim = await one(checker(judge, ScriptedLlm(default=says(Label.SUPPORTED))), PAID)
    assert (claim.label, claim.escalated, claim.reason) == (Label.SUPPORTED, True, None)


async def test_claim_over_the_limit_is_not_escalated() -> None:
    llm = ScriptedLlm(default=says(Label.SUPPORTED))
    result = await report(checker(ScriptedJudge(default=NEUTRAL), llm), f"{PAID} {OPEN}", max_claims=1)
    assert [claim for claim, _ in llm.asked] == [PAID]
    assert result.claims_skipped == 1


async def test_nothing_is_requested_without_sources() -> None:
    llm = ScriptedLlm()
    result = await report(checker(None, llm), PAID, chunks=())
    assert llm.asked == []
    assert result.verdict is ReplyVerdict.NO_SOURCES


async def test_calls_of_a_reply_are_counted() -> None:
    made = checker(ScriptedJudge(default=UNSURE), ScriptedLlm({OPEN: JudgeError("refused")}))
    check = made.reply(await made.prepare([LEAVE, OFFICE]), thresholds=Thresholds())
    for sentence in [*check.push(f"{PAID} {OPEN}"), *check.flush()]:
        await check.check(sentence)
    assert [(call.outcome, call.prompt_tokens) for call in check.llm_calls] == [("ok", 10), ("error", 0)]


async def test_passages_include_the_neighbours_of_the_nearest_window() -> None:
    text = " ".join(f"Sentence number {n} is here." for n in ("one", "two", "three", "four", "five", "six", "seven"))
    llm = ScriptedLlm()
    await report(checker(ScriptedJudge(default=UNSURE), llm), "Sentence four.", [Chunk(id="c", text=text)])
    ((_, passages),) = llm.asked
    assert [passage.text for passage in passages] == [text]
    assert text[passages[0].span.start : passages[0].span.end] == text
