import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.statement_extraction import Statement, statements_of
from judges.sentences.splitter import IncrementalSplitter


def read(text: str, limit: int = 100) -> Sequence[Statement]:
    return asyncio.run(statements_of(text, HeuristicClaimExtractor(), IncrementalSplitter, origin=3, limit=limit))


def test_each_statement_has_its_span_and_antecedent() -> None:
    text = "The plan costs 9 euros. It includes 5 users. Is that enough?"
    first, second = read(text)
    assert (first.text, first.context, first.origin) == ("The plan costs 9 euros.", "", 3)
    assert second.full == "The plan costs 9 euros. It includes 5 users."
    assert text[second.span.start : second.span.end] == "It includes 5 users."


def test_number_of_statements_is_bounded() -> None:
    assert [one.text for one in read("One is here. Two is here. Three is here.", limit=2)] == [
        "One is here.",
        "Two is here.",
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("# Plans\n\n## Basic\n\nIt costs 9 euros.\n\n## Pro\n\nIt costs 19 euros.", ["Plans / Basic", "Plans / Pro"]),
        ("**Basic**\nIt costs 9 euros.\n\n**Pro**\nIt costs 19 euros.", ["Basic", "Pro"]),
        ("## Summary\nIt costs 9 euros.\n\n## Details\nIt costs 19 euros.", ["", ""]),
        ("- Tour A\n  - The tour takes 3 days.\n- Tour B\n  - The tour takes 5 days.", ["Tour A", "Tour B"]),
        ("- The tour takes 3 days.\n- The tour takes 5 days.", ["", ""]),
    ],
)
def test_section_of_a_statement_is_extracted(text: str, where: list[str]) -> None:
    assert [one.section for one in read(text) if "euros" in one.text or "takes" in one.text] == where


def test_attribution_of_a_statement_is_extracted() -> None:
    first, second = read("According to the document, leave is 25 days. Leave is 40 days.")
    assert (first.text, first.attribution) == ("Leave is 25 days.", "according to the document,")
    assert second.attribution == ""
    first, second = read("According to [1], leave is 25 days. According to [2], leave is 40 days.")
    assert (first.attribution, second.attribution) == ("according to [1]", "according to [2]")


@given(st.text(alphabet="Ab1 .\n#*-:", max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    for one in read(text):
        assert 0 <= one.span.start < one.span.end <= len(text)
