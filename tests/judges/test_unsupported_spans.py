"""The parts of a claim that a judge finds unsupported, mapped from the judged text to the reply."""

import re
from collections.abc import Sequence

import pytest

from judges.checker import GroundingChecker
from judges.label_thresholds import Thresholds
from judges.llm_types import LlmVerdict
from judges.protocols import JudgeError
from judges.types import Chunk, ClaimVerdict, Label, Probabilities, UnsupportedSpan, Windowing

pytestmark = pytest.mark.anyio

PLAN = Chunk(id="plan", text="The team plan includes support by mail. Invoices are sent monthly.")
BILL = Chunk(id="bill", text="Bills are due in a fortnight.")


class SpanScorer:
    """Finds each word of a claim unsupported that isn't in the evidence, except short ones."""

    name = "spans"
    max_tokens = 200
    threshold = 0.5
    windowing: Windowing | None = None

    def __init__(self) -> None:
        self.read: list[tuple[str, str]] = []

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        self.read += pairs
        return [self._one(evidence.casefold(), claim) for evidence, claim in pairs]

    def _one(self, evidence: str, claim: str) -> Probabilities:
        spans = tuple(
            UnsupportedSpan(word.start(), word.end(), 0.9)
            for word in re.finditer(r"\w{4,}", claim)
            if word[0].casefold() not in evidence
        )
        entailed = 0.1 if spans else 0.95
        return Probabilities(entailed, 1.0 - entailed, 0.0, spans=spans)

    async def start(self) -> None: ...
    async def aclose(self) -> None: ...


async def verdicts(
    reply: str, chunks: Sequence[Chunk] = (PLAN,), scorer: SpanScorer | None = None
) -> list[ClaimVerdict]:
    checker = GroundingChecker(scorer or SpanScorer())
    check = checker.reply(await checker.prepare(chunks), thresholds=Thresholds())
    found = [await check.check(sentence) for sentence in [*check.push(reply), *check.flush()]]
    await checker.aclose()
    return [claim for verdict in found for claim in verdict.claims]


def marked(reply: str, claims: Sequence[ClaimVerdict]) -> list[str]:
    return [reply[span.start : span.end] for claim in claims for span in claim.spans]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("The team plan includes support by telephone.", ["telephone"]),
        ("## Plans\n\n- The **team plan** includes *support* by **telephone**.\n", ["telephone"]),
        (
            "Hello! Invoices are sent monthly. The team plan includes support by telephone, day and night.",
            ["telephone", "night"],
        ),
        ("The team plan includes support by mail.", []),
    ],
)
async def test_unsupported_spans_are_positions_in_the_reply(reply: str, words: list[str]) -> None:
    assert marked(reply, await verdicts(reply)) == words


async def test_context_of_a_claim_is_not_marked() -> None:
    reply = "The team plan includes support by telephone. It also includes support by courier."
    claims = await verdicts(reply)
    assert marked(reply, claims) == ["telephone", "also", "courier"]


async def test_unsupported_spans_are_those_of_the_best_window() -> None:
    reply = "Invoices are sent monthly by courier."
    (claim,) = await verdicts(reply, [BILL, PLAN])
    assert claim.label is Label.UNVERIFIABLE
    assert marked(reply, [claim]) == ["courier"]


async def test_claim_in_parts_has_the_spans_of_all_parts() -> None:
    scorer = SpanScorer()
    scorer.max_tokens = 24
    reply = (
        "Invoices are sent monthly by courier and the team plan includes support by mail and also by telephone or in "
        "person at the office."
    )
    claims = await verdicts(reply, scorer=scorer)
    assert len({claim for _, claim in scorer.read}) > 1
    assert {"courier", "telephone", "office"} <= set(marked(reply, claims))


class Agreeing:
    """An LLM judge that finds everything supported."""

    name = "llm"
    ready = True

    async def judge(self, claim: str, context: str, passages: object, record: object) -> LlmVerdict:
        return LlmVerdict(label=Label.SUPPORTED, confidence=0.99, reasoning="It says so.")

    async def decompose(self, sentence: str, context: str, record: object) -> Sequence[str]:
        raise JudgeError("no")


async def test_claim_supported_by_the_llm_has_no_unsupported_spans() -> None:
    checker = GroundingChecker(SpanScorer(), llm=Agreeing())
    check = checker.reply(await checker.prepare([PLAN]), thresholds=Thresholds())
    (sentence,) = [*check.push("Help comes by telephone."), *check.flush()]
    (claim,) = (await check.check(sentence)).claims
    assert (claim.label, claim.escalated, claim.spans) == (Label.SUPPORTED, True, ())
    await checker.aclose()


async def test_evidence_is_windowed_as_the_judge_requires() -> None:
    text = " ".join(f"Sentence {number} is about topic {number}." for number in range(30))
    sizes = []
    for windowing in (None, Windowing(sentences=1000, tokens=100), Windowing(sentences=1, tokens=100)):
        scorer = SpanScorer()
        scorer.windowing = windowing
        checker = GroundingChecker(scorer)
        sizes.append(len((await checker.prepare([Chunk(id="a", text=text)])).windows))
        await checker.aclose()
    assert sizes == [3, 2, 30]
