"""Evidence made ready for comparison."""

from judges.ready import ReadyTexts
from judges.signals import Prepared, prepare


def test_texts_are_read_once_and_are_at_hand_only_when_all_of_them_are_ready() -> None:
    read: list[str] = []

    def noted(text: str) -> Prepared:
        read.append(text)
        return prepare(text)

    ready = ReadyTexts(noted)
    assert ready.at_hand(["one"]) is None
    assert [one.text for one in ready.of(["one", "two"])] == ["one", "two"]
    assert ready.at_hand(["one", "three"]) is None
    assert [one.text for one in ready.at_hand(["two", "one", "two"]) or ()] == ["two", "one", "two"]
    ready.of(["two", "one"])
    assert read == ["one", "two"]
    assert ready.at_hand([]) == []


def test_the_texts_used_last_are_kept() -> None:
    ready = ReadyTexts(prepare, most=2)
    ready.of(["one", "two"])
    ready.at_hand(["one"])
    assert [one.text for one in ready.of(["one", "two", "three"])] == ["one", "two", "three"], "more than are kept"
    assert ready.at_hand(["one"]) is None
    ready.at_hand(["two"])
    ready.of(["four"])
    assert ready.at_hand(["two", "four"]) is not None
    assert ready.at_hand(["three"]) is None
