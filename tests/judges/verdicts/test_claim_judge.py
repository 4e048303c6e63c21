"""A claim below a heading or a lead-in is judged with it, and alone if that leaves it unverifiable."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from judges.checker import GroundingChecker
from judges.label_thresholds import Thresholds
from judges.testing import NEUTRAL, ScriptedJudge, contradicts, entails
from judges.types import Chunk, Claim, Label, Probabilities, Span
from judges.verdicts.claim_judge import ClaimJudge

pytestmark = pytest.mark.anyio

HOTEL = Chunk(id="1", text="Guests of the hotel can check in from 3 p.m.")
CLAIM, CONTEXT = "Check-in from 3 p.m.", "Here are the key facts about the hotel:"


class Text(str):
    quantities: Sequence[Any] = ()


class ModelOnly:
    """Features that leave the model's scores unchanged."""

    def prepare(self, text: str, context: str = "", asked: str = "", /) -> Any:
        return Text(text)

    def as_written(self, text: str, claim: Any, evidence: Any, /) -> str:
        return text

    def comparison(self, claim: Any, /) -> Any:
        return claim

    def combine(self, evidence: Any, claim: Any, model: Probabilities, /) -> Any:
        return SimpleNamespace(probabilities=model, explanation=None)


async def label(*, together: Probabilities, alone: Probabilities, stands_alone: bool = True) -> Label:
    scorer = ScriptedJudge({CLAIM: alone, f"{CONTEXT} {CLAIM}": together})
    evidence = await GroundingChecker(scorer).prepare([HOTEL])
    features: Any = ModelOnly()
    judge = ClaimJudge(scorer, evidence, features, thresholds=Thresholds(), max_sources=5)
    span = Span(0, len(CLAIM))
    verdict = await judge.judge(
        Claim(text=CLAIM, span=span, sentence_index=0, context=CONTEXT, stands_alone=stands_alone)
    )
    assert verdict.claim.context == CONTEXT
    return verdict.label


@pytest.mark.parametrize(
    ("together", "alone", "expected"),
    [
        (NEUTRAL, entails(), Label.SUPPORTED),
        (entails(0.5), entails(), Label.SUPPORTED),
        (contradicts(0.3), entails(), Label.SUPPORTED),
        # What a heading reveals counts.
        (contradicts(), entails(), Label.CONTRADICTED),
        (contradicts(0.6), entails(), Label.UNVERIFIABLE),
        # Alone, a claim is not refuted: the documents may say something else about another thing.
        (NEUTRAL, contradicts(), Label.UNVERIFIABLE),
        (NEUTRAL, entails(0.5), Label.UNVERIFIABLE),
        (entails(), contradicts(), Label.SUPPORTED),
    ],
)
async def test_context_may_refute_a_claim_but_not_make_it_unverifiable(
    together: Probabilities, alone: Probabilities, expected: Label
) -> None:
    assert await label(together=together, alone=alone) is expected


async def test_claim_that_needs_its_context_is_judged_only_with_it() -> None:
    assert await label(together=NEUTRAL, alone=entails(), stands_alone=False) is Label.UNVERIFIABLE
