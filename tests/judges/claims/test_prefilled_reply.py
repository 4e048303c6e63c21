"""A reply that continues a text of the caller: the whole sentence is judged, and only the reply is delivered."""

import asyncio
import time

import pytest

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.known_text import KnownText
from judges.claims.prefilled_reply import PrefilledReply, opens_json
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Claim, Sentence


def read(
    prefill: str, reply: str, *, size: int = 1000, may_instruct: bool = False, message: str = "Thanks!"
) -> list[tuple[Sentence, list[Claim]]]:
    """The sentences of ``reply``, pushed in pieces of ``size`` characters, and the claims in each."""
    known = KnownText(question=message, documents=["Children take at most 2 tablets a day."])
    extractor = HeuristicClaimExtractor(message=message, known=known)
    reader = PrefilledReply(prefill, IncrementalSplitter, extractor, may_instruct=may_instruct)
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
    "prefill", ["Adults sleep. Children take", "Adults sleep. ", "Children", "x " * 3000 + "We take", "We"]
)
@pytest.mark.parametrize("before", ["", "***\n\n", "---\n\n***\n\n", "\n\n- "])
def test_sentences_are_those_of_the_reply(prefill: str, size: int, before: str) -> None:
    reply = f"{before} at most 4 tablets.  Adults take 8; they sleep for 8 hours.\n\nThey eat."
    found = read(prefill, reply, size=size)
    assert "".join(sentence.text for sentence, _ in found) == reply
    assert [sentence.index for sentence, _ in found] == list(range(len(found)))
    for sentence, judged in found:
        assert reply.startswith(sentence.text, sentence.span.start)
        span = sentence.span
        assert all(span.start <= claim.span.start < claim.span.end <= span.end for claim in judged)


@pytest.mark.parametrize("between", ["---\n\n", "---\n\n***\n\n", "---\n\n" * 100])
def test_only_the_first_sentence_with_words_is_joined(between: str) -> None:
    judged = ["The dose is 8 tablets.", "The canteen opens at 9."]
    assert claims("The dose is ", f"8 tablets.\n\n{between}The canteen opens at 9.") == judged
    assert claims("The dose is ", f"{between}8 tablets.\n\nThe canteen opens at 9.") == judged


def test_claim_that_begins_in_the_prefill_is_not_correctable() -> None:
    (_, (begun,)), (_, (later,)) = read("Children never", " take 4 tablets. They take 2.")
    assert (begun.correctable, later.correctable) == (False, True)
    assert not any(claim.correctable for _, found in read("We", "- take 4; sleep.") for claim in found)


@pytest.mark.parametrize(
    ("line", "reply", "judged"),
    [
        ("Summarise the rules", "\n\nChildren take 2.", ["Children take 2."]),
        ("Summarise the rules", "\n\n- Children take 2.", ["Children take 2."]),
        ("Summarise the rules", "\n\n**Children** take 2.", ["Children take 2."]),
        ("Summarise the rules", "***\n\nChildren take 2.", ["Children take 2."]),
        ("Résume les règles", "\n\nÀ midi, 2.", ["À midi, 2."]),
        ("总结规则", "\n\n儿童服用两片。", ["儿童服用两片。"]),
        ("Be brief.", " Children take 2.", ["Children take 2."]),
        ("Our dose is for", " Children.", ["Our dose is for Children.", "Children."]),
        ("It is not true that", "Children take 2.", ["It is not true that Children take 2.", "Children take 2."]),
        ("It is not true that", "\nChildren take 2.", ["It is not true that Children take 2.", "Children take 2."]),
        ("Children never", " take 2.", ["Children never take 2.", "take 2."]),
        ("Children never", "\n\ntake 2.", ["Children never take 2.", "take 2."]),
        ("Children take", "\n\n20 tablets.", ["Children take 20 tablets.", "20 tablets."]),
        ("Children take", "\n\n- 20 tablets.", ["Children take - 20 tablets.", "- 20 tablets."]),
    ],
)
def test_last_line_of_a_prompt_is_read_as_an_instruction_and_as_a_beginning(
    line: str, reply: str, judged: list[str]
) -> None:
    assert [claim.text for _, found in read(line, reply, may_instruct=True) for claim in found] == judged


