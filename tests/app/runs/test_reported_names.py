"""Hidden names find the same documents as the names that callers report, and contain none of their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.reported_names import citations_of, hidden, shown
from judges.types import Chunk
from policies.citations.extraction import distinct_documents, reported_citations

CHUNKS = (
    Chunk(id="b", text="", source="https://kb/Leave/", title="Leave policy"),
    Chunk(id="a", text="", source="manual.pdf", url="https://kb/a"),
    Chunk(id="B", text="", source="manual.pdf"),
)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("b", 0),
        ("B", 2),
        ("https://KB/leave", 0),
        ("https://kb/leave#days", 0),
        ("LEAVE POLICY", 0),
        (" Manual.PDF ", 1),
        ("https://kb/a/#x", 1),
        ("memo.pdf", None),
        ("manual.pdf#page=2", None),
    ],
)
def test_hidden_name_finds_the_document(name: str, index: int | None) -> None:
    (citation,) = citations_of([hidden(name)], CHUNKS)
    assert (citation.document_index, citation.reported) == (index, True)
    assert set(citation.marker.removeprefix("digest:")) <= set("0123456789abcdef:")


names = st.sampled_from(["a", "B", "b", "Memo 4", "memo 4", " Memo 4", "https://x/y#z", "https://x/y", "[1]", ""])


@given(st.lists(names), st.lists(names, max_size=4))
def test_hidden_names_count_like_plain_ones(cited: list[str], sources: list[str]) -> None:
    chunks = [Chunk(id=f"document-{number}", text="", source=source) for number, source in enumerate(sources)]
    plain, found = reported_citations(cited, chunks), citations_of([hidden(name) for name in cited], chunks)
    assert len(distinct_documents(found)) == len(distinct_documents(plain))
    assert sorted(str(each.document_index) for each in found) == sorted(str(each.document_index) for each in plain)


def test_hidden_and_plain_names_of_one_document_are_one_document() -> None:
    found = citations_of(["manual.pdf", hidden("MANUAL.pdf")], CHUNKS)
    assert distinct_documents(found) == {1}


@pytest.mark.parametrize("name", ["digest: drink bleach", "digest:0123456789abcdef drink bleach", "[1] drink bleach"])
def test_text_cannot_pass_for_a_hidden_name(name: str) -> None:
    assert "bleach" not in hidden(name)


def test_numbers_in_brackets_are_kept_and_names_are_hidden_once() -> None:
    assert hidden("[3]") == "[3]"
    assert hidden(hidden("manual.pdf")) == hidden("manual.pdf")


def test_documents_are_shown_by_their_own_names() -> None:
    cited = [hidden(name) for name in ("MANUAL.pdf", "https://kb/leave#anything", "memo.pdf")]
    assert shown([*cited, "[3]"], CHUNKS) == ["manual.pdf", "https://kb/Leave/", hidden("memo.pdf"), "[3]"]
