"""Parsed evidence is cached."""

from judges.evidence.index import FeatureCache
from judges.features import Prepared, prepare


def test_texts_are_read_once_and_available_when_all_are_ready() -> None:
    read: list[str] = []

    def noted(text: str) -> Prepared:
        read.append(text)
        return prepare(text)

    cache = FeatureCache(noted)
    assert not cache.has(["one"])
    assert [one.text for one in cache.get(["one", "two"])] == ["one", "two"]
    assert not cache.has(["one", "three"])
    assert cache.has(["two", "one", "two"])
    assert [one.text for one in cache.get(["two", "one", "two"])] == ["two", "one", "two"]
    assert read == ["one", "two"]
    assert cache.has([])


def test_recently_used_texts_are_kept() -> None:
    cache = FeatureCache(prepare, max_texts=2)
    cache.get(["one", "two"])
    cache.get(["one"])
    assert [one.text for one in cache.get(["one", "two", "three"])] == ["one", "two", "three"], "more than are kept"
    assert not cache.has(["one"])
    cache.get(["two"])
    cache.get(["four"])
    assert cache.has(["two", "four"])
    assert not cache.has(["three"])
