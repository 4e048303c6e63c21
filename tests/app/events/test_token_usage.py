"""Tokens are counted over all upstream calls of a request, and estimated if an upstream reports none."""

from app.events.recorder import TokenUsage
from app.events.request_record import TokenCounts


def test_reported_counts_are_kept() -> None:
    usage = TokenUsage(prompt_chars=400)
    usage.report(7, 5)
    assert usage.counts() == TokenCounts(prompt=7, completion=5)


def test_counts_are_estimated_from_characters() -> None:
    usage = TokenUsage(prompt_chars=400)
    assert usage.estimate(40) == (100, 10)
    assert usage.counts() == TokenCounts(prompt=100, completion=10, estimated=True)


def test_reported_prompt_is_not_estimated() -> None:
    usage = TokenUsage(prompt_chars=400)
    usage.prompt = 7
    assert usage.estimate(0) == (7, 1)


def test_each_further_call_adds_to_the_counts() -> None:
    usage = TokenUsage(prompt_chars=400)
    usage.report(7, 5)
    assert usage.begin_next_call(0) == (7, 5)
    usage.report(9, 4)
    assert usage.begin_next_call(0) == (9, 4)
    usage.report(1, 1)
    assert usage.counts() == TokenCounts(prompt=17, completion=10, regenerations=2)


def test_interrupted_call_is_estimated_and_the_total_is_marked() -> None:
    usage = TokenUsage(prompt_chars=40)
    assert usage.begin_next_call(80) == (10, 20)
    usage.report(5, 5)
    assert usage.counts() == TokenCounts(prompt=15, completion=25, estimated=True, regenerations=1)
