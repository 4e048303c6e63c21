import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.llm.context_window import batches, best_at_ends, estimate_tokens, split_sources, whole_sources
from judges.types import Chunk


@pytest.mark.parametrize(
    ("ranked", "ordered"),
    [([], []), ([1], [1]), ([1, 2], [1, 2]), ([1, 2, 3], [1, 3, 2]), ([1, 2, 3, 4], [1, 3, 4, 2])],
)
def test_best_two_passages_are_at_the_ends(ranked: list[int], ordered: list[int]) -> None:
    assert best_at_ends(ranked) == ordered


@given(st.lists(st.integers(1, 30)), st.integers(1, 40))
def test_batches_lose_nothing_and_keep_to_the_budget(sizes: list[int], budget: int) -> None:
    made = batches(sizes, budget, lambda size: size)
    assert [size for batch in made for size in batch] == sizes
    assert all(sum(batch) <= budget or len(batch) == 1 for batch in made)


def test_non_ascii_scripts_count_one_token_per_letter() -> None:
    assert estimate_tokens("a" * 35) == 10
    assert estimate_tokens("漢字") == 2


def test_whole_sources_are_sorted_by_relevance_and_unscored_ones_last() -> None:
    chunks = [Chunk(id="a", text="A."), Chunk(id="b", text="B.", relevance_score=0.0), Chunk(id="c", text="C.")]
    assert [source.document_id for source in whole_sources(chunks)] == ["b", "a", "c"]


@given(st.lists(st.text(alphabet="ab. ", min_size=1, max_size=200), min_size=1, max_size=3), st.integers(2, 20))
def test_pieces_contain_every_character_of_every_chunk(texts: list[str], limit: int) -> None:
    made = split_sources([Chunk(id=str(n), text=text) for n, text in enumerate(texts)], limit)
    for number, text in enumerate(texts):
        held = {
            place for piece in made if piece.chunk_index == number for place in range(piece.span.start, piece.span.end)
        }
        assert {place for place, ch in enumerate(text) if not ch.isspace()} <= held
    assert all(estimate_tokens("".join(piece.text.split())) <= limit for piece in made)
