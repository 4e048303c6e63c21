"""Text that an LLM writes for a sentence, and sentences that are left out: the judge reads what the client reads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from judges.checker import GroundingChecker, ReplyCheck
from judges.claims.extraction import HeuristicClaimExtractor
from judges.label_thresholds import Thresholds
from judges.llm_types import LlmVerdict
from judges.sentences.splitter import IncrementalSplitter
from judges.testing import NEUTRAL, ScriptedJudge, ScriptedLlm, contradicts, entails
from judges.types import Chunk, Claim, Label, Probabilities, Sentence, SentenceVerdict

pytestmark = pytest.mark.anyio

ORION = "The Orion lamp is made of brass."
NOVA = "The Nova lamp costs 20 euros."
DOSE = "Adults take 4 tablets a day. Children take 2 tablets a day."


class Prepared(str):
    """A text that isn't parsed."""

    quantities: Sequence[Any] = ()


class AsScored:
    """Features that leave the judge's scores unchanged."""

    def prepare(self, text: str, context: str = "", asked: str = "", /) -> Any:
        return Prepared(text)

    def as_written(self, text: str, claim: Any, evidence: Any, /) -> str:
        return text

    def comparison(self, claim: Any, /) -> Any:
        return claim

    def combine(self, evidence: Any, claim: Any, model: Probabilities | None, *more: Any) -> Any:
        return SimpleNamespace(probabilities=model, explanation=None)


