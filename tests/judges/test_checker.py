import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from judges.checker import GroundingChecker, ReplyCheck
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.label_thresholds import Thresholds
from judges.llm_types import LlmVerdict
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError
from judges.testing import NEUTRAL, ScriptedJudge, ScriptedLlm, contradicts, entails
from judges.types import (
    Chunk,
    Claim,
    Label,
    Probabilities,
    ReplyVerdict,
    Sentence,
    SentenceVerdict,
    Span,
    Windowing,
)

pytestmark = pytest.mark.anyio

LEAVE = Chunk(id="hr1", text="Employees get 30 days of leave.", source="handbook.pdf")
OFFICE = Chunk(id="hr2", text="The office opens at eight. It closes at six.", source="office.pdf")


class Text(str):
    """``text`` as ``ModelOnly`` prepares it."""

    quantities: Sequence[Any] = ()


class ModelOnly:
    """Features that leave the model's scores unchanged, and record their input."""

    def __init__(self) -> None:
        self.claims: set[str] = set()
        self.threads: set[str] = set()

    def prepare(self, text: str, context: str = "", asked: str = "", /) -> Any:
        return Text(f"{context} | {text}" if context else text)

    def as_written(self, text: str, claim: Any, evidence: Any, /) -> str:
        return text

    def comparison(self, claim: Any, /) -> Any:
        return claim

    def combine(self, evidence: Any, claim: Any, model: Probabilities | None, /) -> Any:
        self.claims.add(claim)
        self.threads.add(threading.current_thread().name)
        return SimpleNamespace(probabilities=model, explanation=f"read {evidence!r}")


@dataclass
class Clauses:
    """An extractor that treats each clause as a claim, ignores questions, and uses the previous sentence as context of
    a sentence that begins with ``It``."""

    error: Exception | None = None
    gate: asyncio.Event | None = None

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        if sentence.plain.endswith("?"):
            return []
        context = previous[-1].plain if previous and sentence.plain.startswith("It ") else ""
        return [
            Claim(text=text, span=sentence.span, sentence_index=sentence.index, context=context)
            for text in sentence.plain.split("; ")
        ]


def checker(judge: Any, **options: Any) -> GroundingChecker:
    defaults: dict[str, Any] = {"extractor": Clauses(), "features": ModelOnly()}
    return GroundingChecker(judge, **(defaults | options))


async def opened(judge: Any, *chunks: Chunk, made_with: dict[str, Any] | None = None, **options: Any) -> ReplyCheck:
    made = checker(judge, **(made_with or {}))
    evidence = await made.prepare(chunks or (LEAVE, OFFICE))
    return made.reply(evidence, **({"thresholds": Thresholds()} | options))


async def check_all(check: ReplyCheck, text: str) -> list[SentenceVerdict]:
    sentences = [*check.push(text), *check.flush()]
    return list(await asyncio.gather(*(check.check(sentence) for sentence in sentences)))


def labels(verdicts: Sequence[SentenceVerdict]) -> list[str]:
    return [verdict.label.value for verdict in verdicts]


# Verdicts and report


async def test_reply_is_judged_sentence_by_sentence_and_summed_up() -> None:
    judge = ScriptedJudge(
        {
            "Employees get 30 days of leave.": entails(0.9),
            "The office opens at nine.": contradicts(0.8),
        }
    )
    check = await opened(judge)
    verdicts = await check_all(
        check, "Employees get 30 days of leave. The office opens at nine. Lunch is free. Is that all?"
    )
    assert labels(verdicts) == ["supported", "contradicted", "unverifiable", "not_a_claim"]
    report = check.report()
    assert report.verdict is ReplyVerdict.HAS_CONTRADICTIONS
    assert report.trust_score == pytest.approx(1 / 3)
    assert (report.total_claims, report.supported_count) == (3, 1)
    assert (report.contradicted_count, report.unverifiable_count) == (1, 1)
    assert report.unverifiable_ratio == pytest.approx(1 / 3)
    assert report.summary == "1/3 claims supported"
    assert report.coverage == 1.0
    assert not report.is_trusted
    assert [verdict.sentence.index for verdict in report.sentences] == [0, 1, 2, 3]
    assert check.judge_ms > 0


