import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.evidence.index import CountTokens, EvidenceIndex
from judges.evidence.windowing import DocumentCutter, build_index, split_long
from judges.types import Chunk, Sentence, Span, Windowing


class FullStops:
    """A splitter that ends a sentence after each full stop and its whitespace."""

    def __init__(self) -> None:
        self._text = ""

    def push(self, text: str) -> Sequence[Sentence]:
        self._text += text
        return ()

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        found = re.finditer(r"[^.]*\.\s*|[^.]+\Z", self._text)
        return [
            Sentence(index=i, text=m[0], span=Span(m.start(), m.end()), plain=m[0].strip()) for i, m in enumerate(found)
        ]


def count(text: str) -> int:
    return len(text.split())


def index_of(*texts: str | Chunk, max_tokens: int = 512, windowing: Windowing | None = None) -> EvidenceIndex:
    chunks = [text if isinstance(text, Chunk) else Chunk(id=f"d{i}", text=text) for i, text in enumerate(texts)]
    return build_index(
        chunks, cutter=DocumentCutter(FullStops), count=count, max_tokens=max_tokens, windowing=windowing
    )


def texts(index: EvidenceIndex) -> list[str]:
    return [window.text for window in index.windows]


# Windows


def test_short_chunk_is_one_window() -> None:
    (window,) = index_of(" One. Two.\n").windows
    assert (window.text, window.span, window.document_id, window.chunk_index) == ("One. Two.", Span(1, 10), "d0", 0)


def test_windows_overlap_by_whole_sentences() -> None:
    index = index_of("A a. B b. C c. D d. E e.", windowing=Windowing(sentences=3, tokens=100, overlap=1))
    assert texts(index) == ["A a. B b. C c.", "C c. D d. E e."]


def test_window_ends_within_its_token_limit() -> None:
    index = index_of("A a a. B b b. C c c. D d d.", windowing=Windowing(sentences=9, tokens=6, overlap=1))
    assert texts(index) == ["A a a. B b b.", "B b b. C c c.", "C c c. D d d."]


def test_overlap_is_reduced_if_a_sentence_would_not_fit() -> None:
    index = index_of("A a a a a. B b b b b. C.", windowing=Windowing(sentences=9, tokens=6, overlap=1))
    assert texts(index) == ["A a a a a.", "B b b b b. C."]


def test_window_takes_at_most_half_of_the_model_input() -> None:
    index = index_of("A a a. B b b. C c c.", max_tokens=12, windowing=Windowing(sentences=9, tokens=100, overlap=0))
    assert texts(index) == ["A a a. B b b.", "C c c."]
    assert index.window_tokens == 6


def test_long_sentence_is_cut_into_overlapping_pieces() -> None:
    words = " ".join(f"w{n}" for n in range(25))
    found = texts(index_of(words, windowing=Windowing(sentences=3, tokens=10, overlap=0)))
    assert all(count(text) <= 10 for text in found)
    assert found[0] == "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9"
    assert found[1].startswith("w8 w9 w10")
    assert found[-1].endswith("w24")


def test_text_without_spaces_is_cut_by_characters() -> None:
    pieces = split_long("字" * 100, 30, len)
    assert "".join(dict.fromkeys(pieces)) != ""
    assert all(len(piece) <= 30 for piece in pieces)
    assert sum(map(len, pieces)) >= 100
    assert split_long("short", 30, len) == ["short"]
    assert split_long("é", 1, lambda text: 4 * len(text)) == ["é"], "one character is never cut"


