"""Untrusted texts as markup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from app.dashboard.trace.highlighting import breakable, emphasise, excerpt, marked, nearest_sentence, shown


def test_markup_in_a_text_is_escaped() -> None:
    assert shown("<script>&") == "&lt;script&gt;&amp;"


@pytest.mark.parametrize("hidden", ["\x00", "\x1b", "\u202e", "\u200f", "\u2066", "\ufeff", "\U000e0041"])
def test_invisible_characters_are_named(hidden: str) -> None:
    made = shown(f"a{hidden}b")
    assert hidden not in made
    assert f"U+{ord(hidden):04X}" in made


def test_run_of_invisible_characters_is_named_once() -> None:
    assert "U+E0041 U+E0042 U+E0043 +97<" in shown("".join(chr(0xE0041 + place % 26) for place in range(100)))


def test_lone_surrogate_does_not_break_a_page() -> None:
    assert shown("a\ud800b").encode() == b"a?b"


def test_long_text_ends_with_a_count() -> None:
    assert shown("x" * 1_500, 500) == "x" * 500 + '<span class="more">… 1,000 more characters</span>'


@given(
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=200),
    st.integers(0, 200),
    st.integers(0, 200),
)
def test_marks_change_no_character(text: str, start: int, end: int) -> None:
    made = marked(text, [(start, end), (3, 5)], 10_000)
    assert made.replace("<mark>", "").replace("</mark>", "") == escape(text)


def test_long_text_shows_its_beginning_and_its_marks() -> None:
    made = marked("a" * 30_000 + "HERE" + "b" * 30_000, [(30_000, 30_004)], 2_000)
    assert "<mark>HERE</mark>" in made
    assert made.startswith("aaa")
    assert len(made) < 4_000
    assert " … 29," in made


def test_sentence_nearest_to_the_claim_is_quoted() -> None:
    text = "Descale it every 3 months. A cycle takes 25 minutes. Empty the tray."
    key = nearest_sentence(text, (0, len(text)), "A cycle takes 45 minutes.")
    assert text[slice(*key)] == "A cycle takes 25 minutes."
    made = excerpt(text, (0, len(text)), key, ["25 minutes"])
    assert made.quote == 'A cycle takes <b class="differs">25 minutes</b>.'
    assert made.before == '<span class="window">Descale it every 3 months. </span>'
    assert nearest_sentence(text, (0, len(text)), "Bicycles are parked elsewhere.") == (0, len(text))


def test_only_whole_words_are_emphasised() -> None:
    assert emphasise("18 or 8", ["8"]) == '18 or <b class="differs">8</b>'


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("hr.pdf", ["hr.", "pdf"]),
        (
            "kb/eu-west/leave_policy.v2.final.docx",
            ["kb/", "eu-", "west/", "leave_", "policy.", "v2.", "final.", "docx"],
        ),
        (r"C:\shares\a.txt", ["C:\\", "shares\\", "a.", "txt"]),
        ("https://kb.example/a--b", ["https://", "kb.", "example/", "a--b"]),
        ("Score 0.25 (max -1.5), and so on...", ["Score 0.25 (max -1.5), and so on..."]),
        ("ends-with-", ["ends-", "with-"]),
        ("", [""]),
        (None, [""]),
    ],
)
def test_line_may_end_after_a_separator_in_a_name(name: str | None, lines: list[str]) -> None:
    assert breakable(name).split("<wbr>") == lines


def test_breakable_name_is_escaped() -> None:
    assert breakable("<b>/&a\u202e.pdf").replace("<wbr>", "") == shown("<b>/&a\u202e.pdf")