async def test_deciding_source_is_reported_first() -> None:
    judge = ScriptedJudge(
        {
            (LEAVE.text, "Leave is 30 days."): entails(0.9),
            (OFFICE.text, "Leave is 30 days."): entails(0.2),
            (OFFICE.text, "The office opens at nine."): contradicts(0.8),
        }
    )
    check = await opened(judge)
    leave, office = await check_all(check, "Leave is 30 days. The office opens at nine.")
    (supported,) = leave.claims
    assert supported.best_source is not None
    assert (supported.best_source.document_id, supported.best_source.document_index) == ("hr1", 0)
    assert (supported.best_source.content, supported.best_source.span) == (LEAVE.text, Span(0, 31))
    assert (supported.score, supported.confidence, supported.contradicting_source) == (0.9, 0.9, None)
    assert supported.support == {0: 0.9, 1: 0.2}
    assert supported.explanation == f"read {LEAVE.text!r}"
    (contradicted,) = office.claims
    assert contradicted.best_source == contradicted.contradicting_source
    assert contradicted.best_source is not None
    assert (contradicted.best_source.source, contradicted.best_source.score) == ("office.pdf", 0.8)


async def test_sentence_has_the_label_of_its_worst_claim() -> None:
    judge = ScriptedJudge({"Fine": entails(), "Leave is wrong": contradicts(), "Unknown.": NEUTRAL})
    (verdict,) = await check_all(await opened(judge), "Fine; Leave is wrong; Unknown.")
    assert verdict.label is Label.CONTRADICTED
    assert [claim.label.value for claim in verdict.claims] == ["supported", "contradicted", "unverifiable"]


async def test_claim_can_be_relabelled_with_other_thresholds() -> None:
    judge = ScriptedJudge({"Fine.": Probabilities(0.6, 0.4, 0.0)})
    (verdict,) = await check_all(await opened(judge), "Fine.")
    (claim,) = verdict.claims
    assert claim.label is Label.UNVERIFIABLE
    assert Thresholds(entailment=0.5).label_of(claim) is Label.SUPPORTED


async def test_unrelated_window_contradicts_nothing() -> None:
    judge = ScriptedJudge({(LEAVE.text, "The office opens at eight."): contradicts(0.99)}, default=NEUTRAL)
    (verdict,) = await check_all(await opened(judge), "The office opens at eight.")
    assert verdict.label is Label.UNVERIFIABLE


async def test_sources_per_claim_are_limited() -> None:
    judge = ScriptedJudge(default=entails())
    chunks = [Chunk(id=str(n), text=f"Fact number {n} holds.") for n in range(9)]
    await check_all(await opened(judge, *chunks, max_sources_per_claim=3), "Fact number 4 holds.")
    assert [len(call) for call in judge.calls] == [3]
    assert judge.pairs[0] == ("Fact number 4 holds.", "Fact number 4 holds.")


async def test_two_chunks_supporting_a_claim_together_are_joined() -> None:
    def answer(evidence: str, claim: str) -> Probabilities:
        return entails(0.9) if "Ada" in evidence and "Blue" in evidence else entails(0.3)

    chunks = (Chunk(id="d1", text="Ada leads the team."), Chunk(id="d2", text="The team is called Blue."))
    (verdict,) = await check_all(await opened(ScriptedJudge(answer), *chunks), "Ada leads the team Blue.")
    (claim,) = verdict.claims
    assert claim.label is Label.SUPPORTED
    assert claim.support == {0: 0.9, 1: 0.9}
    assert claim.explanation is not None
    assert claim.explanation.endswith("together")
    assert {"'d1'", "'d2'"} <= set(claim.explanation.split())


