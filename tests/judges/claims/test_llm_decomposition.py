"""Decomposing long sentences: conditions, safeguards, and the fallback."""

import asyncio
from collections.abc import Sequence
from time import process_time

import pytest

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.llm_decomposition import DecomposingClaimExtractor, is_complex
from judges.claims.llm_rewrite_check import spans_of_parts, uses_only_words_of
from judges.llm_types import LlmCall
from judges.protocols import JudgeError
from judges.sentences.splitter import IncrementalSplitter
from judges.testing import ScriptedLlm
from judges.types import Claim, Sentence

pytestmark = pytest.mark.anyio

LONG = "The museum opened in 1990, and has shown works by Klee since 2004."
PARTS = ["The museum opened in 1990", "has shown works by Klee since 2004."]


def sentences_of(text: str) -> Sequence[Sentence]:
    splitter = IncrementalSplitter()
    return [*splitter.push(text), *splitter.flush()]


async def claims(text: str, llm: ScriptedLlm, *, timeout_s: float = 5.0) -> Sequence[Claim]:
    sentences = sentences_of(text)
    calls: list[LlmCall] = []
    extractor = DecomposingClaimExtractor(HeuristicClaimExtractor(), llm, timeout_s=timeout_s, record=calls.append)
    return await extractor.extract(sentences[-1], sentences[:-1])


@pytest.mark.parametrize(
    "text",
    [
        "It rains, and the bus is late.",
        "The shop is open while the bar is closed.",
        "The bus is late, however the train is not.",
        "Rain is due; snow is not.",
        "It cost 5 euros in Berlin and 7 in Paris.",
        "Ada Lovelace wrote to Charles Babbage about Luigi Menabrea.",
        "word " * 21 + "end.",
    ],
)
def test_sentence_with_many_words_clauses_names_or_numbers_is_complex(text: str) -> None:
    assert is_complex(text)


@pytest.mark.parametrize(
    "text", ["Staff receive 25 days of leave.", "The museum opened in 1990.", "Ada Lovelace wrote to Charles Babbage."]
)
def test_short_sentence_of_one_clause_is_simple(text: str) -> None:
    assert not is_complex(text)


async def test_complex_sentence_is_decomposed_into_parts_with_its_span() -> None:
    (claim,) = await claims(LONG, ScriptedLlm(parts={LONG: PARTS}))
    assert claim.text == LONG
    assert [part.text for part in claim.parts] == PARTS
    assert {(part.span.start, part.span.end) for part in claim.parts} == {(0, len(LONG))}
    assert {part.sentence_index for part in claim.parts} == {0}


async def test_simple_sentence_needs_no_llm() -> None:
    llm = ScriptedLlm(parts={"The museum opened in 1990.": JudgeError("not to be asked")})
    (claim,) = await claims("The museum opened in 1990.", llm)
    assert claim.text == "The museum opened in 1990."


async def test_text_without_a_claim_needs_no_llm() -> None:
    question = "Did the museum open in 1990, and has it shown works by Klee since 2004?"
    assert await claims(question, ScriptedLlm(parts={question: JudgeError("not to be asked")})) == []


async def test_parts_keep_their_context() -> None:
    text = "The Brandhorst opened in 2009. It shows works by Twombly, and it closes on Mondays."
    second = "It shows works by Twombly, and it closes on Mondays."
    parts = ["It shows works by Twombly.", "It closes on Mondays."]
    (claim,) = await claims(text, ScriptedLlm(parts={second: parts}))
    assert [(part.context, part.text) for part in claim.parts] == [
        ("The Brandhorst opened in 2009.", "It shows works by Twombly"),
        ("The Brandhorst opened in 2009. It shows works by Twombly, and", "it closes on Mondays."),
    ]


async def test_parts_of_a_list_item_keep_its_heading_and_a_fragment_keeps_its_question() -> None:
    item = "take 4 tablets in the morning, and take 2 tablets in the evening"
    parts = ["take 4 tablets in the morning", "take 2 tablets in the evening"]
    (claim,) = await claims(f"Children:\n- {item}\n", ScriptedLlm(parts={item: parts}))
    assert [part.context for part in claim.parts] == ["Children:", "Children: take 4 tablets in the morning, and"]


