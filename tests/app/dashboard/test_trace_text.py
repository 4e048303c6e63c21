"""Texts of strangers on a page, and a reply put together from its rows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from app.dashboard.trace.claim_evidence import SentenceReader
from app.dashboard.trace.highlighting import emphasise, excerpt, marked, nearest_sentence, shown
from app.dashboard.trace.reply_pieces import Fate, Storage, pieces_of, storage_of
from app.dashboard.trace.timings import timing_of


def row(text: str | None, *, index: int = 0, delivered: bool = True, choice: int = 0, **extra: Any) -> dict[str, Any]:
    """A sentence of a trace with one claim."""
    claim = {"text": text, "extra": extra, "label": "supported", "score": 0.9}
    return {"choice": choice, "index": index, "label": "supported", "delivered": delivered, "claims": [claim]}


def test_markup_in_a_text_is_text() -> None:
    assert shown("<script>&") == "&lt;script&gt;&amp;"


@pytest.mark.parametrize("hidden", ["\x00", "\x1b", "\u202e", "\u200f", "\u2066", "\ufeff", "\U000e0041"])
def test_what_cannot_be_seen_is_named(hidden: str) -> None:
    made = shown(f"a{hidden}b")
    assert hidden not in made
    assert f"U+{ord(hidden):04X}" in made


def test_a_run_of_hidden_characters_is_named_once() -> None:
    assert "U+E0041 U+E0042 U+E0043 +97<" in shown("".join(chr(0xE0041 + place % 26) for place in range(100)))


def test_half_of_a_surrogate_pair_does_not_break_a_page() -> None:
    assert shown("a\ud800b").encode() == b"a?b"


def test_beyond_its_limit_a_text_says_how_much_more_there_is() -> None:
    assert shown("x" * 1_500, 500) == "x" * 500 + '<span class="more">… 1,000 more characters</span>'


@given(
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=200),
    st.integers(0, 200),
    st.integers(0, 200),
)
def test_marks_change_no_character(text: str, start: int, end: int) -> None:
    made = marked(text, [(start, end), (3, 5)], 10_000)
    assert made.replace("<mark>", "").replace("</mark>", "") == escape(text)


def test_of_a_long_text_the_begin_and_what_is_marked_are_shown() -> None:
    made = marked("a" * 30_000 + "HERE" + "b" * 30_000, [(30_000, 30_004)], 2_000)
    assert "<mark>HERE</mark>" in made
    assert made.startswith("aaa")
    assert len(made) < 4_000
    assert " … 29," in made


def test_the_sentence_that_a_claim_is_nearest_to_is_the_quote() -> None:
    text = "Descale it every 3 months. A cycle takes 25 minutes. Empty the tray."
    key = nearest_sentence(text, (0, len(text)), "A cycle takes 45 minutes.")
    assert text[slice(*key)] == "A cycle takes 25 minutes."
    made = excerpt(text, (0, len(text)), key, ["25 minutes"])
    assert made.quote == 'A cycle takes <b class="differs">25 minutes</b>.'
    assert made.before == '<span class="window">Descale it every 3 months. </span>'
    assert nearest_sentence(text, (0, len(text)), "Bicycles are parked elsewhere.") == (0, len(text))


def test_numbers_are_emphasised_where_they_stand_alone() -> None:
    assert emphasise("18 or 8", ["8"]) == '18 or <b class="differs">8</b>'


def test_a_reply_is_put_together_with_what_was_left_out_and_what_stood_instead() -> None:
    said = [row("It is so. ", index=0), row("It is not. ", index=1, delivered=False)]
    pieces = pieces_of("It is so. I cannot say.", said)
    assert [(piece.text, piece.sentence, piece.fate, piece.instead) for piece in pieces] == [
        ("It is so.", 0, Fate.SENT, False),
        ("It is not.", 1, Fate.WITHHELD, False),
        ("I cannot say.", None, Fate.SENT, True),
    ]


def test_a_corrected_sentence_is_followed_by_its_correction() -> None:
    corrected = row("It takes 45 minutes.", delivered=False, verdict={"correction": "It takes 25 minutes."})
    pieces = pieces_of("[CORRECTED: It takes 25 minutes.] Enjoy.", [corrected, row(" Enjoy.", index=1)])
    assert [(piece.text, piece.fate, piece.instead) for piece in pieces] == [
        ("It takes 45 minutes.", Fate.CORRECTED, False),
        ("[CORRECTED: It takes 25 minutes.]", Fate.SENT, True),
        ("Enjoy.", Fate.SENT, False),
    ]


def test_text_that_nobody_judged_stands_between_sentences_and_choices_are_told_apart() -> None:
    pieces = pieces_of('{"a": "One is so.","b": "Two is so."}X.', [
        row("One is so.", index=1), row("Two is so.", index=3), row("X.", choice=1),
    ])  # fmt: skip
    assert [piece.text for piece in pieces] == [
        None, '{"a": "', "One is so.", '","b": "', "Two is so.", None, '"}', "X.",
    ]  # fmt: skip
    assert [piece.choice for piece in pieces if piece.choice is not None] == [0, 1]


def test_what_is_asked_for_anew_was_never_sent() -> None:
    pieces = pieces_of("New.", [row("Old.", delivered=False, retracted=True), row("New.", index=1)])
    assert [piece.fate for piece in pieces] == [Fate.RETRACTED, Fate.SENT]


@pytest.mark.parametrize(
    ("texts", "storage"),
    [
        (("sha256:" + "0" * 64, None), Storage.HASH),
        ((None, None), Storage.NONE),
        (("sha256:" + "0" * 64, "said so"), Storage.FULL),
    ],
)
def test_a_trace_tells_what_was_kept_of_its_texts(texts: tuple[str | None, ...], storage: Storage) -> None:
    prompt, sentence = texts
    trace = {"request": {"prompt": prompt, "reply": prompt}, "documents": [], "sentences": [row(sentence)]}
    assert storage_of(trace, "full") is storage


def test_a_claim_shows_the_number_that_differs_and_what_the_document_says() -> None:
    document = {"position": 0, "document_id": "d", "title": "Manual", "source": None, "kept": True}
    text = "A descaling cycle takes 25 minutes."
    said = "A descaling cycle takes 45 minutes."
    claim = {
        "text": said, "label": "contradicted", "score": 0.1, "confidence": 0.9, "document_index": 0, "reason": None,
        "evidence_start": 0, "evidence_end": len(text), "evidence": text,
        "extra": {"verdict": {"claim": {"text": said}, "entailed": 0.1, "contradicted": 0.9}, "at": [5.0, 9.0]},
    }  # fmt: skip
    sentence = {
        "choice": 0, "index": 0, "label": "contradicted", "start": 0, "end": len(said), "delivered": True,
        "claims": [claim],
    }  # fmt: skip
    read = SentenceReader([{**document, "text": text}]).sentence(sentence, 1)
    (made,) = read.claims
    assert [(each.said, each.other) for each in made.numbers] == [("45 minutes", "25 minutes")]
    assert made.passage is not None
    assert (made.passage.name, made.passage.against) == ("Manual", True)
    assert (read.came_ms, read.judged_ms) == (5.0, 9.0)


def test_the_steps_of_a_request_follow_one_another_up_to_its_end() -> None:
    marks = {"upstream_asked": 2.0, "upstream_answered": 10.0, "first_text": 40.0, "upstream_ended": 90.0}
    request = {"total_ms": 100.0, "stream": True, "judge_ms": 30.0, "upstream_ms": 88.0}
    timing = timing_of({**request, "marks": {**marks, "first_out": 50.0}}, [])
    assert [(step.start, step.end) for step in timing.steps] == [(0, 2), (2, 10), (10, 40), (40, 90), (90, 100)]
    assert timing.first_out_ms == 50.0
    older = timing_of({**request, "marks": None}, [])
    assert [(step.name, step.ms) for step in older.steps] == [("Upstream", 88.0), ("Gateway", 12.0)]
    assert not older.measured