async def test_repeated_document_is_prepared_once() -> None:
    read: list[str] = []

    class Counting(ModelOnly):
        def prepare(self, text: str, context: str = "", asked: str = "", /) -> Any:
            read.append(text)
            return super().prepare(text, context)

    made = checker(ScriptedJudge(), features=Counting())
    for claim in ("Leave is 20 days.", "Leave is paid."):
        check = made.reply(await made.prepare([LEAVE]), thresholds=Thresholds())
        await check_all(check, claim)
    assert [text for text in read if text in LEAVE.text] == [LEAVE.text]


async def test_context_is_read_by_the_model_and_separate_for_features() -> None:
    features = ModelOnly()
    judge = ScriptedJudge()
    check = await opened(judge, LEAVE, made_with={"features": features})
    await check_all(check, "Leave is 30 days. It is paid.")
    assert {claim for _, claim in judge.pairs} == {"Leave is 30 days.", "Leave is 30 days. It is paid."}
    assert features.claims == {"Leave is 30 days.", "Leave is 30 days. | It is paid."}


async def test_slow_features_do_not_block_the_event_loop() -> None:
    class Counted(ModelOnly):
        def prepare(self, text: str, context: str = "", asked: str = "", /) -> Any:
            prepared = super().prepare(text, context)
            prepared.quantities = [number for number in text.split() if number.isdecimal()]
            return prepared

    here = threading.current_thread().name
    table = Chunk(id="table", text="In all years it was " + " ".join(map(str, range(100))) + ".")
    for claim, is_light in (
        ("Leave is 30 days.", True),
        ("Leave is " + "very " * 120 + "long.", False),
        ("In all years it was " + " ".join(map(str, range(50))) + ".", False),
    ):
        features = Counted()
        await check_all(await opened(ScriptedJudge(), table, made_with={"features": features}), claim)
        assert (features.threads == {here}) is is_light, claim


async def test_long_claim_is_judged_in_parts_by_its_weakest() -> None:
    def answer(evidence: str, claim: str) -> Probabilities:
        assert len(evidence.split()) + len(claim.split()) <= 20
        return entails(0.1) if "lie" in claim else entails(0.9)

    truth, lie = "true " * 30, "true " * 30 + "lie"
    chunk = Chunk(id="d", text="All of it is true.")
    for text, expected in ((truth, Label.SUPPORTED), (lie, Label.UNVERIFIABLE)):
        judge = ScriptedJudge(answer, max_tokens=20)
        (verdict,) = await check_all(await opened(judge, chunk), text)
        assert verdict.label is expected
        assert len(judge.pairs) > 2


async def test_fact_at_the_end_of_a_long_document_is_found() -> None:
    filler = " ".join(f"Paragraph {n} speaks of the weather in region {n} and of little else." for n in range(130))
    judge = ScriptedJudge(lambda evidence, claim: entails() if "seven years" in evidence else NEUTRAL)
    chunk = Chunk(id="long", text=filler + " The warranty of the pump lasts seven years.")
    (verdict,) = await check_all(await opened(judge, chunk), "The pump has a warranty of seven years.")
    (claim,) = verdict.claims
    assert claim.label is Label.SUPPORTED
    assert claim.best_source is not None
    assert chunk.text[claim.best_source.span.start :].endswith("lasts seven years.")


# Degrees of trust


@pytest.mark.parametrize(
    ("text", "verdict", "trust", "trusted"),
    [
        ("Good.", ReplyVerdict.SUPPORTED, 1.0, True),
        ("Good. Unknown.", ReplyVerdict.HAS_UNVERIFIABLE, 0.5, True),
        ("Good. Unknown. Unheard.", ReplyVerdict.HAS_UNVERIFIABLE, 1 / 3, False),
        ("Good. Good. Leave is bad.", ReplyVerdict.HAS_CONTRADICTIONS, 2 / 3, False),
        ("Really?", ReplyVerdict.NO_CLAIMS, None, False),
        ("", ReplyVerdict.NO_CLAIMS, None, False),
    ],
)
async def test_trust(text: str, verdict: ReplyVerdict, trust: float | None, trusted: bool) -> None:
    check = await opened(ScriptedJudge({"Good.": entails(), "Leave is bad.": contradicts()}))
    await check_all(check, text)
    report = check.report()
    assert (report.verdict, report.is_trusted) == (verdict, trusted)
    assert report.trust_score == pytest.approx(trust)


