"""Searches, and the queries for the full-text index."""

import pytest

from app.events.search.search_query import Phrase, fts5_query, phrases_of, tsquery


@pytest.mark.parametrize(
    ("search", "phrases"),
    [
        ("refund late", (Phrase(("refund",)), Phrase(("late",)))),
        ('"late refund" order', (Phrase(("late", "refund")), Phrase(("order",)))),
        ("refu*", (Phrase(("refu",), prefix=True),)),
        ('"late refu"*', (Phrase(("late", "refu"), prefix=True),)),
        ("re*", (Phrase(("re",)),)),
        ("well-known", (Phrase(("well", "known")),)),
        ('"never closed', (Phrase(("never", "closed")),)),
        ('"" * % ()', ()),
        ("a AND (b OR", (Phrase(("a",)), Phrase(("and",)), Phrase(("b",)), Phrase(("or",)))),
        (
            "NEAR(a b) ^c -d body:e",
            tuple(Phrase(each) for each in (("near", "a"), ("b",), ("c",), ("d",), ("body", "e"))),
        ),
    ],
)
def test_search_consists_of_words_phrases_and_prefixes(search: str, phrases: tuple[Phrase, ...]) -> None:
    assert phrases_of(search) == phrases


def test_queries_quote_every_word() -> None:
    phrases = phrases_of('"or 1=1" drop\' refu*')
    assert fts5_query(phrases) == '"or 1 1" "drop" "refu" *'
    assert tsquery(phrases) == "('or' <-> '1' <-> '1') & ('drop') & ('refu':*)"
