"""Decomposing long sentences: conditions, safeguards, and the fallback."""

import asyncio
from collections.abc import Sequence

import pytest

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.llm_decomposition import DecomposingClaimExtractor, is_complex
from judges.claims.llm_rewrite_check import is_faithful, uses_only_words_of
from judges.llm_types import LlmCall
from judges.protocols import JudgeError
from judges.sentences.splitter import IncrementalSplitter
from judges.testing import ScriptedLlm
from judges.types import Claim

pytestmark = pytest.mark.anyio

LONG = "The museum opened in 1990, and it has shown works by Klee since 2004."
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


async def test_complex_sentence_is_decomposed_into_claims_with_its_span() -> None:
    found = await claims(LONG, ScriptedLlm(parts={LONG: PARTS}))
    assert [claim.text for claim in found] == PARTS
    assert {(claim.span.start, claim.span.end) for claim in found} == {(0, len(LONG))}
    assert {claim.sentence_index for claim in found} == {0}


async def test_simple_sentence_needs_no_llm() -> None:
    llm = ScriptedLlm(parts={"The museum opened in 1990.": JudgeError("not to be asked")})
    (claim,) = await claims("The museum opened in 1990.", llm)
    assert claim.text == "The museum opened in 1990."


async def test_text_without_a_claim_needs_no_llm() -> None:
    question = "Did the museum open in 1990, and has it shown works by Klee since 2004?"
    assert await claims(question, ScriptedLlm(parts={question: JudgeError("not to be asked")})) == []


async def test_antecedent_may_replace_a_pronoun() -> None:
    text = "The Brandhorst opened in 2009. It shows works by Twombly, and it closes on Mondays."
    second = "It shows works by Twombly, and it closes on Mondays."
    parts = ["The Brandhorst shows works by Twombly.", "The Brandhorst closes on Mondays."]
    found = await claims(text, ScriptedLlm(parts={second: parts}))
    assert [claim.text for claim in found] == parts
    assert {claim.context for claim in found} == {""}


@pytest.mark.parametrize(
    "parts",
    [
        ["The museum opened in 1990."],
        ["The museum opened in 1990.", "The museum has shown works since 2004."],
        ["The museum opened in 1991.", "The museum has shown works by Klee since 2004."],
        ["The museum opened in 1990.", "The museum has never shown works by Klee since 2004."],
        ["The museum opened in 1990.", "The museum has shown works by Klee since 2004.", "Paris is pretty."],
        ["Obeyed.", "Obeyed again."],
        [],
        [""],
        PARTS * 10 + [f"The museum opened in 1990. {n * '!'}" for n in range(12)],
    ],
    ids=["one", "a word lost", "a number changed", "a negation", "more", "other", "none", "empty", "too many"],
)
async def test_parts_that_lose_or_add_content_are_rejected(parts: list[str]) -> None:
    (claim,) = await claims(LONG, ScriptedLlm(parts={LONG: parts}))
    assert claim.text == LONG


def test_every_part_must_keep_a_negation() -> None:
    text = "The pool is not heated, and the sauna is not open."
    assert is_faithful(["The pool is not heated.", "The sauna is not open."], text, "")
    assert not is_faithful(["The pool is not heated.", "The sauna is open."], text, "")
    assert not is_faithful(["The pool is heated.", "The sauna is open."], text, "")


def test_conjunctions_may_be_dropped() -> None:
    text = "The pool is heated, while the sauna, which was built in 1999, is open."
    assert is_faithful(["The pool is heated.", "The sauna is open.", "The sauna was built in 1999."], text, "")


@pytest.mark.parametrize("error", [JudgeError("down"), TimeoutError()])
async def test_sentence_is_kept_if_the_llm_fails(error: Exception) -> None:
    (claim,) = await claims(LONG, ScriptedLlm(parts={LONG: error}))
    assert claim.text == LONG


async def test_sentence_is_kept_if_the_llm_is_late() -> None:
    (claim,) = await claims(LONG, ScriptedLlm(parts={LONG: PARTS}, gate=asyncio.Event()), timeout_s=0.05)
    assert claim.text == LONG


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
