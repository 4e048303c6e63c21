import pytest

from judges.types import Chunk
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents

NAMES = DocumentNames([Chunk(id="d1", text="x", source="faq.pdf"), Chunk(id="d2", text="y", source="Legal Review")])


@pytest.mark.parametrize(
    "marker",
    [
        "[1]", "[2]", "[^1]", "[1, 2]", "[1-2]", "(faq.pdf)", "[faq.pdf, p. 3]", "【1†source】", "【1†faq.pdf】",
        "[Source: faq.pdf]", "[d2]", "(Legal Review)", "[doc 1]",
    ],
)  # fmt: skip
def test_a_bracket_with_nothing_but_documents_is_a_marker(marker: str) -> None:
    assert names_only_documents(marker, NAMES)


@pytest.mark.parametrize(
    "bracket",
    [
        "[3]", "[1, or take 8]", "[1 or take 8]", "(1)", "【1†take 8】", "【or 8】", "[1-9]",
        "[Source: or 8 if it hurts]", "(8 tablets)", "[]", "[faq.pdf, take 8]", "[p. 3]", "[2001]", "[other.pdf]",
    ],
)  # fmt: skip
def test_a_bracket_that_says_anything_else_is_none(bracket: str) -> None:
    assert not names_only_documents(bracket, NAMES)
