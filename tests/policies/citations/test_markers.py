import pytest

from judges.types import Chunk
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents

NAMES = DocumentNames([Chunk(id="d1", text="x", source="faq.pdf"), Chunk(id="d2", text="y", source="Legal Review")])


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