@given(
    st.lists(st.text(alphabet="ab. \n字é😀", max_size=120), max_size=4),
    st.integers(2, 24),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_every_character_of_every_chunk_is_in_a_window(
    chunks: list[str], tokens: int, sentences: int, overlap: int
) -> None:
    index = build_index(
        [Chunk(id=str(i), text=text) for i, text in enumerate(chunks)],
        cutter=DocumentCutter(FullStops),
        count=lambda text: len(text.replace(" ", "").replace("\n", "")),
        max_tokens=2 * tokens,
        windowing=Windowing(sentences=sentences, tokens=tokens, overlap=overlap),
    )
    seen: list[set[int]] = [set() for _ in chunks]
    for window in index.windows:
        span = window.span
        assert window.text == chunks[window.chunk_index][span.start : span.end]
        assert len(re.sub(r"\s", "", window.text)) <= tokens
        seen[window.chunk_index].update(range(span.start, span.end))
    for text, places in zip(chunks, seen, strict=True):
        assert all(text[place].isspace() for place in set(range(len(text))) - places)


# Order and selection


def test_chunks_are_sorted_by_relevance_and_unscored_ones_last() -> None:
    chunks = [
        Chunk(id="none1", text="Same words."),
        Chunk(id="low", text="Same words.", relevance_score=0.2),
        Chunk(id="zero", text="Same words.", relevance_score=0.0),
        Chunk(id="high", text="Same words.", relevance_score=0.9, source="h.pdf"),
        Chunk(id="high2", text="Same words.", relevance_score=0.9),
        Chunk(id="none2", text="Same words."),
    ]
    index = index_of(*chunks)
    assert [window.document_id for window in index.windows] == ["high", "high2", "low", "zero", "none1", "none2"]
    assert (index.windows[0].source, index.windows[0].chunk_index) == ("h.pdf", 3)
    assert [window.document_id for window in index.select("same words", 2)] == ["high", "high2"]


def test_fact_at_the_end_of_a_long_document_is_selected() -> None:
    filler = " ".join(f"Paragraph {n} speaks of the weather in region {n} and of little else." for n in range(120))
    index = index_of(filler + " The warranty of the pump lasts seven years.")
    assert count(filler) > 1400
    best, *_ = index.select("The pump has a seven-year warranty.", 5)
    assert "warranty of the pump lasts seven years" in best.text


def test_windows_are_found_for_a_claim_without_shared_words() -> None:
    assert len(index_of("Alpha beta.", "Gamma delta.").select("Ünrelated", 5)) == 2
    assert index_of().select("anything", 5) == []
    assert not index_of("", "  \n ").windows


# Affinity and joining


def test_affinity_is_the_share_of_claim_words_in_one_sentence() -> None:
    index = index_of("Horses sleep. Dogs were barking loudly.")
    windows = index.windows
    assert index.affinities(windows, "Horses sleep") == pytest.approx([1.0])
    assert index.affinities(windows, "Horses barking") == pytest.approx([0.5])
    assert index.affinities(windows, "The horse") == pytest.approx([1 / 1.2]), "short words weigh little"
    assert index.affinities(windows, "Fish swim") == [0.0]
    assert index.affinities(windows, "!?") == [0.0]


def test_best_pair_covers_most_of_the_claim() -> None:
    index = index_of("Ada wrote the report.", "Bob leads team Blue.", "The report covers team Blue.")
    pair = index.best_pair(index.windows, "Ada wrote it and Bob leads Blue")
    assert pair is not None
    assert {window.document_id for window in pair} == {"d0", "d1"}
    assert index.best_pair(index.windows[:1], "Ada") is None


def test_pair_is_joined_whole_or_by_its_nearest_sentences() -> None:
    index = index_of("Ada wrote it. Rain fell all day.", "Snow fell too. Bob read it.")
    pair = (index.windows[0], index.windows[1])
    whole = index.join(pair, "Ada and Bob", tokens=20, count=count)
    assert whole == "Ada wrote it. Rain fell all day.\nSnow fell too. Bob read it."
    assert index.join(pair, "Ada and Bob", tokens=6, count=count) == "Ada wrote it.\nBob read it."


def test_recurring_document_is_cut_once_for_each_way_of_counting() -> None:
    made: list[FullStops] = []

    def splitter() -> FullStops:
        made.append(FullStops())
        return made[-1]

    cutter = DocumentCutter(splitter)

    def windows_of(*chunks: str, count: CountTokens = count, tokens: int = 100) -> list[str]:
        documents = [Chunk(id=f"d{i}", text=text) for i, text in enumerate(chunks)]
        windowing = Windowing(tokens=tokens)
        return texts(build_index(documents, cutter=cutter, count=count, max_tokens=200, windowing=windowing))

    assert windows_of("A a. B b.") == windows_of("A a. B b.") == ["A a. B b."]
    assert len(made) == 1
    assert windows_of("C c.", "A a. B b.") == ["C c.", "A a. B b."]
    assert len(made) == 2
    assert windows_of("A a. B b.", tokens=2) == windows_of("A a. B b.", count=len, tokens=4) == ["A a.", "B b."]
    assert len(made) == 4


def test_long_document_is_not_kept() -> None:
    made: list[FullStops] = []

    def splitter() -> FullStops:
        made.append(FullStops())
        return made[-1]

    cutter, text = DocumentCutter(splitter), "A word. " * 2_501
    assert cutter.sentences(text, 9, count) == cutter.sentences(text, 9, count)
    assert len(made) == 2