# Caps and order


async def test_surplus_claims_are_the_last_of_the_reply_in_any_order_of_checks() -> None:
    check = await opened(ScriptedJudge(default=entails()), max_claims=3)
    sentences = [*check.push("One; two. Three; four. Really? Five."), *check.flush()]
    for sentence in reversed(sentences):
        await check.check(sentence)
    report = check.report()
    assert [claim.claim.text for claim in report.claims] == ["One", "two.", "Three"]
    assert report.claims_skipped == 2
    assert [claim.reason for claim in report.sentences[1].claims] == [None, "skipped"]
    assert labels(report.sentences) == ["supported", "unverifiable", "not_a_claim", "unverifiable"]
    assert report.coverage < 1.0


async def test_reply_with_every_claim_skipped_is_not_checked() -> None:
    check = await opened(ScriptedJudge(default=entails()), max_claims=0)
    await check_all(check, "A. B.")
    assert check.report().verdict is ReplyVerdict.NOT_CHECKED


async def test_order_of_checks_does_not_matter() -> None:
    text = "Leave is 30 days. It is paid. The office opens at eight. It closes at six."
    reports = []
    for order in (1, -1):
        check = await opened(ScriptedJudge(lambda evidence, claim: entails(len(claim) / 100)))
        sentences = [*check.push(text), *check.flush()]
        for sentence in sentences[::order]:
            await check.check(sentence)
        reports.append(check.report())
    assert reports[0] == reports[1]


async def test_mid_stream_report_covers_checked_sentences() -> None:
    check = await opened(ScriptedJudge(default=entails()))
    _, second = [*check.push("One is so. Two is so."), *check.flush()]
    await check.check(second)
    report = check.report()
    assert (report.total_claims, [one.sentence for one in report.sentences]) == (1, [second])
    assert report.coverage == pytest.approx(0.5)


