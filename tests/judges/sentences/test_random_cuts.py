"""Ten thousand random texts, each cut at random: the sentences are always those of the whole text."""

import random

import pytest

from judges.sentences.splitter import IncrementalSplitter
from judges.types import Sentence
from tests.judges.sentences.test_splitter import BLOCKS, CASES, GAPS, MARKS, PAIRS, STARTS, WORDS, split

PIECES = [*MARKS, *WORDS, *STARTS, *PAIRS, *BLOCKS, *GAPS]
PROSE = [word + " " for case in CASES for word in case["answer"].split()]
TEXTS_A_SEED = 1_000


def make_text(rng: random.Random) -> str:
    """Words of real replies, with sparse or dense pieces that are hard for a splitter."""
    strange = rng.choice((0.05, 0.3, 1.0))
    return "".join(rng.choice(PIECES if rng.random() < strange else PROSE) for _ in range(rng.randint(1, 30)))


def in_deltas(rng: random.Random, text: str, max_chars: int) -> list[Sentence]:
    """Split ``text`` in deltas of random lengths, mostly short ones."""
    splitter = IncrementalSplitter(max_chars=max_chars)
    found: list[Sentence] = []
    longest = rng.choice((1, 3, 8, 40))
    start = 0
    while start < len(text):
        end = start + rng.randint(0, longest)
        found += splitter.push(text[start:end])
        start = end
    return [*found, *splitter.flush()]


@pytest.mark.parametrize("seed", range(10))
def test_chunking_does_not_change_ten_thousand_texts(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(TEXTS_A_SEED):
        text, max_chars = make_text(rng), rng.choice((20, 60, 4000))
        whole = split(text, max_chars=max_chars)
        assert in_deltas(rng, text, max_chars) == whole, text
        assert "".join(sentence.text for sentence in whole) == text
