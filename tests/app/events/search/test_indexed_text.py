"""The words that are indexed for the search."""

import pytest

from app.events.search.indexed_text import MOST_INDEXED, search_text, words

HASH = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Where's my REFUND?", ["where", "s", "my", "refund"]),
        ("naïve Straße Ǆ ÉTÉ", ["naive", "strasse", "dz", "ete"]),
        ("order_id 12.50€", ["order", "id", "12", "50"]),
        ("返金の件", ["返", "金", "の", "件"]),
        ("a" * 100, ["a" * 64]),
        ("%_\\'\"*()", []),
    ],
)
def test_words_are_normalised_without_case_accents_and_signs(text: str, found: list[str]) -> None:
    assert words(text) == found


def event(
    *, prompt: str | None, reply: str | None, claim: str | None = None, document: str | None = None
) -> dict[str, list[dict[str, str | None]]]:
    return {
        "requests": [{"prompt": prompt, "reply": reply, "question": None}],
        "claims": [{"text": claim}],
        "documents": [{"title": "Travel Policy", "document_id": "hr-7", "source": "hr.pdf", "text": document}],
    }


def test_indexed_text_contains_the_stored_texts() -> None:
    whole = event(prompt="How late?", reply="Two days.", claim="Withdrawn claim.", document="Not indexed.")
    assert search_text(whole) == "two days travel policy hr 7 hr pdf withdrawn claim how late"
    assert search_text(event(prompt=HASH, reply=HASH, claim=HASH, document=HASH)) is None
    assert search_text(event(prompt=None, reply=None)) is None
    longest = search_text(event(prompt="x " * MOST_INDEXED, reply=None))
    assert longest is not None
    assert MOST_INDEXED - 10 < len(longest) <= MOST_INDEXED
