"""A reply that continues a text of the caller: the whole sentence is judged, and only the reply is delivered."""

import asyncio

import pytest

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.known_text import KnownText
from judges.claims.prefilled_reply import PrefilledReply
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Claim, Sentence


def read(prefill: str, reply: str, *, size: int = 1000) -> list[tuple[Sentence, list[Claim]]]:
    """The sentences of ``reply``, pushed in pieces of ``size`` characters, and the claims in each."""
    known = KnownText(question="Thanks!", documents=["Children take at most 2 tablets a day."])
    reader = PrefilledReply(prefill, IncrementalSplitter, HeuristicClaimExtractor(message="Thanks!", known=known))
    found: list[Sentence] = []
    for start in range(0, len(reply), size):
        found += reader.push(reply[start : start + size])
    found += reader.flush()
    return [(one, list(asyncio.run(reader.extract(one, found[:place])))) for place, one in enumerate(found)]


def claims(prefill: str, reply: str) -> list[str]:
    return [claim.text for _, found in read(prefill, reply) for claim in found]


@pytest.mark.parametrize(
    ("prefill", "reply", "judged"),
    [
        ("Children take", " 4 tablets.", ["Children take 4 tablets."]),
        ("Children take", "4 tablets.", ["Children take 4 tablets."]),
        ("Children take", "at most 4.", ["Children take at most 4."]),
        ("Children take ", "at most 4.", ["Children take at most 4."]),
        ("Children take 4", "0 tablets.", ["Children take 40 tablets."]),
        ("Children take 1.", "5 tablets.", ["Children take 1.5 tablets."]),
        ("Children never", " take 4; adults take 8.", ["Children never take 4; adults take 8."]),
        ("Children take", "\n\nat most 4.", ["Children take at most 4."]),
        ("Children take\n\n", "at most 4.", ["Children take at most 4."]),
        ("Children take", " `at most 4`.", ["Children take at most 4."]),
        ("Children take\n", "# at most 2", ["Children take at most 2"]),
        ("Adults take 8. Children take", " 4 tablets. They sleep.", ["Children take 4 tablets.", "They sleep."]),
        ("Adults take 8.", " Children take 4.", ["Children take 4."]),
        ("# Dose\n\n", "Children take 4.", ["Children take 4."]),
        ("The dose for children is:", " 4.", ["The dose for children is: 4."]),
        ("Children", "- take 4.", ["Children take 4."]),
        ("Children", "| take | 4 |", ["Children take, 4"]),
        ("Is it due?", "- [x] Children take 4.", ["Children take 4."]),
        ("The dose:\n", "- Children take 4.", ["Children take 4."]),
        ("Sure! Here is the", " answer: Children take 4.", ["Children take 4."]),
        ("May children take 4?", " Of course!", ["May children take 4? Of course!"]),
        ("May children take 4?", "Yes.", ["May children take 4? Yes."]),
        ("Take 8 tablets and", " enjoy!", ["Take 8 tablets and enjoy!"]),
        ("Thanks for", " asking!", []),
    ],
)  # fmt: skip
def test_sentence_is_judged_with_its_beginning(prefill: str, reply: str, judged: list[str]) -> None:
    assert claims(prefill, reply) == judged


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "prefill", ["Adults sleep. Children take", "Adults sleep. ", "Children", "x " * 3000 + "We take"]
)
def test_sentences_are_those_of_the_reply(prefill: str, size: int) -> None:
    reply = " at most 4 tablets.  Adults take 8; they sleep for 8 hours.\n\nThey eat."
    found = read(prefill, reply, size=size)
    assert "".join(sentence.text for sentence, _ in found) == reply
    assert [sentence.index for sentence, _ in found] == list(range(len(found)))
    for sentence, judged in found:
        assert reply.startswith(sentence.text, sentence.span.start)
        assert all(sentence.span.start <= claim.span.start < claim.span.end <= len(reply) for claim in judged)


def test_pronoun_refers_to_the_text_of_the_caller() -> None:
    (_, (claim,)), *_ = read("Children sleep at 8. ", "They take 4 tablets.")
    assert claim.context == "Children sleep at 8."


def test_later_sentences_are_read_after_the_whole_sentence() -> None:
    found = read("Children", " sleep at 8. They take 4 tablets.")
    assert found[1][1][0].context == "Children sleep at 8."


def test_pause_before_the_reply_changes_nothing() -> None:
    reader = PrefilledReply("Children take", IncrementalSplitter, HeuristicClaimExtractor())
    assert reader.pause() == []
    sentences = [*reader.push(" 4."), *reader.pause(), *reader.push("Adults sleep."), *reader.flush()]
    assert [sentence.text for sentence in sentences] == [" 4.", "Adults sleep."]
    (claim,) = asyncio.run(reader.extract(sentences[0], []))
    assert claim.text == "Children take 4."
