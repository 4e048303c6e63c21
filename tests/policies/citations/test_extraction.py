from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.types import Chunk, Sentence, Span
from policies.citations.annotation_parsing import read_annotation
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import distinct_documents, find_citations, reported_citations

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
        ("Five【9†source】【1:0†gone.pdf】.", [("【9†source】", None), ("【1:0†gone.pdf】", None)]),
        ("【重要】年假为25天【2024年】。【注意】", []),
        ("Five [4†source] and [1:0†faq.pdf].", [("[4†source]", 3), ("[1:0†faq.pdf]", 0)]),
        ("Five［1］.", [("[1]", 0)]),
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
        ("See the [manual](https://example.org/manual/).", [("https://example.org/manual", 1)]),
        # titles, where they are set off as such
        ("“Frequent questions” says five.", [("Frequent questions", 0)]),
        ('As "Frequent questions," our guide, says.', [("Frequent questions", 0)]),
        ("„Frequent questions“ und «Frequent questions»", [("Frequent questions", 0)] * 2),
        ("“Frequent questions and answers”", []),
    ],
)
def test_markers(text: str, expected: list[tuple[str, int | None]]) -> None:
    assert cited(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Five [doc1][doc2].", [("[doc1]", 0), ("[doc2]", 1)]),
        ("Five [Document 3] and [DOC-2].", [("[Document 3]", 2), ("[DOC-2]", 1)]),
        ("Five [Source: faq.pdf, p. 3].", [("[faq.pdf]", 0)]),
        ("Five [Sources: 1, 4].", [("[1]", 0), ("[4]", 3)]),
        ("Five [cite: 1, 2] and [citation:3].", [("[1]", 0), ("[2]", 1), ("[3]", 2)]),
        ("Five [[2]] and [[1]](https://elsewhere.org/a).", [("[2]", 1), ("[1]", 0)]),
        ("Five [^1^][^2^].", [("[^1^]", 0), ("[^2^]", 1)]),
        ("Five \\[1\\].", [("[1]", 0)]),
        ("Five <sup>[1]</sup>.", [("[1]", 0)]),
        ("> Five [1]", [("[1]", 0)]),
        ("| Five [1] | Six [2] |", [("[1]", 0), ("[2]", 1)]),
        ("**Five**[1], _six_[2], 'seven'[3], 2024[4]", [("[1]", 0), ("[2]", 1), ("[3]", 2), ("[4]", 3)]),
        ("For COVID-19[1] and v2[2].", [("[1]", 0), ("[2]", 1)]),
        ("Five [doc-x:2], [faq.pdf#page=3], [faq.pdf p. 3], [product-manual.pdf (page 3]", [
            ("[doc-x:2]", 2), ("[faq.pdf#page=3]", 0), ("[faq.pdf p. 3]", 0), ("product-manual.pdf", 1)]),
        ("Five [1-3] (source: product-manual.pdf).", [
            ("[1]", 0), ("[2]", 1), ("[3]", 2), ("product-manual.pdf", 1)]),
        ("It is $5 [1], and US$10 [2].", [("[1]", 0), ("[2]", 1)]),
    ],
)  # fmt: skip
def test_markers_of_models_and_tools_are_found(text: str, expected: list[tuple[str, int | None]]) -> None:
    assert cited(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Smith et al. [1999], [2019], [1999-2003].",
        "[sic] [...] […] [ ] [x] [X] [?] [!] [TODO] [redacted] [name] [emphasis added] [Figure 3] [Section 2.1]",
        "- [x] done\n- [ ] open",
        "HTTP [404], issue [#123], page [p. 3], at [12:30], on [2024-01-05], version [1.2.3], code [E11]",
        "x[9], a[8] = b[7], rows_left[9], matrix[i], items[-1], s[1:9], [a-z], [0-9], [^a-z]",
        "Set `items[9]`, ``a[8]`` or\n~~~\nb[7]\n~~~\nand [9] = 5.",
        "In [0, 1], x ∈ [6, 9], f = [7], the interval [6, 8], a list [6, 7, 8], the range [6-9].",
        "Where $x_[7]$, $[6, 9]$, \\(a[7] + b\\) and \\[ \\sum [8] \\] hold.",
        "[6, 9) and (6, 9], [6; 9[",
        "[a link](https://elsewhere.org/7), [7](https://elsewhere.org/7), ![7](plot.png), [a][b], [b]: https://b.org",
        "Ticket [7](#7) and [8](./8.md).",
        "See [contact us], [optional], [Mr. Smith], [they] were, [sic!], [laughs], [01:12 Anna]",
        "[e.g. a.b], [i.e. none], [config.json]",
        "年假[注1]、[注释]、【附录】",
        '{[7]: 1} [1,000] {"ids": [7]} [50%] [$7] [7 days] [ca. 7]',
    ],
)
def test_other_brackets_are_no_markers(text: str) -> None:
    assert [marker for marker, index in cited(text) if index is None] == []
    assert [index for _, index in cited(text, ())] == []