class CountingExtractor(HeuristicClaimExtractor):
    """``read`` has the indexes of the sentences whose claims were found, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        self.read.append(sentence.index)
        return await super().extract(sentence, previous)


def wrong(correction: str) -> LlmVerdict:
    return LlmVerdict(label=Label.CONTRADICTED, confidence=0.9, correction=correction)


async def opened(
    texts: Mapping[str, Probabilities],
    *documents: str,
    corrections: Mapping[str, str] | None = None,
    parts: Mapping[str, Sequence[str]] | None = None,
    max_claims: int | None = None,
) -> tuple[ReplyCheck, ScriptedJudge, ScriptedLlm]:
    """Start to check a reply with a judge that knows ``texts``. Each text includes its context."""
    judge = ScriptedJudge(texts)
    llm = ScriptedLlm({said: wrong(right) for said, right in (corrections or {}).items()}, parts=parts)
    checker = GroundingChecker(judge, llm=llm, features=AsScored())
    evidence = await checker.prepare([Chunk(id=text, text=text) for text in documents])
    reply = checker.reply(evidence, thresholds=Thresholds(), correct=True, max_claims=max_claims)
    return reply, judge, llm


def sentences_of(reply: ReplyCheck, text: str) -> list[Sentence]:
    return [*reply.push(text), *reply.flush()]


async def checked(reply: ReplyCheck, text: str) -> list[SentenceVerdict]:
    return [await reply.check(sentence) for sentence in sentences_of(reply, text)]


async def reread(reply: ReplyCheck, verdict: SentenceVerdict) -> SentenceVerdict:
    return verdict if await reply.reads_as_before(verdict.sentence) else await reply.check(verdict.sentence)


@pytest.mark.parametrize(
    ("text", "said", "correction", "judged", "sound"),
    [
        ("Adults take 6 tablets.", "Adults take 6 tablets.", "Adults take 4 tablets.", "Adults take 4 tablets.", True),
        ("Children:\n- Take 6 tablets.", "Take 6 tablets.", "Take 4 tablets.", "Children: Take 4 tablets.", False),
        ("Children:\n- Take 6 tablets.", "Take 6 tablets.", "Take 2 tablets.", "Children: Take 2 tablets.", True),
        ("## Children\n1. Take 6 tablets.", "Take 6 tablets.", "Take 4 tablets.", "Children Take 4 tablets.", False),
        (f"{ORION} It costs 30 euros.", "It costs 30 euros.", "It costs 20 euros.", f"{ORION} It costs 20 euros.",
         False),
        (f"{ORION} The lamp costs 30 euros.", "The lamp costs 30 euros.", "It costs 20 euros.",
         f"{ORION} It costs 20 euros.", False),
        ("Adults take 6 tablets.", "Adults take 6 tablets.", "Adults take *4* tablets.", "Adults take 4 tablets.",
         True),
        ("**Adults take 6 tablets.**", "Adults take 6 tablets.", "Adults take 4 tablets.", "Adults take 4 tablets.",
         True),
        ("Adults take 6 tablets.", "Adults take 6 tablets.", "", "", False),
        ("Adults take 6 tablets.", "Adults take 6 tablets.", " ", "", False),
        ("Adults take 6 tablets.", "Adults take 6 tablets.", "Hello!", "", False),
    ],
)  # fmt: skip
async def test_correction_is_judged_in_its_place(
    text: str, said: str, correction: str, judged: str, sound: bool
) -> None:
    known = {
        ORION: entails(),
        "Adults take 4 tablets.": entails(),
        "Take 4 tablets.": entails(),
        "It costs 20 euros.": entails(),
        "Children: Take 2 tablets.": entails(),
        **{f"{start}{said}": contradicts() for start in ("", "Children: ", "Children ", f"{ORION} ")},
    }
    documents = (DOSE, f"{ORION} {NOVA}")
    reply, judge, _ = await opened(known, *documents, corrections={said: correction})
    claim = (await checked(reply, text))[-1].claims[-1]
    assert claim.label is Label.CONTRADICTED
    assert claim.correction == (correction if sound else None)
    assert [each.label for each in claim.corrected] == [Label.SUPPORTED] * sound
    assert not judged or judged in {claim for _, claim in judge.pairs}


async def test_corrections_of_one_sentence_are_judged_together() -> None:
    text = "The Orion lamp costs 30 euros; the Nova lamp costs 30 euros."
    first, second = "The Orion lamp costs 30 euros", "the Nova lamp costs 30 euros."
    corrections = {first: "The Orion lamp costs 25 euros", second: "the Nova lamp costs 20 euros."}
    right = list(corrections.values())
    documents = ("The Orion lamp costs 25 euros. The Nova lamp costs 20 euros.",)
    wrongs = {first: contradicts(), second: contradicts()}
    reply, _, _ = await opened({**wrongs, **dict.fromkeys(right, entails())}, *documents, corrections=corrections)
    (sentence,) = await checked(reply, text)
    assert [claim.correction for claim in sentence.claims] == right
    reply, _, _ = await opened({**wrongs, right[0]: entails()}, *documents, corrections=corrections)
    (sentence,) = await checked(reply, text)
    assert [claim.correction for claim in sentence.claims] == [None, None]


async def test_corrected_sentence_keeps_the_scores_of_its_correction() -> None:
    text, right = "Adults take 6 tablets a day.", "Adults take 4 tablets a day."
    reply, _, _ = await opened({text: contradicts(), right: entails(0.75)}, DOSE, corrections={text: right})
    ((claim,),) = [sentence.claims for sentence in await checked(reply, text)]
    assert [(each.claim.text, each.entailed) for each in claim.corrected] == [(right, 0.75)]
    assert Thresholds(entailment=0.7).accept_correction(claim)
    assert not Thresholds(entailment=0.8).accept_correction(claim)
    assert not Thresholds(entailment=0.7).accept_correction(replace(claim, corrected=()))
    assert Thresholds(entailment=0.8).accept_correction(replace(claim, correction=None, corrected=()))


class TestParts:
    """A sentence that an LLM splits."""

    TEXT = "Adults take 2 tablets a day, and children take 4 tablets a day."
    PARTS = ("Adults take 2 tablets a day", "children take 4 tablets a day.")

    @pytest.mark.parametrize(
        ("whole", "labels"),
        [
            (contradicts(), [Label.CONTRADICTED]),
            (contradicts(0.6), [Label.UNVERIFIABLE]),
            (Probabilities(0.2, 0.35, 0.45), [Label.UNVERIFIABLE]),
            (NEUTRAL, [Label.SUPPORTED, Label.UNVERIFIABLE]),
            (entails(), [Label.SUPPORTED, Label.SUPPORTED]),
        ],
    )
    async def test_contradiction_of_the_whole_sentence_stands(self, whole: Probabilities, labels: list[Label]) -> None:
        known = {self.TEXT: whole, self.PARTS[0]: entails()}
        reply, _, _ = await opened(known, "Tablets are taken daily.", parts={self.TEXT: self.PARTS})
        (sentence,) = await checked(reply, self.TEXT)
        assert [claim.label for claim in sentence.claims] == labels
        assert all(claim.claim.parts == () for claim in sentence.claims)

    async def test_each_part_is_judged_with_its_context(self) -> None:
        item = "take 4 tablets in the morning, and take 2 tablets in the evening"
        parts = ["take 4 tablets in the morning", "take 2 tablets in the evening"]
        reply, judge, _ = await opened({}, "Adults take 4 tablets.", parts={item: parts})
        await checked(reply, f"Children:\n- {item}\n")
        assert {claim for _, claim in judge.pairs if claim != "Children:"} == {
            f"Children: {item}",
            f"Children: {parts[0]}",
            f"Children: {parts[0]}, and {parts[1]}",
        }

    async def test_parts_count_as_one_claim(self) -> None:
        known = {self.TEXT: entails(), self.PARTS[0]: entails()}
        reply, _, _ = await opened(known, DOSE, parts={self.TEXT: self.PARTS}, max_claims=1)
        one, two = await checked(reply, f"{self.TEXT} Babies take none.")
        assert [claim.reason for claim in (*one.claims, *two.claims)] == [None, None, "skipped"]

    async def test_skipped_claim_has_no_parts(self) -> None:
        reply, _, _ = await opened({}, DOSE, parts={self.TEXT: self.PARTS}, max_claims=1)
        _, two = await checked(reply, f"{ORION} {self.TEXT}")
        assert [(claim.reason, claim.claim.text, claim.claim.parts) for claim in two.claims] == [
            ("skipped", self.TEXT, ())
        ]

    async def test_llm_that_is_the_only_judge_does_not_split(self) -> None:
        llm = ScriptedLlm(parts={self.TEXT: self.PARTS})
        checker = GroundingChecker(None, llm=llm)
        reply = checker.reply(await checker.prepare([Chunk(id="d", text=DOSE)]), thresholds=Thresholds())
        await checked(reply, self.TEXT)
        assert [claim for claim, _ in llm.asked] == [self.TEXT]

    async def test_nothing_is_judged_without_documents(self) -> None:
        reply, judge, llm = await opened({}, parts={self.TEXT: self.PARTS})
        (sentence,) = await checked(reply, self.TEXT)
        assert [claim.reason for claim in sentence.claims] == ["no_documents"]
        assert (judge.pairs, llm.asked) == ([], [])


class TestLaterSentences:
    """Sentences after one that isn't delivered as it was written."""

    KNOWN: ClassVar = {
        ORION: entails(),
        NOVA: entails(),
        f"{NOVA} It is old.": entails(),
        f"{ORION} It is old.": contradicts(),
    }

    @pytest.mark.parametrize("max_claims", [None, 9])
    async def test_sentence_is_judged_again_if_it_reads_differently(self, max_claims: int | None) -> None:
        reply, judge, _ = await opened(self.KNOWN, ORION, NOVA, max_claims=max_claims)
        first, second, third, fourth = await checked(reply, f"{ORION} {NOVA} It is old. {ORION}")
        assert third.label is Label.SUPPORTED
        assert await reread(reply, third) is third
        reply.leave_out(second.sentence)
        judged = len(judge.calls)
        again = await reread(reply, third)
        assert [(claim.claim.context, claim.label) for claim in again.claims] == [(ORION, Label.CONTRADICTED)]
        assert len(judge.calls) > judged
        assert await reread(reply, again) is again
        assert await reread(reply, fourth) is fourth
        assert await reread(reply, first) is first

    async def test_sentence_is_judged_after_the_correction(self) -> None:
        said = "The Orion lamp costs 20 euros."
        known = {**self.KNOWN, said: contradicts(), f"{said} It is old.": contradicts()}
        reply, _, _ = await opened(known, ORION, NOVA, corrections={said: NOVA})
        first, second = await checked(reply, f"{said} It is old.")
        assert second.label is Label.CONTRADICTED
        reply.correct(first)
        (claim,) = (await reread(reply, second)).claims
        assert (claim.claim.context, claim.label) == (NOVA, Label.SUPPORTED)

    @pytest.mark.parametrize("max_claims", [None, 9])
    async def test_claims_are_found_again_only_after_a_sentence_changed(self, max_claims: int | None) -> None:
        extractor = CountingExtractor()
        reply = ReplyCheck(
            splitter=IncrementalSplitter(),
            extractor=extractor,
            claim_judge=None,
            has_sources=True,
            timeout_s=5.0,
            max_claims=max_claims,
        )
        *sentences, last = sentences_of(reply, f"{ORION} {NOVA} It is old. It is green.")
        first, second, third = [await reply.check(sentence) for sentence in sentences]
        assert await reread(reply, third) is third
        assert extractor.read == [0, 1, 2]
        reply.leave_out(first.sentence)
        assert await reread(reply, second) is second
        assert extractor.read == [0, 1, 2, 1]
        reply.leave_out(second.sentence)
        again = await reread(reply, third)
        assert [claim.claim.context for claim in (*third.claims, *again.claims)] == [NOVA, ""]
        for read in (again, await reply.check(last)):
            assert await reread(reply, read) is read
        assert extractor.read == [0, 1, 2, 1, 2, 3]

    @pytest.mark.parametrize(
        ("text", "gone", "context"),
        [
            ("## Nova\n\n- Twenty.\n", 0, ""),
            ("1. A lamp.\n2. A shade.\n", 0, ""),
            ("The Nova costs:\n- 20 euros\n", 0, ""),
        ],
    )
    async def test_numbers_and_layout_of_what_is_left_out_remain(self, text: str, gone: int, context: str) -> None:
        reply, _, _ = await opened({}, ORION)
        sentences = sentences_of(reply, text)
        reply.leave_out(sentences[gone])
        (claim,) = await reply.claims_of(sentences[-1])
        assert (claim.context, claim.text.startswith("2.")) == (context, False)
