import pytest

from judges.types import Chunk
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents

NAMES = DocumentNames([Chunk(id="d1", text="x", source="faq.pdf"), Chunk(id="d2", text="y", source="Legal Review")])
LEAVE = DocumentNames(
    [Chunk(id="d1", text="Annual leave: 25 days. Not for contractors.", source="hr.pdf", url="https://hr.test/7")]
)


@pytest.mark.parametrize(
    "marker",
    [
        "[1]", "[2]", "[^1]", "[1, 2]", "[1-2]", "(faq.pdf)", "[faq.pdf, p. 3]", "【1†source】", "【1†faq.pdf】",
        "[Source: faq.pdf]", "[d2]", "(Legal Review)", "[doc 1]", "{faq.pdf}", "<d1>", "（faq.pdf）", "〔d2〕",
        "⟨faq.pdf⟩", "(`faq.pdf`)", '("faq.pdf", d2)', "(see also faq.pdf)", "(siehe d2, S. 3)", "(source: *faq.pdf*)",
    ],
)  # fmt: skip
def test_bracket_of_document_names_is_a_marker(marker: str) -> None:
    assert names_only_documents(marker, NAMES)


@pytest.mark.parametrize(
    "bracket",
    [
        "[3]", "[1, or take 8]", "[1 or take 8]", "(1)", "【1†take 8】", "【or 8】", "[1-9]",
        "[Source: or 8 if it hurts]", "(8 tablets)", "[]", "[faq.pdf, take 8]", "[p. 3]", "[2001]", "[other.pdf]",
        "{1}", "<2>", "（1）", "(see)", "(see 1)", "(faq.pdf says 8)", "(in Denmark, faq.pdf)", "<b>",
    ],
)  # fmt: skip
def test_bracket_with_other_text_is_no_marker(bracket: str) -> None:
    assert not names_only_documents(bracket, NAMES)


@pytest.mark.parametrize(
    "marker",
    [
        "【1†source†L10-L20】", "【1†hr.pdf†annual-leave】", "[d1#annual-leave]", "[d1:leave]", "(hr.pdf#page=3)",
        "(https://hr.test/7#annual-leave)", "[see https://hr.test/7#2]",
    ],
)  # fmt: skip
def test_place_in_a_marker_is_a_number_or_an_anchor(marker: str) -> None:
    assert names_only_documents(marker, LEAVE)


@pytest.mark.parametrize(
    "bracket",
    [
        "【1†source†25 days for contractors】", "【1†hr.pdf†annual leave for contractors】", "[1†source†leave 25 days]",
        "(https://hr.test/7#leave for contractors)", "[see https://hr.test/7#not for contractors]", "(hr.pdf#not)",
        "[d1#for-contractors-25]", "【1†source†annual leave】",
    ],
)  # fmt: skip
def test_place_that_makes_a_statement_of_known_words_is_no_place(bracket: str) -> None:
    assert not names_only_documents(bracket, LEAVE)
