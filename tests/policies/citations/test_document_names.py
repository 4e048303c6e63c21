"""A name means all documents that have it."""

import pytest

from judges.types import Chunk
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import find_citations

PASSAGES = [
    Chunk(id="a", text="x", source="p.pdf", title="Prices", url="https://s.test/p"),
    Chunk(id="b", text="y", source="P.pdf", title="Prices", url="https://s.test/p/"),
    Chunk(id="c", text="z", source="q.pdf", title="Hours", url="https://s.test/p"),
    Chunk(id="c", text="u", source="r.pdf"),
]
NAMES = DocumentNames(PASSAGES)


@pytest.mark.parametrize(
    ("name", "documents"),
    [
        ("p.pdf", (0, 1)),
        ("Prices", (0, 1)),
        ("https://s.test/p#x", (0, 1, 2)),
        ("a", (0,)),
        ("c", (2, 3)),
        ("unknown", ()),
    ],
)
def test_name_means_all_documents_that_have_it(name: str, documents: tuple[int, ...]) -> None:
    assert NAMES.get(name) == documents


def test_first_known_name_counts() -> None:
    assert NAMES.first_named(["unknown", "q.pdf", "p.pdf"]) == (2,)
    assert NAMES.first_named([]) == ()


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("Five [p.pdf].", (0, 1)),
        ("Five [p.pdf, p. 3].", (0, 1)),
        ("Five (see p.pdf).", (0, 1)),
        ("Five 【1:0†p.pdf】.", (0, 1)),
        ("Five [Prices].", (0, 1)),
        ("Five “Prices”.", (0, 1)),
        ("Five https://s.test/p.", (0, 1, 2)),
        ("As p.pdf says, five.", (0, 1)),
        ("Five [c].", (2, 3)),
        ("Five [2].", (1,)),
        ("Five [^1].\n\n[^1]: Prices", (0, 1)),
        ("Five [^1].\n\n[^1]: “Hours”, https://s.test/p", (2,)),
    ],
)
def test_citation_refers_to_all_documents_with_the_name(text: str, documents: tuple[int, ...]) -> None:
    found = find_citations(text, NAMES)
    assert [citation.documents for citation in found][:1] == [documents]
