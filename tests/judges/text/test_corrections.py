"""A correction in the text: changes are marked, and without the marks, the text reads like the correction."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from judges.text.corrections import corrected_sentence, marked, marked_parts, replacement
from judges.types import Claim, ClaimVerdict, Label, Sentence, SentenceVerdict, Span


@pytest.mark.parametrize(
    ("said", "correction", "text"),
    [
        ("Revenue was $2.4B in Q3.", "Revenue was $2.1B in Q3.", "Revenue was [CORRECTED: $2.1B] in Q3."),
        ("Revenue was $2.4B", "Revenue was $2.1B", "Revenue was [CORRECTED: $2.1B]"),
        ("Revenue was $2.4B.", "Revenue was $2.1B", "Revenue was [CORRECTED: $2.1B]."),
        ("It takes nine\nworking days!", "It takes three working days.", "It takes [CORRECTED: three]\nworking days!"),
        ("The lamp is not made of brass.", "The lamp is made of brass.", "The lamp is [CORRECTED: made] of brass."),
        ("The lamp costs 20 euros today.", "The lamp costs 20 euros.", "The lamp costs 20 [CORRECTED: euros]."),
        ("The lamp is brass.", "The lamp is not brass.", "The lamp is [CORRECTED: not] brass."),
        ("The lamp costs 20.", "The lamp costs 20 euros.", "The lamp costs 20 [CORRECTED: euros]."),
        ("Staff get 40 days and 9 hours.", "Staff get 25 days and 8 hours.",
         "Staff get [CORRECTED: 25] days and [CORRECTED: 8] hours."),
        ("It costs 40 euros. [1] [2]", "It costs 20 euros.", "It costs [CORRECTED: 20] euros."),
        ("It costs 40 euros 【1†source】.", "It costs 20 euros.", "It costs [CORRECTED: 20] euros."),
        ("It costs 40 euros [1](a.pdf).", "It costs 20 euros.", "It costs [CORRECTED: 20] euros."),
        ("It costs 40 euros.[1](a.pdf 'Fees (2025)')", "It costs 20 euros.", "It costs [CORRECTED: 20] euros."),
        ("It costs 40 euros [1](a.pdf), [2](b.pdf).", "It costs 20 euros.", "It costs [CORRECTED: 20] euros."),
        ("It costs 40 euros ([1](a.pdf); [2]).", "It costs 20 euros.", "It costs [CORRECTED: 20] euros."),
        ("It costs 40 euros [[1](a.pdf)].", "It costs 20 euros.", "It costs [CORRECTED: 20] euros."),
        ("It costs 40 euros [[1]](a.pdf).", "It costs 20 euros.", "It costs [CORRECTED: 20] euros."),
        ("It costs 40 (forty) euros.", "It costs 20 (twenty) euros.", "It costs [CORRECTED: 20 (twenty)] euros."),
        ("It rains.", "The sun\nshines.", "[CORRECTED: The sun shines.]"),
        ("昨日は雨でした。", "昨日は晴れでした。", "[CORRECTED: 昨日は晴れでした。]"),
        ("It rains.", "It rains.", "[CORRECTED: It rains.]"),
    ],
)  # fmt: skip
def test_changed_words_are_marked(said: str, correction: str, text: str) -> None:
    assert marked(said, correction) == text


words = st.lists(st.sampled_from(["a", "b", "c", "1", "2"]), min_size=1, max_size=12).map(" ".join)


@example(said="a a a a a a b a a", correction="a a a a a a a")
@given(words, words)
def test_text_without_the_marks_is_the_correction(said: str, correction: str) -> None:
    text = marked(said, correction)
    assert "[CORRECTED: " in text
    assert re.sub(r"\[CORRECTED: ([^\]]*)\]", r"\1", text).split() == correction.split()


def test_long_statement_is_marked_as_a_whole() -> None:
    said = "word " * 100 + "end"
    assert marked(said, "word " * 99 + "end") == "[CORRECTED: " + "word " * 99 + "end]"


def test_several_statements_are_marked_in_place() -> None:
    text = "- Rain falls on 3 days, and snow falls on 9 days."
    parts = [("Rain falls on 3 days", "Rain falls on 4 days"), ("snow falls on 9 days", "snow falls on 8 days")]
    assert marked_parts(text, parts) == "- Rain falls on [CORRECTED: 4] days, and snow falls on [CORRECTED: 8] days."
    assert marked_parts(text, parts[::-1]) is None
    assert marked_parts(text, [("", "x")]) is None


def verdict(text: str, *corrections: tuple[str, str | None]) -> SentenceVerdict:
    claims = [
        ClaimVerdict(
            claim=Claim(text=said, span=Span(7 + text.index(said), 7 + text.index(said) + len(said)), sentence_index=0),
            label=Label.CONTRADICTED,
            entailed=0.0,
            contradicted=1.0,
            correction=correction,
        )
        for said, correction in corrections
    ]
    sentence = Sentence(index=0, text=text, span=Span(7, 7 + len(text)), plain=text)
    return SentenceVerdict(sentence=sentence, label=Label.CONTRADICTED, claims=tuple(claims))


@pytest.mark.parametrize(
    ("text", "corrections", "shown", "read"),
    [
        ("It rains.\n", [("It rains.", "It snows.")], "It [CORRECTED: snows].", "It snows."),
        ("- It rains.", [("- It rains.", "It snows.")], "- It [CORRECTED: snows].", "- It snows."),
        ("> 2. It rains.", [("> 2. It rains.", "It snows.")], "> 2. It [CORRECTED: snows].", "> 2. It snows."),
        ("| Sky | rain |", [("| Sky | rain |", "Sky: sun")], "| [CORRECTED: Sky: sun] |", "| Sky: sun |"),
        ("It rains [1].", [("It rains [1].", "It snows.")], "It [CORRECTED: snows].", "It snows."),
        (
            "It rains; the sun shines.",
            [("It rains;", "It snows;"), ("the sun shines.", "the moon shines.")],
            "It [CORRECTED: snows]; the [CORRECTED: moon] shines.",
            "It snows; the moon shines.",
        ),
        (
            "- It rains; the sun shines.",
            [("It rains;", None), ("the sun shines.", "The moon shines.")],
            "- [CORRECTED: The moon shines.]",
            "- The moon shines.",
        ),
    ],
)
def test_sentence_reads_the_same_without_marks(
    text: str, corrections: list[tuple[str, str | None]], shown: str, read: str
) -> None:
    told = verdict(text, *corrections)
    assert str(corrected_sentence(told)) == shown
    assert str(corrected_sentence(told, mark=str)) == read


def test_corrections_are_on_one_line() -> None:
    assert replacement(["The sun\nshines.", " No rain. "]) == "[CORRECTED: The sun shines. No rain.]"
