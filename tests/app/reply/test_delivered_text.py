"""Closing the gap after a left-out sentence, and inserting corrections."""

import random
import time

import pytest

from app.protocols.common.stream_events import Frame, TextSlice
from app.reply.delivered_text import (
    DeliveredText,
    Lead,
    OutgoingText,
    closed_up,
    corrected,
    lead_of,
    replacement_text,
    without_spans,
)
from judges.text.corrections import CorrectedSentence
from judges.types import Sentence, Span

FRAME = Frame(json={})


def piece(*texts: str) -> OutgoingText:
    slices = [TextSlice(frame=FRAME, text=text, tokens=[{"token": text}]) for text in texts]
    return OutgoingText(text="".join(texts), slices=slices)


def after(left_out: str, following: str, *, opening: bool = False) -> str:
    return closed_up(piece(following), lead_of(left_out), opening=opening).text


@pytest.mark.parametrize(
    ("text", "gap", "marker"),
    [
        ("Rain.", "", ""),
        (" Rain.", " ", ""),
        ("\n\nRain.", "\n\n", ""),
        ("\n- Rain.", "\n", "- "),
        ("\n  * [x] Rain.", "\n  ", "* "),
        ("\n12. Rain.", "\n", "12. "),
        ("\n> - Rain.", "\n", "> - "),
        ("1) Rain.", "", "1) "),
        (" - as they say - rain.", " ", ""),
        ("\n-5 degrees.", "\n", ""),
        ("\n**Rain.**", "\n", ""),
        ("\n2024 was wet.", "\n", ""),
    ],
)
def test_leading_break_and_marker_are_recognised(text: str, gap: str, marker: str) -> None:
    assert lead_of(text) == Lead(gap, marker)


@pytest.mark.parametrize(
    ("left_out", "following", "closed"),
    [
        (" Rain.", " Sun.", " Sun."),
        ("\n\nRain.", " Sun.", "\n\nSun."),
        (" Rain.", "\n\nSun.", "\n\nSun."),
        ("\n\nRain.", "\n\nSun.", "\n\nSun."),
        ("\n- Rain.", "\n- Sun.", "\n- Sun."),
        ("\n- Rain.", " Sun.", "\n- Sun."),
        ("\n- Rain.", "\n\nSun.", "\n\nSun."),
        ("\n\n- Rain.", "\n  - Sun.", "\n\n  - Sun."),
        ("\n> Rain.", " Sun.", "\n> Sun."),
        ("\n", "Sun.", "\nSun."),
        (" Rain.", "Sun.", " Sun."),
        ("雨。", "晴。", "晴。"),
        # A number or a check mark was judged with the sentence that is left out.
        ("\n30. Rain.", " Sun.", "\n- Sun."),
        ("\n(b) Rain.", " Sun.", "\n- Sun."),
        ("\n> 2) Rain.", " Sun.", "\n> - Sun."),
        ("\n* [x] Rain.", " Sun.", "\n* Sun."),
        ("\n3. [ ] Rain.", " Sun.", "\n- Sun."),
        ("\n30. Rain.", "\n31. Sun.", "\n31. Sun."),
    ],
)
def test_one_break_remains_and_the_item_keeps_its_marker(left_out: str, following: str, closed: str) -> None:
    assert after(left_out, following) == closed


def test_last_removed_part_of_an_item_determines_its_marker() -> None:
    lead = lead_of("\n- Rain.").then(lead_of(" Hail.")).then(lead_of("\n- Snow."))
    assert lead == Lead("\n", "- ")
    assert closed_up(piece(" Sun."), lead, opening=False).text == "\n- Sun."


def test_text_does_not_start_with_white_space() -> None:
    assert after("Rain.", " Sun.", opening=True) == "Sun."
    assert after("- Rain.", " Sun.", opening=True) == "- Sun."
    assert after("- Rain.", "\n- Sun.", opening=True) == "- Sun."


def test_unaffected_text_is_unchanged() -> None:
    following = piece(" ", "Sun.")
    assert closed_up(following, None, opening=False) is following
    assert closed_up(following, Lead(" "), opening=False) is following


def test_tokens_of_a_removed_break_are_removed() -> None:
    closed = closed_up(piece(" ", "Sun", " today."), Lead("\n\n"), opening=False)
    assert (closed.text, closed.lead) == ("\n\nSun today.", 2)
    assert [token["token"] for s in closed.slices for token in s.tokens] == ["Sun", " today."]
    assert "".join(s.text for s in closed.slices) == closed.text


def test_token_partly_in_the_break_is_kept() -> None:
    closed = closed_up(piece(" Sun", " today."), Lead("\n\n"), opening=False)
    assert [token["token"] for s in closed.slices for token in s.tokens] == [" Sun", " today."]
    assert "".join(s.text for s in closed.slices) == closed.text


def test_tokens_not_spelling_the_text_are_all_kept() -> None:
    odd = OutgoingText(
        text=" Sun.", slices=[TextSlice(frame=FRAME, text=" Sun.", tokens=[{"token": "\\xe2"}, {"token": "?"}])]
    )
    assert len(closed_up(odd, Lead("\n\n"), opening=False).slices[-1].tokens) == 2