def test_marker_of_a_missing_document_is_reported() -> None:
    """Another number, an id with another number, a file of the same kind."""
    expected = [("[7]", None), ("[d9]", None), ("[doc 12]", None), ("[pricing.pdf]", None), ("[2]", 1), ("[8]", None)]
    assert cited("Five [7], [d9], [doc 12], [pricing.pdf] or [2, 8].") == expected


def test_marker_copied_from_a_document_is_not_reported() -> None:
    chunks = (Chunk(id="d1", text="Leave is 25 days [12]; see [d9] and rates.pdf.", source="hr.pdf"),)
    assert cited("Leave is 25 days [12] [d9] [rates.pdf] [13].", chunks) == [("[13]", None)]


def test_footnotes_refer_to_their_definition() -> None:
    text = "Five.[^1] Six.[^note] Seven.[^2]\n\n[^1]: product-manual.pdf, p. 3\n[^note]: As of May.\n[^2]: elsewhere\n"
    assert cited(text) == [("[^1]", 1), ("[^1]", 1), ("product-manual.pdf", 1)]


def test_source_list_defines_the_numbers() -> None:
    """[1] in the reply refers to the entry in the reply's own list, regardless of the order of the documents."""
    for entries in ("[1] product-manual.pdf\n[2] Legal Review\n", "1. product-manual.pdf\n2. Legal Review, 2024\n"):
        text = f"Five [1]. Six [2]. Seven [4].\n\n**Sources:**\n\n{entries}"
        assert [index for _, index in cited(text)][:3] == [1, 2, 3]


@pytest.mark.parametrize("before", ["Rain.\n" * 40_000, "\n" * 120_000, "word " * 50_000 + "\n"])
def test_source_list_is_found_at_the_end_of_a_long_text(before: str) -> None:
    text = f"Five [1].\n{before}\n\n  **Sources:**\n\n1. product-manual.pdf\n"
    assert cited(text)[0] == ("[1]", 1)


def test_link_definitions_are_no_citations() -> None:
    text = "See [the shop][1] and [the manual][2].\n\n[1]: https://shop.example\n[2]: https://example.org/manual\n"
    assert {index for _, index in cited(text)} == {1}


def test_line_beginning_with_a_marker_is_no_definition() -> None:
    assert cited("[2] As we read in faq.pdf, five. And [2].") == [("[2]", 1), ("faq.pdf", 0), ("[2]", 1)]


def test_number_is_a_position_before_it_is_an_id() -> None:
    chunks = tuple(Chunk(id=str(i), text="…") for i in (2, 101, 3))
    assert cited("[2] [101] [4]", chunks) == [("[2]", 1), ("[101]", 1), ("[4]", None)]


def test_year_is_a_position_if_there_are_enough_documents() -> None:
    chunks = tuple(Chunk(id=f"d{i}", text="…") for i in range(2500))
    assert cited("[2019]", chunks) == [("[2019]", 2018)]


