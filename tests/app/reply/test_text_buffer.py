"""Held text is released in its original order and frames, each token with its own text."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.protocols.common.stream_events import Frame, TextDelta, TextSlice
from app.reply.text_buffer import TextBuffer


def delta(text: str, *tokens: str) -> TextDelta:
    entries: Sequence[dict[str, Any]] | None = [{"token": token} for token in tokens] or None
    return TextDelta(choice=0, text=text, frame=Frame(json={"text": text}, tokens=entries))


def tokens_of(slices: Sequence[TextSlice]) -> list[list[str]]:
    return [[token["token"] for token in piece.tokens] for piece in slices]


@given(st.lists(st.text(min_size=1, max_size=8), max_size=8), st.lists(st.integers(0, 40), max_size=6))
def test_slices_add_up_to_the_text_in_its_frames(texts: list[str], ends: list[int]) -> None:
    buffer = TextBuffer()
    for text in texts:
        buffer.add(delta(text))
    slices = [piece for end in sorted(ends) for piece in buffer.cut(end)]
    taken = sum(len(piece.text) for piece in slices)
    assert buffer.taken == taken == min(max(ends, default=0), len("".join(texts)))
    assert "".join(piece.text for piece in slices) + buffer.rest == "".join(texts)
    slices += buffer.cut()
    assert [piece.text for piece in slices] == [
        piece.text for piece in slices if piece.text in piece.frame.json["text"]
    ]
    assert buffer.rest == ""


def test_token_is_kept_with_its_text() -> None:
    buffer = TextBuffer()
    buffer.add(delta("One. Two.", "One", ".", " Two", "."))
    assert tokens_of(buffer.cut(4)) == [["One", "."]]
    assert tokens_of(buffer.cut()) == [[" Two", "."]]


def test_token_across_a_cut_is_dropped_unless_the_rest_is_white_space() -> None:
    buffer = TextBuffer()
    buffer.add(delta("One. Two.", "One. ", "Two."))
    assert tokens_of(buffer.cut(4)) == [["One. "]]
    buffer = TextBuffer()
    buffer.add(delta("One. Two.", "One", ". Tw", "o."))
    assert tokens_of(buffer.cut(4)) == [["One"]]
    assert tokens_of(buffer.cut()) == [["o."]]


def test_tokens_without_text_are_sent_with_the_following_text() -> None:
    buffer = TextBuffer()
    buffer.add(delta("", "\\xf0\\x9f"))
    buffer.add(delta("😀", "\\x98\\x80"))
    assert [piece.text for piece in buffer.cut()] == ["", "😀"]