async def test_answer_of_the_llm_is_used_again() -> None:
    llm = ScriptedLlm(parts={LONG: PARTS})
    (sentence,) = sentences_of(LONG)
    calls: list[LlmCall] = []
    extractor = DecomposingClaimExtractor(HeuristicClaimExtractor(), llm, timeout_s=5.0, record=calls.append)
    assert await extractor.extract(sentence, []) == await extractor.extract(sentence, [])
    assert len(calls) == 1


@pytest.mark.parametrize(("error", "late"), [(JudgeError("down"), False), (TimeoutError(), False), (None, True)])
async def test_llm_that_failed_is_not_asked_again(error: Exception | None, late: bool) -> None:
    answers: dict[str, Sequence[str] | Exception] = {LONG: error or PARTS}
    gate = asyncio.Event()
    if not late:
        gate.set()
    llm = ScriptedLlm(parts=answers, gate=gate)
    (sentence,) = sentences_of(LONG)
    extractor = DecomposingClaimExtractor(HeuristicClaimExtractor(), llm, timeout_s=0.01, record=lambda _: None)
    first = await extractor.extract(sentence, [])
    gate.set()
    llm._parts[LONG] = PARTS
    assert await extractor.extract(sentence, []) == first
    assert [claim.parts for claim in first] == [()]