@pytest.mark.parametrize(
    "text", ["25 tablets.", "½ tablet.", "Ⅳ tablets.", "② tablets.", "**½** tablet.", "٤ tablets."]
)
def test_marker_does_not_move_before_a_number(text: str) -> None:
    assert after("\n- Rain.", f" {text}") == f"\n{text}"


@pytest.mark.parametrize(
    ("text", "before", "after", "put"),
    [
        (" Rain.", "", "", " [CORRECTED: Sun.]"),
        ("\n- Rain.", "- ", "", "\n- [CORRECTED: Sun.]"),
        ("\n| Rain | today |", "| ", " |", "\n| [CORRECTED: Sun.] |"),
    ],
)
def test_correction_replaces_the_sentence_in_place(text: str, before: str, after: str, put: str) -> None:
    made = corrected(piece(text), CorrectedSentence(before, "[CORRECTED: Sun.]", after))
    assert made.text == put
    assert [token for s in made.slices for token in s.tokens] == []


class TestDeliveredText:
    def test_gap_of_removed_sentences_is_closed(self) -> None:
        delivered = DeliveredText()
        delivered.follow(piece("Rain."), opening=False)
        delivered.leave_out(piece("\n\nSnow."))
        delivered.leave_out(piece(" Hail."))
        assert delivered.follow(piece(" Sun."), opening=False).text == "\n\nSun."
        assert (str(delivered), delivered.length) == ("Rain.\n\nSun.", 11)

    def test_gap_after_a_pause_is_not_closed(self) -> None:
        delivered = DeliveredText()
        delivered.follow(piece("Rain."), opening=False)
        delivered.leave_out(piece("\n\nSnow."))
        delivered.pause()
        assert delivered.follow(piece(" Sun."), opening=False).text == " Sun."

    def test_replacement_is_separated_by_a_space(self) -> None:
        delivered = DeliveredText()
        assert delivered.replace("Ask HR.") == "Ask HR."
        assert delivered.replace("Ask IT.") == " Ask IT."
        delivered.add("\n")
        assert delivered.replace("Ask.") == "Ask."
        delivered.clear()
        assert not delivered


def cut(texts: list[str], spans: list[Span]) -> OutgoingText:
    """The rest of a sentence that arrived in slices ``texts``, one token per character, without ``spans``."""
    slices = [TextSlice(frame=FRAME, text=text, tokens=[{"token": letter} for letter in text]) for text in texts]
    text = "".join(texts)
    return without_spans(
        OutgoingText(text=text, slices=slices), Sentence(index=0, text=text, span=Span(0, len(text)), plain=text), spans
    )


def test_removed_part_of_a_sentence_takes_its_tokens_along() -> None:
    rng = random.Random(7)
    for _ in range(200):
        texts = ["abcdefgh"[: rng.randint(1, 8)] for _ in range(rng.randint(1, 8))]
        text = "".join(texts)
        edges = sorted(rng.sample(range(len(text) + 1), 2 * rng.randint(0, (len(text) + 1) // 2)))
        spans = [Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
        left = "".join(letter for at, letter in enumerate(text) if not any(s.start <= at < s.end for s in spans))
        found = cut(texts, spans)
        assert found.text == left
        assert "".join(token["token"] for piece in found.slices for token in piece.tokens) == left


def test_cutting_takes_linear_time() -> None:
    spans = [Span(at, at + 1) for at in range(0, 40_000, 2)]
    begin = time.process_time()
    assert cut(["ab" * 20_000], spans).text == "b" * 20_000
    assert time.process_time() - begin < 5.0


@pytest.mark.parametrize(
    ("abstention", "is_json", "text"),
    [
        ("Ask HR.", False, "Ask HR."),
        (None, False, "I can't answer that from the documents provided."),
        ("", False, "I can't answer that from the documents provided."),
        ("Ask HR.", True, ""),
        (None, True, ""),
    ],
)
def test_replacement_is_the_policy_text_or_the_default_and_never_in_json(
    abstention: str | None, is_json: bool, text: str
) -> None:
    assert replacement_text(abstention, is_json=is_json) == text


def test_tokens_of_left_out_text_are_left_out_even_if_named_by_their_bytes() -> None:
    """Their names are longer than their text. Tokens that don't spell the text are left out too."""
    text = "🙂 Rain<!-- 8 -->."
    bytes_of_it = [{"token": f"\\x{byte:02x}", "bytes": [byte]} for byte in "🙂".encode()]
    words = [{"token": word, "bytes": list(word.encode())} for word in (" Rain", "<!--", " 8", " -->", ".")]
    sentence = Sentence(index=0, text=text, span=Span(0, len(text)), plain=text)
    for tokens, left in ((bytes_of_it + words, [*bytes_of_it, words[0], words[-1]]), (bytes_of_it, [])):
        whole = OutgoingText(text=text, slices=[TextSlice(frame=FRAME, text=text, tokens=tokens)])
        cut = without_spans(whole, sentence, [Span(text.index("<"), text.index(">") + 1)])
        assert (cut.text, list(cut.slices[0].tokens)) == ("🙂 Rain.", left)
