"""Text that is interrupted by something other than text."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from judges.sentences.splitter import IncrementalSplitter
from judges.types import Sentence

TEXTS = st.text(alphabet="aB.!?:\n #`-1é。 ", max_size=40)


def split(*runs: str, cut: int = 1_000) -> list[tuple[int, str, int, int]]:
    splitter = IncrementalSplitter()
    found: list[Sentence] = []
    for number, run in enumerate(runs):
        for start in range(0, len(run), cut):
            found += splitter.push(run[start : start + cut])
        found += splitter.flush() if number == len(runs) - 1 else splitter.pause()
    return [(sentence.index, sentence.text, sentence.span.start, sentence.span.end) for sentence in found]


def test_no_sentence_spans_a_pause() -> None:
    assert split("Let me look it up", "The answer is 5.") == [
        (0, "Let me look it up", 0, 17),
        (1, "The answer is 5.", 17, 33),
    ]


def test_text_after_a_pause_begins_a_line() -> None:
    assert [text for _, text, _, _ in split("So:", "# Title\nText.")] == ["So:", "# Title\n", "Text."]


def test_pause_without_text_emits_no_sentence() -> None:
    assert split("", "", "One.") == [(0, "One.", 0, 4)]


@given(runs=st.lists(TEXTS, min_size=1, max_size=4), cut=st.integers(1, 8))
def test_each_part_is_split_as_if_alone(runs: list[str], cut: int) -> None:
    """Sentences are numbered consecutively and tile the whole text, however it is cut."""
    found = split(*runs, cut=cut)
    alone = [text for run in runs for _, text, _, _ in split(run)]
    assert [text for _, text, _, _ in found] == alone
    assert [index for index, *_ in found] == list(range(len(found)))
    edges = list(accumulate((len(text) for text in alone), initial=0))
    assert [(start, end) for _, _, start, end in found] == list(pairwise(edges))
