import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.text.span_alignment import move_spans
from judges.types import UnsupportedSpan

PLAIN = "The fee is 30 euros per month."


def span(text: str, part: str) -> UnsupportedSpan:
    start = text.index(part)
    return UnsupportedSpan(start, start + len(part), 0.9)


@pytest.mark.parametrize(
    ("target", "part"),
    [
        (PLAIN, "30 euros"),
        ("- The **fee** is **30 euros** per month.\n", "30 euros"),
        ("Please note: the fee is `30` euros per [month](https://example.com).", "30` euros"),
        ("The fee is\n30\neuros per month.", "30\neuros"),
    ],
)
def test_span_is_moved_to_the_same_words(target: str, part: str) -> None:
    assert move_spans([span(PLAIN, "30 euros")], PLAIN, target) == (span(target, part),)


def test_span_within_a_word_stays_within_it() -> None:
    assert move_spans([span(PLAIN, "uro")], PLAIN, f"**{PLAIN}**") == (span(f"**{PLAIN}**", "uro"),)


def test_span_without_a_counterpart_is_left_out() -> None:
    both = [span(PLAIN, "30"), span(PLAIN, "month")]
    assert move_spans(both, PLAIN, "per month") == (span("per month", "month"),)
    assert move_spans(both, PLAIN, "") == ()


@given(st.text("ab *_\n", max_size=30), st.text("ab *_\n", max_size=30), st.integers(0, 29), st.integers(1, 30))
def test_spans_stay_within_the_target(source: str, target: str, start: int, length: int) -> None:
    end = min(len(source), start + length)
    if start < end:
        for moved in move_spans([UnsupportedSpan(start, end, 0.7)], source, target):
            assert 0 <= moved.start < moved.end <= len(target)
            assert moved.score == 0.7
