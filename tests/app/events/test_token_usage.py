"""Tokens are counted over all upstream calls of a request, and estimated if an upstream reports none."""

from app.events.recorder import TokenUsage
from app.events.request_record import TokenCounts


def sent(chars: int) -> TokenUsage:
    usage = TokenUsage()
    usage.prompt_chars = lambda: chars
    return usage


def test_reported_counts_are_kept() -> None:
    usage = sent(400)
    usage.report(7, 5)
    assert usage.counts() == TokenCounts(prompt=7, completion=5)


def test_counts_are_estimated_from_characters() -> None:
    usage = sent(400)
    usage.received = 41
    assert usage.counts() == TokenCounts(prompt=100, completion=11, estimated=True)


def test_only_counts_that_were_not_reported_are_estimated() -> None:
    for reported, expected in (((7, None), (7, 10)), ((None, 5), (100, 5)), ((0, 0), (0, 0))):
        usage = sent(400)
        usage.received = 40
        usage.report(*reported)
        counts = usage.counts()
        assert (counts.prompt, counts.completion, counts.estimated) == (*expected, None in reported)


def test_prompt_counts_even_without_a_reply() -> None:
    assert sent(400).counts() == TokenCounts(prompt=100, completion=0, estimated=True)


def test_nothing_is_counted_if_the_upstream_was_not_called() -> None:
    assert TokenUsage().counts() == TokenCounts()


def test_each_further_call_adds_to_the_counts() -> None:
    usage = sent(400)
    usage.report(7, 5)
    assert usage.begin_next_call() == (7, 5)
    usage.report(9, 4)
    assert usage.begin_next_call() == (9, 4)
    usage.report(1, 1)
    assert usage.counts() == TokenCounts(prompt=17, completion=10, regenerations=2)


def test_interrupted_call_is_estimated_and_the_total_is_marked() -> None:
    usage = sent(40)
    usage.received = 80
    assert usage.begin_next_call() == (10, 20)
    usage.report(5, 5)
    assert usage.counts() == TokenCounts(prompt=15, completion=25, estimated=True, regenerations=1)


def test_characters_are_counted_for_each_call() -> None:
    usage = sent(40)
    usage.received = 80
    usage.begin_next_call()
    usage.received += 4
    assert usage.counts() == TokenCounts(prompt=20, completion=21, estimated=True, regenerations=1)
