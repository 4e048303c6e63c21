from math import log

import pytest

from judges.text import bm25
from judges.text.bm25 import Bm25, terms


def test_forms_of_one_word_match() -> None:
    assert terms("The Employees' REIMBURSEMENTS") == ["the", "employe", "reimbur"]
    assert terms("reimbursed employee") == ["reimbur", "employe"]


def test_short_words_and_numbers_are_unchanged() -> None:
    assert terms("It is 1,000 km (v2.0), Gas_X") == ["it", "is", "1", "000", "km", "v2", "0", "gas", "x"]


def test_scripts_without_spaces_are_split_into_character_pairs() -> None:
    assert terms("日本語 ok 東") == ["日本", "本語", "ok", "東"]


@pytest.mark.parametrize(("length", "kept"), [(64, 1), (65, 0), (100_000, 0)])
def test_only_short_words_are_kept(length: int, kept: int) -> None:
    before = bm25._cached_stem.cache_info().currsize
    assert terms("z" * length) == ["z" * 7]
    assert bm25._cached_stem.cache_info().currsize == before + kept


def test_scores_follow_the_formula() -> None:
    index = Bm25([["a", "b"], ["a", "a"], ["c", "d"]])
    weight = log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    assert index.weight("a") == pytest.approx(weight)
    first, second, third = index.scores(["a", "a"])
    assert first == pytest.approx(weight * 1 * 2.2 / (1 + 1.2))
    assert second == pytest.approx(weight * 2 * 2.2 / (2 + 1.2))
    assert third == 0.0


def test_unknown_term_has_the_highest_weight_and_scores_nothing() -> None:
    index = Bm25([["a"], ["b"]])
    assert index.weight("z") > index.weight("a") > 0
    assert index.scores(["z"]) == [0.0, 0.0]
    assert Bm25([]).scores(["z"]) == []
    assert Bm25([[]]).scores(["z"]) == [0.0]
