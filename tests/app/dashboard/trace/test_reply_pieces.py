"""Reconstructing a reply from the rows of its trace."""

from typing import Any

import pytest

from app.dashboard.trace.reply_pieces import Fate, Storage, pieces_of, storage_of


def row(text: str | None, *, index: int = 0, delivered: bool = True, choice: int = 0, **extra: Any) -> dict[str, Any]:
    """A sentence of a trace with one claim."""
    claim = {"text": text, "extra": extra, "label": "supported", "score": 0.9}
    return {"choice": choice, "index": index, "label": "supported", "delivered": delivered, "claims": [claim]}


def test_reply_includes_withheld_text_and_its_replacement() -> None:
    said = [row("It is so. ", index=0), row("It is not. ", index=1, delivered=False)]
    pieces = pieces_of("It is so. I cannot say.", said)
    assert [(piece.text, piece.sentence, piece.fate, piece.instead) for piece in pieces] == [
        ("It is so.", 0, Fate.SENT, False),
        ("It is not.", 1, Fate.WITHHELD, False),
        ("I cannot say.", None, Fate.SENT, True),
    ]


def test_corrected_sentence_is_followed_by_its_correction() -> None:
    corrected = row("It takes 45 minutes.", delivered=False, verdict={"correction": "It takes 25 minutes."})
    pieces = pieces_of("[CORRECTED: It takes 25 minutes.] Enjoy.", [corrected, row(" Enjoy.", index=1)])
    assert [(piece.text, piece.fate, piece.instead) for piece in pieces] == [
        ("It takes 45 minutes.", Fate.CORRECTED, False),
        ("[CORRECTED: It takes 25 minutes.]", Fate.SENT, True),
        ("Enjoy.", Fate.SENT, False),
    ]


def test_unjudged_text_and_choices_are_separate_pieces() -> None:
    pieces = pieces_of('{"a": "One is so.","b": "Two is so."}X.', [
        row("One is so.", index=1), row("Two is so.", index=3), row("X.", choice=1),
    ])  # fmt: skip
    assert [piece.text for piece in pieces] == [
        None, '{"a": "', "One is so.", '","b": "', "Two is so.", None, '"}', "X.",
    ]  # fmt: skip
    assert [piece.choice for piece in pieces if piece.choice is not None] == [0, 1]


def test_regenerated_sentence_was_never_sent() -> None:
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
def test_storage_of_texts_is_inferred_from_a_trace(texts: tuple[str | None, ...], storage: Storage) -> None:
    prompt, sentence = texts
    trace = {"request": {"prompt": prompt, "reply": prompt}, "documents": [], "sentences": [row(sentence)]}
    assert storage_of(trace, "full") is storage
