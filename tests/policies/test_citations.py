from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.types import Chunk, Sentence, Span
from policies.citations import distinct_documents, find_citations, reported_citations
from policies.names import DocumentNames

CHUNKS = (
    Chunk(id="d1", text="…", source="faq.pdf", title="Frequent questions"),
    Chunk(id="d2", text="…", source="product-manual.pdf", url="https://example.org/manual/"),
    Chunk(id="doc-x", text="…", source="Legal Review", url="https://example.org/Paris_(city)"),
    Chunk(id="d4", text="…", source="faq.pdf"),
    Chunk(id="d5", text="…", source="web"),
)


def cited(text: str, chunks: tuple[Chunk, ...] = CHUNKS, **fields: Any) -> list[tuple[str, int | None]]:
    return [(c.marker, c.document_index) for c in find_citations(text, chunks, **fields)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # numbers
        ("Five euros [1].", [("[1]", 0)]),
        ("Five euros[2].", [("[2]", 1)]),
        ("Five [1, 2] or [3;4].", [("[1]", 0), ("[2]", 1), ("[3]", 2), ("[4]", 3)]),
        ("Five [2-4], [1–2].", [("[2]", 1), ("[3]", 2), ("[4]", 3), ("[1]", 0), ("[2]", 1)]),
        ("Five [^1] and [Source 2], [doc 3].", [("[^1]", 0), ("[Source 2]", 1), ("[doc 3]", 2)]),
        ("Five [1, p. 17].", [("[1]", 0)]),
        ("A link [1](https://elsewhere.org).", [("[1]", 0)]),
        # numbers that name nothing
        ("Five [7].", [("[7]", None)]),
        ("Five [0].", [("[0]", None)]),
        ("Five [1, 9].", [("[1]", 0), ("[9]", None)]),
        # no markers
        ("Smith et al. [2019] and [12345].", []),
        ("A probability in [0, 1] and [0.5, 2].", []),
        ("[citation needed] [sic] [x] [ ] [] [1-10] [a, 1]", []),
        ("Write `a[1]` or ```\na[2]\n``` for it.", []),
        # ids, sources, titles in brackets
        ("Five [d2] and [doc-x].", [("[d2]", 1), ("[doc-x]", 2)]),
        ("Five [d1, doc-x].", [("[d1]", 0), ("[doc-x]", 2)]),
        ("Five [faq.pdf], [WEB], [frequent questions].", [("[faq.pdf]", 0), ("[WEB]", 4), ("[frequent questions]", 0)]),
        # the lenticular forms
        ("Five【4†source】.", [("【4†source】", 3)]),
        ("Five【1:0†product-manual.pdf】.", [("【1:0†product-manual.pdf】", 1)]),
        ("Five【8:1†source】.", [("【8:1†source】", 1)]),
        ("Five【2】and【doc-x】.", [("【2】", 1), ("【doc-x】", 2)]),
        (
            "Five【9†source】【1:0†gone.pdf】【nothing】.",
            [("【9†source】", None), ("【1:0†gone.pdf】", None), ("【nothing】", None)],
        ),
        # names and URLs in the text
        ("As faq.pdf says.", [("faq.pdf", 0)]),
        ("(See FAQ.pdf.)", [("FAQ.pdf", 0)]),
        ("The Legal Review agrees; the legal reviewer too.", [("Legal Review", 2)]),
        ("At https://example.org/manual.", [("https://example.org/manual", 1)]),
        ("At https://example.org/manual#page=3 and /?q=1", [("https://example.org/manual", 1)]),
        ("At (https://example.org/Paris_(city)).", [("https://example.org/Paris_(city)", 2)]),
        ("At https://example.org/manual/other and old-faq.pdf and faq.pdf.bak.", []),
        ("faq.pdf", [("faq.pdf", 0)]),
        ("Found on the web.", []),
        ("Frequent questions are answered.", []),
        ("[faq.pdf](https://example.org/manual)", [("[faq.pdf]", 0), ("https://example.org/manual", 1)]),
    ],
)
def test_markers(text: str, expected: list[tuple[str, int | None]]) -> None:
    assert cited(text) == expected


def test_a_number_is_a_place_before_it_is_an_id() -> None:
    chunks = tuple(Chunk(id=str(i), text="…") for i in (2, 101, 3))
    assert cited("[2] [101] [4]", chunks) == [("[2]", 1), ("[101]", 1), ("[4]", None)]


def test_many_documents_make_a_year_a_number() -> None:
    chunks = tuple(Chunk(id=f"d{i}", text="…") for i in range(2500))
    assert cited("[2019]", chunks) == [("[2019]", 2018)]


def test_ids_in_a_list_that_look_numbered() -> None:
    chunks = (Chunk(id="doc2", text="…"), Chunk(id="doc1", text="…"))
    assert cited("[doc1, doc2]", chunks) == [("[doc1]", 1), ("[doc2]", 0)]


def test_the_longest_name_is_meant() -> None:
    chunks = (Chunk(id="a", text="…", source="Annual Report"), Chunk(id="b", text="…", source="Annual Report 2024"))
    assert cited("The Annual Report 2024 and the Annual Report.", chunks) == [
        ("Annual Report 2024", 1),
        ("Annual Report", 0),
    ]


