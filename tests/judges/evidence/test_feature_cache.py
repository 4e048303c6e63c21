"""Evidence made ready for comparison."""

from judges.evidence.feature_cache import ReadyTexts
from judges.features import Prepared, prepare


def test_texts_are_read_once_and_are_there_only_when_all_of_them_are_ready() -> None:
    read: list[str] = []

    def noted(text: str) -> Prepared:
        read.append(text)
        return prepare(text)

    ready = ReadyTexts(noted)
    assert not ready.has(["one"])
    assert [one.text for one in ready.of(["one", "two"])] == ["one", "two"]
    assert not ready.has(["one", "three"])
    assert ready.has(["two", "one", "two"])
    assert [one.text for one in ready.of(["two", "one", "two"])] == ["two", "one", "two"]
    assert read == ["one", "two"]
    assert ready.has([])


def test_the_texts_used_last_are_kept() -> None:
    ready = ReadyTexts(prepare, most=2)
    ready.of(["one", "two"])
    ready.of(["one"])
    assert [one.text for one in ready.of(["one", "two", "three"])] == ["one", "two", "three"], "more than are kept"
    assert not ready.has(["one"])
    ready.of(["two"])
    ready.of(["four"])
    assert ready.has(["two", "four"])
    assert not ready.has(["three"])