@pytest.mark.parametrize(
    "parts",
    [
        ["The museum opened in 1990."],
        ["The museum opened in 1990.", "has shown works since 2004."],
        ["The museum opened in 1991.", "has shown works by Klee since 2004."],
        ["The museum opened in 1990.", "has never shown works by Klee since 2004."],
        ["The museum opened in 1990.", "has shown works by Klee since 2004.", "Paris is pretty."],
        ["Obeyed.", "Obeyed again."],
        ["The museum opened in 1990.", "has shown Klee works by since 2004."],
        ["The museum opened since 2004.", "has shown works by Klee in 1990."],
        ["has shown works by Klee since 2004.", "The museum opened in 1990."],
        ["The museum opened in 1990.", "The museum has shown works by Klee since 2004."],
        [],
        [""],
        [*PARTS, ""],
        [PARTS[0], *PARTS],
        PARTS * 7,
    ],
    ids=[
        "one",
        "a word lost",
        "a number changed",
        "a negation",
        "more",
        "other",
        "another order of words",
        "a swap",
        "another order of parts",
        "the subject twice",
        "none",
        "empty",
        "an empty part",
        "a part twice",
        "too many",
    ],
)
async def test_parts_that_lose_or_add_content_are_rejected(parts: list[str]) -> None:
    (claim,) = await claims(LONG, ScriptedLlm(parts={LONG: parts}))
    assert (claim.text, claim.parts) == (LONG, ())


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["The pool is heated", "the sauna is open."], "The pool is heated, and the sauna is open."),
        (["It cost 5 euros in Berlin", "7 in Paris."], "It cost 5 euros in Berlin and 7 in Paris."),
        (["Rain is due", "snow is not", "hail may be!"], "Rain is due; snow is not; hail may be!"),
        (["Es regnet", "der Bus fährt."], "Es regnet, aber der Bus fährt."),
        (["Rain is due", "snow is not."], "Rain is due; however, snow is not."),
        (["However, rain is due", "it is warm"], "However, rain is due  and\nit is warm"),
        (["Red, blue, and green are sold", "“new” is not."], "Red, blue, and green are sold, but “new” is not."),
        (["Take 1,000 mg", "2.5 or -3 ml."], "Take 1,000 mg and 2.5 or -3 ml."),
    ],
)
def test_sentence_is_cut_between_clauses(parts: list[str], text: str) -> None:
    """The LLM may write the parts as sentences, and repeat or leave out conjunctions and commas."""
    for written in (
        parts,
        [f"{part.rstrip('.!').capitalize()}." for part in parts],
        [f"and {part}" for part in parts],
        [part.replace(", and", "").replace("However,", "") for part in parts],
    ):
        spans = spans_of_parts(written, text)
        assert spans is not None
        assert [text[start:end] for start, end in spans] == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Adults with gout take 1 pill at 8, and take 2 pills at 9.",
         ["Adults with gout take 1 pill at 8.", "Adults take 2 pills at 9."]),
        ("Members may not cancel, and claim a refund.", ["Members may not cancel.", "Members may claim a refund."]),
        ("Guests may not enter, and leave bags here.", ["Guests may not enter.", "Guests leave bags here."]),
        ("Staff who left are on page 3, and get a bonus.", ["Staff who left are on page 3.", "Staff get a bonus."]),
        ("Children take 2 pills, and adults take 4 pills, and drink beer.",
         ["Children take 2 pills", "adults take 4 pills", "Children drink beer"]),
        ("Orion weighs 3 kg, but Nova weighs 9 kg, and costs 20 euros.",
         ["Orion weighs 3 kg", "Nova weighs 9 kg", "Orion costs 20 euros"]),
        ("It cost 5 euros in Berlin and 7 in Paris.", ["It cost 5 euros in Berlin", "It cost 7 in Paris"]),
        ("The pool is not heated, and the sauna is not open.", ["The pool is heated.", "the sauna is not open."]),
        ("The pool is not heated, and the sauna is not open.", ["The pool is not heated.", "the sauna is open."]),
        ("Children may not swim, and adults may.", ["Children may.", "adults may", "Children may not swim"]),
        ("Do not turn left, and turn right.", ["Turn left.", "Do not turn right."]),
        ("Do not turn left, and turn right.", ["Do not", "turn left, and turn right."]),
        ("Adults take 2 pills, and children take 4 pills.", ["Adults take 4 pills.", "Children take 2 pills."]),
        ("Adults take 2 pills, and children take 4 pills.", ["Adults take 4 pills.", "2 pills, and children"]),
        ("Adults take 2 pills, for kids, 4 pills.", ["Adults take 2 pills", "for kids", "4 pills"]),
        ("Orion beats Nova, which costs 20 euros, and is old.", ["Orion costs 20 euros", "is old"]),
        ("Orion beats Nova, and it costs 20 euros.", ["Orion beats Nova", "Nova costs 20 euros"]),
        ("It is -5 degrees, and it snows.", ["It is 5 degrees.", "It snows."]),
        ("It costs 1,000 euros, and it snows.", ["It costs 1", "000 euros", "it snows."]),
        ("Take vitamin Y, and rest.", ["Take vitamin", "rest."]),
    ],
)  # fmt: skip
def test_other_words_or_cuts_are_rejected(text: str, parts: list[str]) -> None:
    assert spans_of_parts(parts, text) is None


def test_long_sentences_are_split_in_linear_time() -> None:
    text = "and x " * 20_000
    started = process_time()
    assert spans_of_parts(["x " * 10_000, "x " * 10_000], text) is not None
    assert spans_of_parts(["x", "y"], "x" + " " * 200_000 + "y") is None
    assert process_time() - started < 1.0  # It takes about 0.05 s.


@pytest.mark.parametrize("error", [JudgeError("down"), TimeoutError()])
async def test_sentence_is_kept_if_the_llm_fails(error: Exception) -> None:
    (claim,) = await claims(LONG, ScriptedLlm(parts={LONG: error}))
    assert (claim.text, claim.parts) == (LONG, ())


async def test_sentence_is_kept_if_the_llm_is_late() -> None:
    (claim,) = await claims(LONG, ScriptedLlm(parts={LONG: PARTS}, gate=asyncio.Event()), timeout_s=0.05)
    assert (claim.text, claim.parts) == (LONG, ())


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("Staff receive 25 days.", True),
        ("Staff receive 25 days of paid leave.", True),
        ("Staff receive 26 days.", False),
        ("Call the number below to win a holiday.", False),
    ],
)
def test_correction_uses_only_claim_and_source(text: str, drawn: bool) -> None:
    assert uses_only_words_of(text, "Staff receive 40 days of leave.", "All staff receive 25 days.") is drawn