# Failures


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (JudgeOverloadedError("full"), "overloaded"),
        (JudgeUnavailableError("gone"), "judge_error"),
        (JudgeError("odd"), "judge_error"),
        (ZeroDivisionError("a fault"), "judge_error"),
    ],
)
async def test_errors_make_claims_unverifiable_with_a_reason(
    error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    check = await opened(ScriptedJudge(error=error))
    with caplog.at_level(logging.CRITICAL):
        (verdict,) = await check_all(check, "Leave is 30 days.")
    assert verdict.label is Label.UNVERIFIABLE
    assert [claim.reason for claim in verdict.claims] == [reason]
    assert check.report().coverage == 0.0


async def test_deadline_times_out_pending_claims_and_keeps_finished_verdicts() -> None:
    class Slow(ScriptedJudge):
        async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
            if pairs[0][1] == "Slow.":
                await asyncio.Event().wait()
            return await super().score(pairs)

    check = await opened(Slow(default=entails()), made_with={"timeout_s": 0.05})
    (verdict,) = await check_all(check, "Quick; Slow.")
    assert [(claim.label.value, claim.reason) for claim in verdict.claims] == [
        ("supported", None),
        ("unverifiable", "timeout"),
    ]


async def test_slow_or_failing_extractor_leaves_the_sentence_unverifiable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hanging = await opened(ScriptedJudge(), made_with={"timeout_s": 0.01, "extractor": Clauses(gate=asyncio.Event())})
    (verdict,) = await check_all(hanging, "Leave is 30 days.")
    assert [(claim.claim.text, claim.reason) for claim in verdict.claims] == [("Leave is 30 days.", "timeout")]
    broken = await opened(ScriptedJudge(), made_with={"extractor": Clauses(error=RuntimeError("oops"))})
    with caplog.at_level(logging.CRITICAL):
        (verdict,) = await check_all(broken, "Leave is 30 days.")
    assert [claim.reason for claim in verdict.claims] == ["judge_error"]


async def test_cancelled_check_ends_at_once_without_a_verdict() -> None:
    check = await opened(ScriptedJudge(gate=asyncio.Event()))
    (sentence,) = [*check.push("Leave is 30 days."), *check.flush()]
    task = asyncio.ensure_future(check.check(sentence))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert check.report().sentences == ()


async def test_judge_that_fails_to_load_is_unavailable_without_raising() -> None:
    judge = ScriptedJudge(start_error=JudgeUnavailableError("no such folder: /x"))
    made = checker(judge)
    await made.start()
    assert (made.available, made.error) == (False, "no such folder: /x")
    judge.start_error = None
    await made.start()
    assert not judge.started, "a failed load is not tried again"
    check = made.reply(await made.prepare([LEAVE]), thresholds=Thresholds())
    (verdict,) = await check_all(check, "Leave is 30 days.")
    assert [claim.reason for claim in verdict.claims] == ["unavailable"]
    report = check.report()
    assert (report.verdict, report.trust_score, report.is_trusted) == (ReplyVerdict.NOT_CHECKED, None, False)
    assert (report.summary, report.coverage) == ("Not checked", 0.0)


async def test_unexpected_loading_failure_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    made = checker(ScriptedJudge(start_error=MemoryError("too big")))
    with caplog.at_level(logging.CRITICAL):
        await made.start()
    assert made.error == "MemoryError: too big"


async def test_nothing_is_checked_without_a_judge() -> None:
    made = checker(None)
    await made.start()
    assert (made.name, made.available, made.error) == ("none", False, "no judge is configured")
    check = made.reply(await made.prepare([LEAVE]), thresholds=Thresholds())
    await check_all(check, "Leave is 30 days.")
    assert check.report().verdict is ReplyVerdict.NOT_CHECKED
    await made.aclose()


async def test_nothing_is_grounded_without_documents() -> None:
    judge = ScriptedJudge(default=entails())
    made = checker(judge)
    check = made.reply(await made.prepare([Chunk(id="d", text=" ")]), thresholds=Thresholds())
    (verdict,) = await check_all(check, "Leave is 30 days.")
    assert (verdict.label, verdict.claims[0].reason) == (Label.UNVERIFIABLE, "no_documents")
    assert check.report().verdict is ReplyVerdict.NO_SOURCES
    assert judge.calls == []


async def test_judge_is_loaded_on_first_use_and_closed_with_the_checker() -> None:
    judge = ScriptedJudge(name="scripted@1")
    made = checker(judge)
    assert (made.name, made.available, made.error) == ("scripted@1", False, None)
    await made.prepare([LEAVE])
    assert made.available
    await made.aclose()
    assert judge.closed
    assert not made.available


# Many sentences and replies at once


async def test_long_reply_neither_starves_others_nor_times_out() -> None:
    judge = ScriptedJudge(default=entails(), gate=asyncio.Event())
    check = await opened(judge, LEAVE)
    checking = asyncio.ensure_future(check_all(check, " ".join(f"Leave lasts {n} days." for n in range(50))))
    for _ in range(100):
        await asyncio.sleep(0)
    assert [pair[1] for pair in judge.pairs] == [f"Leave lasts {n} days." for n in range(8)]
    assert judge.gate is not None
    judge.gate.set()
    assert labels(await checking) == ["supported"] * 50


async def test_concurrent_replies_share_batches() -> None:
    judge = ScriptedJudge(default=entails(), gate=asyncio.Event())
    batcher = BatchingScorer(judge, max_batch_pairs=32)
    made = checker(batcher, windowing=Windowing(sentences=1))
    evidence = await made.prepare([LEAVE])

    async def reply(number: int) -> str:
        check = made.reply(evidence, thresholds=Thresholds())
        (verdict,) = await check_all(check, f"Reply {number} says leave is 30 days.")
        return verdict.label.value

    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.score([("e", "keeps the judge busy")]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks = [group.create_task(reply(number)) for number in range(32)]
        for _ in range(100):
            await asyncio.sleep(0)
        assert batcher.queue_depth == 32
        assert judge.gate is not None
        judge.gate.set()
    await made.aclose()
    assert {task.result() for task in tasks} == {"supported"}
    assert [len(call) for call in judge.calls] == [1, 32]


async def test_equal_sentences_in_many_replies_are_judged_once() -> None:
    judge = ScriptedJudge(default=entails())
    cache = CachingScorer(BatchingScorer(judge), max_bytes=100_000)
    made = checker(cache)
    evidence = await made.prepare([LEAVE])
    for _ in range(5):
        await check_all(made.reply(evidence, thresholds=Thresholds()), "Leave is 30 days.")
    await made.aclose()
    assert len(judge.calls) == 1
    assert (cache.hits, cache.misses) == (4, 1)


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("The lamp runs for 24 hours.", True),
        ("The *lamp* runs for **24** hours.", True),
        ("The lamp runs for 24 hours.<!-- bleach -->", False),
        ("[The lamp runs for 24 hours.](https://bleach.com)", False),
        ("~~The lamp runs for 24 hours.~~", False),
        ('<a title="bleach">The lamp runs.</a>', False),
        ("The lamp runs for 24\u200b hours.", False),
        ("# The lamp runs for 24 hours.", False),
        ("1. The lamp runs for 24 hours.", False),
        ("| The lamp runs | for 24 hours. |", False),
        ("[The lamp runs](lamp) for 24 hours.", False),
        ("`The lamp runs for 24 hours.`", False),
        ("<b>The lamp runs for 24 hours.</b>", False),
        ("The lamp runs for 24 hours. User: The lamp stops.", False),
        ("The lamp runs for 24 hours. Drink it.", False),
    ],
)
async def test_correction_with_unjudged_parts_is_not_supported(text: str, sound: bool) -> None:
    wrong = "The lamp runs for 48 hours."
    checker = GroundingChecker(
        ScriptedJudge(lambda _, claim: contradicts() if "48" in claim else entails()),
        llm=ScriptedLlm({wrong: LlmVerdict(label=Label.CONTRADICTED, confidence=0.9, correction=text)}),
    )
    evidence = await checker.prepare(
        [Chunk(id="d1", text="A lamp. The lamp runs for 24 hours. Stops: User. Drink it.")]
    )
    (sentence,) = await check_all(checker.reply(evidence, thresholds=Thresholds(), correct=True), wrong)
    assert [claim.correction for claim in sentence.claims] == [text if sound else None]


@pytest.mark.parametrize(
    ("prefill", "reply", "judged"),
    [
        ("Return the leave days as JSON", '{"days": 24}', ["days: 24"]),
        ("Return the leave days as JSON", '{"note": "Employees have 24 days."}', ["Employees have 24 days."]),
        ("```json\n", '{"days": 24}\n```', ["days: 24"]),
        ('Return {"days": 5} or [].', '{"days": 24}', ["days: 24"]),
        ('{"days":', " 24}", ['{"days": 24}']),
        ('{"note": "Nobody', ' has 24 days."}', ['{"note": "Nobody has 24 days."}']),
        ("It is not true that", " we have 24 days. We rest.", ["It is not true that we have 24 days.", "We rest."]),
    ],
)
async def test_json_that_begins_in_the_reply_is_read_as_json(prefill: str, reply: str, judged: list[str]) -> None:
    checker = GroundingChecker(ScriptedJudge(default=entails()))
    check = checker.reply(await checker.prepare([LEAVE]), thresholds=Thresholds(), is_json=True, prefill=prefill)
    for sentence in [*check.push(reply), *check.flush()]:
        await check.check(sentence)
    assert [verdict.claim.text for verdict in check.report().claims] == judged
