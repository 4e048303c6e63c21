import asyncio
from collections.abc import Mapping, Sequence

from judges.checker import GroundingChecker
from judges.evidence.index import EvidenceIndex
from judges.testing import NEUTRAL, ScriptedJudge, entails
from judges.types import Chunk, Claim, Probabilities, Span

TEXTS = (
    "Permanent staff receive 25 days of leave.",
    "Interns receive 10 days of leave.",
    "Bicycles are parked outside.",
)


def support(judge: ScriptedJudge, text: str, documents: Sequence[int], *, context: str = "") -> Mapping[int, float]:
    async def run() -> Mapping[int, float]:
        checker = GroundingChecker(judge)
        index: EvidenceIndex = await checker.prepare([Chunk(id=str(i), text=one) for i, one in enumerate(TEXTS)])
        citation_checker = checker.citation_checker(index)
        assert citation_checker is not None
        claim = Claim(text=text, span=Span(0, len(text)), sentence_index=0, context=context)
        return await citation_checker.support(claim, documents)

    return asyncio.run(run())


def knows(*parts: str) -> ScriptedJudge:
    """A judge that finds a claim entailed by text with all of ``parts``."""

    def answer(evidence: str, _claim: str) -> Probabilities:
        return entails() if all(part in evidence for part in parts) else NEUTRAL

    return ScriptedJudge(answer)


def test_each_document_is_judged_separately() -> None:
    found = support(knows("25 days"), "Staff get 25 days.", [0, 2])
    assert found[0] > 0.7
    assert set(found) == {0, 2}


def test_sentence_may_be_supported_by_its_citations_together() -> None:
    found = support(knows("25 days", "10 days"), "Staff get 25 days, interns 10 days of leave.", [0, 1])
    assert min(found.values()) > 0.5
    alone = support(knows("25 days", "10 days"), "Staff get 25 days, interns 10 days of leave.", [2])
    assert alone[2] < 0.5


def test_document_without_text_supports_nothing() -> None:
    assert support(knows("25 days"), "Staff get 25 days.", [7]) == {7: 0.0}


def test_antecedent_is_read_with_its_claim() -> None:
    judge = ScriptedJudge(default=NEUTRAL)
    support(judge, "They are parked outside.", [2], context="Bicycles are used by many.")
    assert {claim for _, claim in judge.pairs} == {"Bicycles are used by many. They are parked outside."}