def test_numeric_ids_in_a_list() -> None:
    chunks = (Chunk(id="doc2", text="…"), Chunk(id="doc1", text="…"))
    assert cited("[doc1, doc2]", chunks) == [("[doc1]", 1), ("[doc2]", 0)]


def test_longest_matching_name_wins() -> None:
    chunks = (Chunk(id="a", text="…", source="Annual Report"), Chunk(id="b", text="…", source="Annual Report 2024"))
    assert cited("The Annual Report 2024 and the Annual Report.", chunks) == [
        ("Annual Report 2024", 1),
        ("Annual Report", 0),
    ]


def test_very_short_long_or_wordless_names_are_found_only_in_brackets() -> None:
    chunks = tuple(Chunk(id=f"i{i}", text="…", source=name) for i, name in enumerate(("A1", "x1" * 300, "+++", "/a.b")))
    assert cited(f"A1 {'x1' * 300} +++ a.b [A1] [+++]", chunks) == [("[A1]", 0), ("[+++]", 2)]
    assert cited("a.b", chunks) == []


def test_names_may_begin_or_end_without_a_letter() -> None:
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
    text, made = sentences("Ä first [1]. ", "A second. ", "The faq.pdf says so.")
    first, second = find_citations(text, CHUNKS, made)
    assert (first.sentence_index, second.sentence_index) == (0, 2)
    assert first.span == Span(8, 11)
    assert second.span is not None
    assert text[second.span.start : second.span.end] == "faq.pdf"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("Five. ", "[1] ", "Six. "), [0]),
        (("Five. ", "[1][2]\n\n", "Six."), [0, 0]),
        (("Five. ", "【4:0†source】【4:1†source】 Six."), [0, 0]),
        (("Five. ", "(Source: faq.pdf) ", "Six."), [0]),
        (("Five. ", "See [1]. ", "Cf. [2]. ", "Six."), [0, 0]),
        (("Five. ", "[1] says six."), [0]),
        (("Five.\n", "[1] says six."), [1]),
        (("Five.\n", "- faq.pdf\n"), [None]),
        (("[1] Five. ", "Six [2]."), [0, 1]),
        (("Five [1].\n\n", "Sources:\n", "1. faq.pdf\n", "2. product-manual.pdf, p. 3\n"), [0, None, None]),
        (("Five.[^1]\n\n", "[^1]: faq.pdf\n"), [0, None, None]),
    ],
)
def test_citation_is_assigned_to_its_sentence(texts: tuple[str, ...], expected: list[int | None]) -> None:
    """The preceding sentence, if the marker follows its full stop; none in a list of sources."""
    text, made = sentences(*texts)
    assert [c.sentence_index for c in find_citations(text, CHUNKS, made)] == expected


def test_other_brackets_cite_the_documents_they_name() -> None:
    chunks = [Chunk(id="d1", text="x", source="faq.pdf"), Chunk(id="d2", text="y", source="web")]
    text = "One (see d1). Two {d1, d2}. Three (`faq.pdf`). Four <d2>. Five (faq.pdf). Six (1), (d3), `web`, [t](d1)."
    found = [(citation.marker, citation.document_index) for citation in find_citations(text, chunks)]
    assert found == [("(see d1)", 0), ("{d1, d2}", 0), ("{d1, d2}", 1), ("faq.pdf", 0), ("<d2>", 1), ("faq.pdf", 0)]


def test_code_contains_no_citations() -> None:
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
        ({"type": "file_citation", "file_id": "doc-x", "index": 13}, [("doc-x", 2, 0)]),
        ({"type": "file_citation", "file_id": "doc-x", "index": 14}, [("doc-x", 2, 1)]),
        ({"type": "file_citation", "file_id": "doc-x", "index": 0}, [("doc-x", 2, None)]),
        ({"type": "file_citation", "filename": "Legal Review"}, [("file_citation", 2, None)]),
        ({"type": "container_file_citation", "file_id": "d4", "start_index": 13}, [("d4", 3, 1)]),
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
    given = read_annotation(annotation)
    found = find_citations(text, CHUNKS, made, [] if given is None else [given])
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


