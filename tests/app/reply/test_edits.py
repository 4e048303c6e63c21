"""How a text closes up where a sentence is left out, and what stands where one is corrected."""

import pytest

from app.protocols.common.stream_events import Frame, TextSlice
from app.reply.edits import DeliveredText, Lead, OutgoingText, closed_up, corrected, correction, lead_of, outgoing_text

FRAME = Frame(json={})


def piece(*texts: str) -> OutgoingText:
    return outgoing_text([TextSlice(frame=FRAME, text=text, tokens=[{"token": text}]) for text in texts])


def after(left_out: str, following: str, *, opening: bool = False) -> str:
    return closed_up(piece(following), lead_of(left_out), opening=opening).text


@pytest.mark.parametrize(
    ("text", "gap", "marker"),
    [
        ("Rain.", "", ""),
        (" Rain.", " ", ""),
        ("\n\nRain.", "\n\n", ""),
        ("\n- Rain.", "\n", "- "),
        ("\n  * [x] Rain.", "\n  ", "* [x] "),
        ("\n12. Rain.", "\n", "12. "),
        ("\n> - Rain.", "\n", "> - "),
        ("1) Rain.", "", "1) "),
        (" - as they say - rain.", " ", ""),
        ("\n-5 degrees.", "\n", ""),
        ("\n**Rain.**", "\n", ""),
        ("\n2024 was wet.", "\n", ""),
    ],
)
def test_what_a_sentence_begins_with(text: str, gap: str, marker: str) -> None:
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
    ],
)
def test_one_break_is_left_and_the_item_keeps_its_marker(left_out: str, following: str, closed: str) -> None:
    assert after(left_out, following) == closed


def test_of_several_left_out_the_last_of_the_item_says_which_it_is() -> None:
    lead = lead_of("\n- Rain.").then(lead_of(" Hail.")).then(lead_of("\n- Snow."))
    assert lead == Lead("\n", "- ")
    assert closed_up(piece(" Sun."), lead, opening=False).text == "\n- Sun."


def test_a_text_does_not_open_with_white_space() -> None:
    assert after("Rain.", " Sun.", opening=True) == "Sun."
    assert after("- Rain.", " Sun.", opening=True) == "- Sun."
    assert after("- Rain.", "\n- Sun.", opening=True) == "- Sun."


def test_what_needs_no_change_stays_the_same() -> None:
    following = piece(" ", "Sun.")
    assert closed_up(following, None, opening=False) is following
    assert closed_up(following, Lead(" "), opening=False) is following


def test_tokens_of_the_break_that_goes_go_with_it() -> None:
    closed = closed_up(piece(" ", "Sun", " today."), Lead("\n\n"), opening=False)
    assert (closed.text, closed.lead) == ("\n\nSun today.", 2)
    assert [token["token"] for s in closed.slices for token in s.tokens] == ["Sun", " today."]
    assert "".join(s.text for s in closed.slices) == closed.text


def test_a_token_that_is_partly_of_the_break_stays() -> None:
    closed = closed_up(piece(" Sun", " today."), Lead("\n\n"), opening=False)
    assert [token["token"] for s in closed.slices for token in s.tokens] == [" Sun", " today."]
    assert "".join(s.text for s in closed.slices) == closed.text


def test_tokens_that_do_not_spell_the_text_all_stay() -> None:
    odd = OutgoingText(
        text=" Sun.", slices=[TextSlice(frame=FRAME, text=" Sun.", tokens=[{"token": "\\xe2"}, {"token": "?"}])]
    )
    assert len(closed_up(odd, Lead("\n\n"), opening=False).slices[-1].tokens) == 2


@pytest.mark.parametrize(
    ("text", "put"),
    [
        (" Rain.", " [CORRECTED: Sun.]"),
        ("\n- Rain.", "\n- [CORRECTED: Sun.]"),
        ("\n| Rain | today |", "\n| [CORRECTED: Sun.] |"),
    ],
)
def test_a_correction_stands_where_the_sentence_stood(text: str, put: str) -> None:
    made = corrected(piece(text), correction(["Sun."]))
    assert made.text == put
    assert [token for s in made.slices for token in s.tokens] == []


def test_corrections_stand_on_one_line() -> None:
    assert correction(["The sun\nshines.", " No rain. "]) == "[CORRECTED: The sun shines. No rain.]"


class TestDeliveredText:
    def test_a_sentence_closes_up_over_those_left_out_before_it(self) -> None:
        delivered = DeliveredText()
        delivered.follow(piece("Rain."), opening=False)
        delivered.leave_out(piece("\n\nSnow."))
        delivered.leave_out(piece(" Hail."))
        assert delivered.follow(piece(" Sun."), opening=False).text == "\n\nSun."
        assert (str(delivered), delivered.length) == ("Rain.\n\nSun.", 11)

    def test_after_a_pause_nothing_closes_up(self) -> None:
        delivered = DeliveredText()
        delivered.follow(piece("Rain."), opening=False)
        delivered.leave_out(piece("\n\nSnow."))
        delivered.pause()
        assert delivered.follow(piece(" Sun."), opening=False).text == " Sun."

    def test_a_replacement_is_set_off_by_a_space_where_there_is_none(self) -> None:
        delivered = DeliveredText()
        assert delivered.replace("Ask HR.") == "Ask HR."
        assert delivered.replace("Ask IT.") == " Ask IT."
        delivered.add("\n")
        assert delivered.replace("Ask.") == "Ask."
        delivered.clear()
        assert not delivered
