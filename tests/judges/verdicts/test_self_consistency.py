import asyncio
from collections.abc import Sequence

import pytest

from judges import features
from judges.checker import GroundingChecker
from judges.claims.extraction import HeuristicClaimExtractor
from judges.protocols import JudgeError, JudgeOverloadedError
from judges.sentences.splitter import IncrementalSplitter
from judges.testing import NEUTRAL, ScriptedJudge, contradicts, entails
from judges.types import Chunk, Claim, Consistency, Span
from judges.verdicts.self_consistency import DOCUMENT_STATEMENTS, MAX_PAIRS, ConsistencyChecker

LEAVE = "Permanent staff receive 25 days of annual leave."
MORE = "Permanent staff receive 40 days of annual leave."
PARIS = "Paris is the capital of France."
LYON = "The capital of France is Lyon."


def checker(judge: ScriptedJudge) -> ConsistencyChecker:
    return ConsistencyChecker(judge, features, HeuristicClaimExtractor(), IncrementalSplitter)


def reply(judge: ScriptedJudge, text: str, earlier: Sequence[str] = (), timeout_s: float = 5.0) -> Consistency:
    claims = [Claim(text=one, span=Span(0, 0), sentence_index=0) for one in earlier]
    return asyncio.run(checker(judge).reply(text, claims, timeout_s=timeout_s))


def documents(judge: ScriptedJudge, *texts: str) -> Consistency:
    chunks = [Chunk(id=f"d{index}", text=text) for index, text in enumerate(texts)]
    return asyncio.run(checker(judge).documents(chunks, timeout_s=5.0))


def told(found: Consistency) -> list[tuple[str, str]]:
    return [(one.first.text, one.second.text) for one in found.contradictions]


def test_pair_is_judged_both_ways_and_reported_with_positions() -> None:
    judge = ScriptedJudge(default=contradicts())
    text = f"{LEAVE} Bicycles may be parked behind the canteen. {MORE}"
    (found,) = reply(judge, text).contradictions
    assert judge.pairs == [(LEAVE, MORE), (MORE, LEAVE)]
    assert [text[side.span.start : side.span.end] for side in (found.first, found.second)] == [LEAVE, MORE]
    assert not found.first.earlier
    assert found.score > 0.7


def test_both_directions_must_contradict() -> None:
    one_way = ScriptedJudge({(PARIS, LYON): contradicts(), (LYON, PARIS): entails()})
    assert told(reply(one_way, f"{PARIS} {LYON}")) == []
    both = ScriptedJudge(default=contradicts(0.99))
    assert told(reply(both, f"{PARIS} {LYON}")) == [(PARIS, LYON)]


def test_certain_number_differences_override_the_model() -> None:
    assert told(reply(ScriptedJudge(default=NEUTRAL), f"{LEAVE} {MORE}")) == [(LEAVE, MORE)]
    assert told(reply(ScriptedJudge(default=NEUTRAL), f"{PARIS} {LYON}")) == []


def test_statements_about_different_things_are_not_judged() -> None:
    judge = ScriptedJudge(default=contradicts())
    text = (
        "The basic plan costs 9 euros a month. The premium plan costs 19 euros a month. "
        "Sales rose by 5% in 2023. Sales rose by 7% in 2024. Permanent staff receive 25 days of annual leave. "
        "Temporary staff receive 20 days of annual leave.\n\n"
        "## Basic\n\nSupport of the plan answers within 2 days.\n\n"
        "## Pro\n\nSupport of the plan answers within 1 day.\n\n"
        "According to the handbook, interns receive 10 days of leave. "
        "According to the memo, interns receive 12 days of leave."
    )
    assert reply(judge, text) == Consistency(contradictions=[])
    assert judge.pairs == []


def test_nothing_to_compare_costs_nothing() -> None:
    judge = ScriptedJudge(default=contradicts())
    for text in ("", LEAVE, f"{LEAVE} {LEAVE}", "Hello! How can I help?"):
        assert reply(judge, text).contradictions == []
    assert judge.calls == []


def test_earlier_replies_of_the_run_are_compared() -> None:
    judge = ScriptedJudge(default=contradicts())
    (found,) = reply(judge, MORE, [LEAVE, PARIS]).contradictions
    assert (found.first.text, found.first.earlier) == (LEAVE, True)
    assert (found.second.text, found.second.earlier) == (MORE, False)
    assert reply(judge, PARIS, [LEAVE, MORE]).contradictions == [], "what is past is not told again"


def test_documents_are_compared_with_each_other_but_not_themselves() -> None:
    judge = ScriptedJudge(default=contradicts())
    found = documents(judge, f"{LEAVE} {MORE}", f"Bicycles may be parked. {MORE} {MORE}", "Nothing of it.")
    ((first, second),) = told(found)
    assert (first, second) == (LEAVE, MORE)
    (one,) = found.contradictions
    assert (one.first.document_index, one.second.document_index) == (0, 1)
    assert one.second.span.start == len("Bicycles may be parked. ")


def test_one_contradiction_is_reported_per_pair_of_documents() -> None:
    judge = ScriptedJudge(default=contradicts())
    open_, closed = "The office is open on Saturdays.", "The office is closed on Saturdays."
    assert len(documents(judge, f"{LEAVE} {open_}", f"{MORE} {closed}").contradictions) == 1


def test_judged_pairs_are_limited_and_skipped_ones_reported() -> None:
    judge = ScriptedJudge(default=contradicts())
    found = reply(judge, " ".join(f"Permanent staff receive {days} days of annual leave." for days in range(20, 60)))
    assert len(judge.pairs) == 2 * MAX_PAIRS
    assert found.skipped > 0


def test_only_the_first_of_many_documents_are_read() -> None:
    judge = ScriptedJudge(default=contradicts())
    texts = [f"Building {number} is behind the canteen." for number in range(DOCUMENT_STATEMENTS)]
    assert documents(judge, *texts, LEAVE, MORE).contradictions == ()
    assert told(documents(judge, LEAVE, *texts[:-2], MORE)) == [(LEAVE, MORE)]


def test_statements_too_long_for_the_model_are_left_out() -> None:
    judge = ScriptedJudge(default=contradicts(), max_tokens=12)
    assert reply(judge, f"{LEAVE} {MORE}") == Consistency(contradictions=[], skipped=1)


@pytest.mark.parametrize(
    ("error", "reason"), [(JudgeOverloadedError("full"), "overloaded"), (JudgeError("broken"), "judge_error")]
)
def test_judge_errors_are_a_reason_and_do_not_raise(error: Exception, reason: str) -> None:
    assert reply(ScriptedJudge(error=error), f"{LEAVE} {MORE}") == Consistency(reason=reason)


def test_deadline_is_kept() -> None:
    async def run() -> Consistency:
        judge = ScriptedJudge(gate=asyncio.Event())
        return await checker(judge).reply(f"{LEAVE} {MORE}", timeout_s=0.01)

    assert asyncio.run(run()) == Consistency(reason="timeout")


def test_nothing_is_compared_without_a_cross_encoder() -> None:
    async def run() -> None:
        grounding = GroundingChecker(ScriptedJudge())
        assert grounding.consistency_checker is None, "it is not loaded yet"
        await grounding.start()
        assert grounding.consistency_checker is not None
        assert GroundingChecker(None).consistency_checker is None

    asyncio.run(run())