_WORDS = st.sampled_from(
    ["Leave", "is", "25", "days", "of", "Ä", "年假", "(see)", "a,", "C++", "x", "$5", "50%", "“so”", "—"]
)
_INNER = st.sampled_from(
    ["1", "2", "5", "^3", "doc 4", "Source 1", "d1", "doc-x", "faq.pdf", "1, 2", "2-4", "Legal Review"]
)
_PIECES = st.sampled_from(["Five", " ", ".", "[1]", "[9]", "[^2]", "\n", "【3】", "(Source: ", ")", "faq.pdf", "Six"])


@given(st.lists(st.tuples(st.lists(_WORDS, min_size=1, max_size=6), _INNER), max_size=8), st.sampled_from(["", " "]))
def test_every_marker_in_prose_is_found_in_place(pieces: list[tuple[list[str], str]], gap: str) -> None:
    """Regardless of the surrounding text, each bracket yields the documents that it names, at its position."""
    text, places = "", []
    for words, inner in pieces:
        text += f"{' '.join(words)}.{gap}"
        places.append((len(text), inner))
        text += f"[{inner}] "
    found = find_citations(text, CHUNKS)
    for place, inner in places:
        alone = [c.document_index for c in find_citations(f"So [{inner}].", CHUNKS)]
        assert [c.document_index for c in found if c.span is not None and c.span.start == place] == alone != []
    assert all(citation.document_index is not None for citation in found)


@given(st.text(alphabet=st.characters(blacklist_characters="[]【】［］", blacklist_categories=["Cs"]), max_size=80))
def test_text_without_markers_has_no_citations(text: str) -> None:
    """Without brackets, only a name in full is a citation."""
    for citation in find_citations(text, CHUNKS):
        assert citation.document_index is not None
        assert citation.span is not None
        assert text[citation.span.start : citation.span.end].casefold() == citation.marker.casefold()


@given(st.lists(_PIECES))
def test_each_citation_belongs_to_a_sentence_of_the_text(pieces: list[str]) -> None:
    """The sentence that contains it or an earlier one, regardless of how the sentences are cut."""
    text, made = sentences(*pieces)
    for citation in find_citations(text, CHUNKS, made):
        assert citation.span is not None
        standing = next(s.index for s in reversed(made) if s.span.start <= citation.span.start)
        assert citation.sentence_index is None or 0 <= citation.sentence_index <= standing


@given(st.text(alphabet="[]【】†:`1290,-–; dafq.pweb/^\n", max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    """Spans are inside the text and in order, and every document is one of those given."""
    found = find_citations(text, CHUNKS)
    starts = [c.span.start for c in found if c.span is not None]
    assert starts == sorted(starts)
    for citation in found:
        assert citation.span is not None
        assert 0 <= citation.span.start < citation.span.end <= len(text)
        assert citation.document_index is None or 0 <= citation.document_index < len(CHUNKS)


def test_unknown_markers_are_searched_in_documents_a_limited_number_of_times() -> None:
    chunks = (Chunk(id="d1", text="Leave. " * 100),)
    found = cited(" ".join(f"[d{number}]" for number in range(2, 2000)), chunks)
    assert 100 < len(found) < 500


def test_many_markers_in_one_sentence() -> None:
    text, made = sentences("So. ", "[1]" * 20_000, " Yes.")
    assert {c.sentence_index for c in find_citations(text, CHUNKS, made)} == {0}


@pytest.mark.parametrize(
    "piece", ["[", "[1", "[1]", "【", "`", "```", "faq ", "faq.", "Legal ", "https://example.org/", "[a,"]
)
def test_time_is_linear_in_the_length(piece: str) -> None:
    """Thirty times as much pathological text takes far less than the square of its time."""

    def seconds(count: int) -> float:
        text = piece * count
        started = process_time()
        find_citations(text, CHUNKS)
        return process_time() - started

    small = max(min(seconds(1_000) for _ in range(3)), 1e-4)
    assert min(seconds(30_000) for _ in range(2)) < small * 300
