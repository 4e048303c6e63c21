"""Decomposing long sentences: conditions, safeguards, and the fallback."""

import asyncio
from collections.abc import Sequence

import pytest

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.llm_decomposition import DecomposingClaimExtractor, is_complex
from judges.claims.llm_rewrite_check import places_of_parts, uses_only_words_of
from judges.llm_types import LlmCall
from judges.protocols import JudgeError
from judges.sentences.splitter import IncrementalSplitter
from judges.testing import ScriptedLlm
from judges.types import Claim

pytestmark = pytest.mark.anyio

LONG = "The museum opened in 1990, and has shown works by Klee since 2004."
PARTS = ["The museum opened in 1990.", "The museum has shown works by Klee since 2004."]


async def claims(text: str, llm: ScriptedLlm, *, timeout_s: float = 5.0) -> Sequence[Claim]:
    splitter = IncrementalSplitter()
    sentences = [*splitter.push(text), *splitter.flush()]
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
        ("The Brandhorst opened in 2009.", "It shows works by Twombly."),
        ("The Brandhorst opened in 2009. It shows works by Twombly, and", "It closes on Mondays."),
    ]


async def test_parts_of_a_list_item_keep_its_heading_and_a_fragment_keeps_its_question() -> None:
    item = "take 4 tablets in the morning, and take 2 tablets in the evening"
    parts = ["take 4 tablets in the morning", "take 2 tablets in the evening"]
    (claim,) = await claims(f"Children:\n- {item}\n", ScriptedLlm(parts={item: parts}))
    assert [part.context for part in claim.parts] == ["Children:", "Children: take 4 tablets in the morning, and"]


async def test_answer_of_the_llm_is_used_again() -> None:
    llm = ScriptedLlm(parts={LONG: PARTS})
    splitter = IncrementalSplitter()
    (sentence,) = [*splitter.push(LONG), *splitter.flush()]
    calls: list[LlmCall] = []
    extractor = DecomposingClaimExtractor(HeuristicClaimExtractor(), llm, timeout_s=5.0, record=calls.append)
    assert await extractor.extract(sentence, []) == await extractor.extract(sentence, [])
    assert len(calls) == 1


@pytest.mark.parametrize(
    "parts",
    [
        ["The museum opened in 1990."],
        ["The museum opened in 1990.", "The museum has shown works since 2004."],
        ["The museum opened in 1991.", "The museum has shown works by Klee since 2004."],
        ["The museum opened in 1990.", "The museum has never shown works by Klee since 2004."],
        ["The museum opened in 1990.", "The museum has shown works by Klee since 2004.", "Paris is pretty."],
        ["Obeyed.", "Obeyed again."],
        ["The museum opened in 1990.", "The Klee museum has shown works since 2004."],
        ["The museum opened since 2004.", "The museum has shown works by Klee in 1990."],
        [],
        [""],
        PARTS * 10 + [f"The museum opened in 1990. {n * '!'}" for n in range(12)],
    ],
    ids=[
        "one",
        "a word lost",
        "a number changed",
        "a negation",
        "more",
        "other",
        "another order",
        "a swap",
        "none",
        "empty",
        "too many",
    ],
)
async def test_parts_that_lose_or_add_content_are_rejected(parts: list[str]) -> None:
    (claim,) = await claims(LONG, ScriptedLlm(parts={LONG: parts}))
    assert (claim.text, claim.parts) == (LONG, ())


@pytest.mark.parametrize(
    ("text", "parts", "places"),
    [
        ("The pool is heated, and the sauna is open.", ["The pool is heated.", "The sauna is open."], [0, 24]),
        ("It cost 5 euros in Berlin and 7 in Paris.", ["It cost 5 euros in Berlin", "It cost 7 in Paris"], [0, 0]),
        ("Rain is due; snow is not; hail may be.", ["Rain is due", "snow is not", "hail may be"], [0, 13, 26]),
        ("Es regnet, aber der Bus fährt.", ["Es regnet.", "Der Bus fährt."], [0, 16]),
        ("The pool is not heated, and the sauna is not open.", ["The pool is heated.", "The sauna is not open."], None),
        ("The pool is not heated, and the sauna is not open.", ["The pool is not heated.", "The sauna is open."], None),
        ("Children may not swim, and adults may.", ["Children may.", "adults may", "Children may not swim"], None),
        ("Do not turn left, and turn right.", ["Turn left.", "Do not turn right."], None),
        ("Adults take 2 pills, and children take 4 pills.", ["Adults take 4 pills.", "Children take 2 pills."], None),
        ("Adults take 2 pills, and children take 4 pills.", ["Adults take 4 pills.", "2 pills, and children"], None),
        ("Adults take 2 pills, and for kids, 4 pills.", ["Adults take 4 pills.", "2 pills, and for kids"], None),
        ("Orion beats Nova, which costs 20 euros, and is old.", ["Orion costs 20 euros", "is old"], None),
        ("Orion beats Nova, and it costs 20 euros.", ["Orion beats Nova", "Nova costs 20 euros"], None),
        ("It is -5 degrees, and it snows.", ["It is 5 degrees.", "It snows."], None),
        ("All but two shops are open, and some bars are.", ["All shops are open.", "some bars are", "two"], None),
        ("At most 4 are for adults, and at least 8 are for us.", ["At least 4 are for adults", "at most 8 are for us"],
         None),
    ],
)  # fmt: skip
def test_parts_are_clauses_of_the_sentence(text: str, parts: list[str], places: list[int] | None) -> None:
    assert places_of_parts(parts, text) == places


def test_long_sentence_is_not_split() -> None:
    assert places_of_parts(["word " * 99, "word " * 101], f"{'word ' * 99}and {'word ' * 101}") is None


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