def test_names_too_short_too_long_or_without_a_word_are_found_in_brackets_alone() -> None:
    chunks = tuple(Chunk(id=f"i{i}", text="…", source=name) for i, name in enumerate(("A1", "x1" * 300, "+++", "/a.b")))
    assert cited(f"A1 {'x1' * 300} +++ a.b [A1] [+++]", chunks) == [("[A1]", 0), ("[+++]", 2)]
    assert cited("a.b", chunks) == []


def test_names_that_begin_or_end_with_no_letter() -> None:
    chunks = (Chunk(id="a", text="…", source="/kb/faq.md"), Chunk(id="b", text="…", source="C++"))
    assert cited("In /kb/faq.md and C++, we read.", chunks) == [("/kb/faq.md", 0), ("C++", 1)]


def sentences(*texts: str, code: frozenset[int] = frozenset()) -> tuple[str, list[Sentence]]:
    made: list[Sentence] = []
    start = 0
    for index, text in enumerate(texts):
        span = Span(start, start + len(text))
        made.append(Sentence(index=index, text=text, span=span, plain=text.strip(), in_code=index in code))
        start = span.end
    return "".join(texts), made


def test_each_citation_has_its_sentence_and_span() -> None:
    text, made = sentences("Ä first [1]. ", "A second. ", "See faq.pdf.")
    first, second = find_citations(text, CHUNKS, made)
    assert (first.sentence_index, second.sentence_index) == (0, 2)
    assert first.span == Span(8, 11)
    assert second.span is not None
    assert text[second.span.start : second.span.end] == "faq.pdf"


def test_code_cites_nothing() -> None:
    text, made = sentences("x = a[1]\n", "Five [2].", code=frozenset({0}))
    assert [c.document_index for c in find_citations(text, CHUNKS, made)] == [1]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (
            {"type": "url_citation", "url_citation": {"url": "https://example.org/manual", "start_index": 13}},
            [("https://example.org/manual", 1, 1)],
        ),
        (
            {"type": "url_citation", "url": "https://example.org/manual/", "start_index": 0, "end_index": 5},
            [("https://example.org/manual/", 1, 0)],
        ),
        ({"type": "file_citation", "file_id": "doc-x", "index": 3}, [("doc-x", 2, 0)]),
        ({"type": "file_citation", "file_id": "file-9", "filename": "faq.pdf"}, [("file-9", 0, None)]),
        ({"type": "file_citation", "file_citation": {"file_id": "d4"}}, [("d4", 3, None)]),
        ({"type": "url_citation", "url": "https://other.org"}, [("https://other.org", None, None)]),
        ({"type": "file_path", "file_id": "d4"}, []),
        ({"type": None}, []),
        ({"type": "url_citation", "url": 5, "start_index": "x"}, []),
        ({}, []),
    ],
)
def test_annotations(annotation: dict[str, Any], expected: list[tuple[str, int | None, int | None]]) -> None:
    text, made = sentences("A first one. ", "A second.")
    found = find_citations(text, CHUNKS, made, [annotation])
    assert [(c.marker, c.document_index, c.sentence_index) for c in found] == expected


def test_names_can_be_prepared_once() -> None:
    names = DocumentNames(CHUNKS)
    for text in ("Five [1].", "As faq.pdf says."):
        assert find_citations(text, names) == find_citations(text, CHUNKS)


def test_reported_citations() -> None:
    found = reported_citations(["faq.pdf", "Federal Reserve Report", "d2", ""], CHUNKS)
    assert [(c.document_index, c.reported) for c in found] == [(0, True), (None, True), (1, True), (None, True)]
    assert distinct_documents(found) == {0, "Federal Reserve Report", 1}


def test_distinct_documents() -> None:
    found = find_citations("[1] faq.pdf [d1] [2] [9]", CHUNKS)
    assert distinct_documents(found) == {0, 1}


@given(st.text(alphabet="[]【】†:`1290,-–; dafq.pweb/^\n", max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    """Spans lie in the text, in order, and a document named is one given."""
    found = find_citations(text, CHUNKS)
    starts = [c.span.start for c in found if c.span is not None]
    assert starts == sorted(starts)
    for citation in found:
        assert citation.span is not None
        assert 0 <= citation.span.start < citation.span.end <= len(text)
        assert citation.document_index is None or 0 <= citation.document_index < len(CHUNKS)


@pytest.mark.parametrize(
    "piece", ["[", "[1", "[1]", "【", "`", "```", "faq ", "faq.", "Legal ", "https://example.org/", "[a,"]
)
def test_time_grows_with_the_length(piece: str) -> None:
    """Thirty times the text of a pathological kind takes far less than its square's time."""

    def seconds(count: int) -> float:
        text = piece * count
        started = perf_counter()
        find_citations(text, CHUNKS)
        return perf_counter() - started

    small = max(min(seconds(1_000) for _ in range(3)), 1e-4)
    assert min(seconds(30_000) for _ in range(2)) < small * 300
