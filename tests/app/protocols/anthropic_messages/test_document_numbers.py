"""Text in an upstream's citations: names are sent as they are, and quotations only if a document contains them."""

from typing import Any

import pytest

from app.protocols.anthropic_messages.document_numbers import DocumentNumbers
from app.protocols.anthropic_messages.request import DocumentBlock
from judges.types import Chunk

TEXT = "Staff who are unable to\nwalk receive\n\n25 days. 年假\n是25天。"
BLOCK = DocumentBlock(
    kind="document", path=(), texts=("It opens.", "It closes."), plain=False, source=None, title=None, document=0
)
NUMBERS = DocumentNumbers((BLOCK,), (Chunk(id="1", text=TEXT, title="Two words", source="hr.pdf"),))


@pytest.mark.parametrize(
    ("quoted", "says"),
    [
        ("unable to walk", True),
        ("unable to\nwalk  receive 25 days.", True),
        ("年假是25天", True),
        ("It opens.It closes.", True),
        ("", True),
        ("able to walk", False),
        ("unable towalk", False),
        ("un able to walk", False),
        ("receive 2", False),
        ("receive 2 5 days", False),
    ],
)
def test_quotation_has_the_words_of_a_document(quoted: str, says: bool) -> None:
    assert NUMBERS.says(quoted) is says


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("cited_text", "unable to walk", "unable to walk"),
        ("cited_text", "Walk-to-work.", ""),
        ("cited_text", "hr.pdf", ""),
        ("cited_text", "…", "…"),
        ("note", "Walk-to-work.", ""),
        ("url", "https://other.test/walk", "https://other.test/walk"),
        ("source", "other.pdf", "other.pdf"),
        ("title", "Two words", "Two words"),
        ("title", "Other words", None),
        ("document_title", "other.pdf", "other.pdf"),
        ("file_id", "file_1", "file_1"),
    ],
)
def test_only_names_are_sent_as_they_are(field: str, value: str, kept: str | None) -> None:
    event: dict[str, Any] = {"delta": {"type": "citations_delta", "citation": {field: value}}}
    assert NUMBERS.with_known_citation(event)["delta"]["citation"] == {field: kept}