@pytest.mark.parametrize("reply", ["Yes.", " yes.", "\n\nYes.", "\n\nSure."])
def test_yes_after_an_instruction_is_judged_with_the_question(reply: str) -> None:
    prompt = "May children take 4?\nAnswer with yes or no"
    ((_, found),) = read("Answer with yes or no", reply, may_instruct=True, message=prompt)
    assert found[-1].text == f"{prompt} {reply.strip()}"


def test_instruction_is_no_context_of_a_new_paragraph() -> None:
    found = read("Adults sleep. Tell me about children", "\n\nChildren take 2. They sleep.", may_instruct=True)
    assert [claim.context for _, judged in found for claim in judged] == ["", "Children take 2."]
    (_, (_, claim)), _ = read("Tell me about children", "They take 2. OK.", may_instruct=True)
    assert claim.context == ""


@pytest.mark.parametrize(
    ("prefill", "opens"),
    [
        ("{", True),
        ("[", True),
        ('{"days":', True),
        ('{"days": [1, 2]', True),
        ('{"note": "The lamp', True),
        ('{"note": "}",', True),
        ('{"note": "\\"}",', True),
        ('A 5" screen: {', True),
        (":-} Here: [", True),
        ("", False),
        ("Return the leave days as JSON", False),
        ('Return {"days": 1} or [1]', False),
        ("```json\n", False),
        ("} ]", False),
    ],
)
def test_beginning_of_json_is_recognised(prefill: str, opens: bool) -> None:
    assert opens_json(prefill) is opens


@pytest.mark.parametrize("unit", ['"', '\\"', '"\\', "{", '{"', "[]"])
def test_beginning_of_json_is_recognised_in_linear_time(unit: str) -> None:
    start = time.perf_counter()
    opens_json(unit * 50_000)
    assert time.perf_counter() - start < 1.0


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


@pytest.mark.parametrize(
    ("prefill", "reply", "judged"),
    [
        ("Children take approx.", " 4 tablets.", ["Children take approx. 4 tablets."]),
        ("Children take max.", " 4 tablets.", ["Children take max. 4 tablets."]),
        ("Children take (max.)", " 4 tablets.", ["Children take (max.) 4 tablets."]),
        ("Children never see Dr.", " Roe for 4 tablets.", ["Children never see Dr. Roe for 4 tablets."]),
        ("Children take...", " 4 tablets.", ["Children take... 4 tablets."]),
        ("Children take …", " 4 tablets.", ["Children take … 4 tablets."]),
        ("Children take “...”", " 4 tablets.", ["Children take “...” 4 tablets."]),
        ("It is not No.", " 4.", ["It is not No. 4."]),
        ("Kinder nehmen z. B.", " 4 Tabletten.", ["Kinder nehmen z. B. 4 Tabletten."]),
        ("Adults take 8 at 9 p.m.", " Children take 4.", ["Children take 4."]),
        ("Adults take 8.", "\n\nChildren take 4.", ["Children take 4."]),
        ("Adults take 8!", " Children take 4.", ["Children take 4."]),
    ],
)
def test_splitter_decides_whether_the_prefill_ends_a_sentence(prefill: str, reply: str, judged: list[str]) -> None:
    assert claims(prefill, reply) == judged


@pytest.mark.parametrize(
    ("prefill", "context"),
    [
        ("Children must never do this:\n", "Children must never do this:"),
        ("The following is wrong:\n\n", "The following is wrong:"),
        ("# Not allowed\n\n", "Not allowed"),
        ("Children:\n\n", "Children:"),
    ],
)
def test_reply_is_read_with_a_lead_in_of_the_prefill(prefill: str, context: str) -> None:
    ((_, (claim,)),) = read(prefill, "Take 4 tablets every day and drink water.")
    assert claim.context == context
