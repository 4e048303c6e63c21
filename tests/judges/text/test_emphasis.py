"""Emphasis and strikethrough inside words and numbers are read as CommonMark and GitHub's Markdown show them."""

import time

import pytest

from judges.text.fragments import FragmentKind, spoken
from judges.text.markdown import fragments


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1*2*", "12"),
        ("*1*2", "12"),
        ("1*2*3", "123"),
        ("5*6*78", "5678"),
        ("1**2**", "12"),
        ("1***2***3", "123"),
        ("**1*2***", "12"),
        ("1***2**3*", "123"),
        ("*1**2**3*", "123"),
        ("*1**2*", "1**2"),
        ("1******2*********3", "12***3"),
        ("2*3", "2*3"),
        ("1**2", "1**2"),
        ("2*3 and 4*5", "23 and 45"),
        ("**Area:** 2*3", "Area: 2*3"),
        ("2*3_4*", "23_4"),
        ("5_6_78", "5_6_78"),
        ("5__6__78", "5__6__78"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("1\\*2*3", "1*2*3"),
        ("1`*2*`3", "1*2*3"),
        ("*1*[2 b](u)", "12 b"),
        ("*1*<b>2</b>", "12"),
        ("*1*&#50;", "12"),
    ],
)
def test_marks_between_digits_are_read_as_they_are_shown(text: str, shown: str) -> None:
    assert spoken(fragments(text, lambda _: False)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "*1*2", "1*2*", "2*3", "1**2", "1*[2 b](u)", "1*<b>2</b>*", "1*&#50;*", "1*`2`*", "٣*٤*",
        "2*.5", "2.*5", "2*.*5", "1*,500", "1,*500", "2.**5**", "2`.`*5", "2*½", "10*⁵", "10*<sup>5</sup>", "2_.5",
    ],
)  # fmt: skip
def test_marks_between_digits_are_emphasis_that_may_be_shown(text: str) -> None:
    assert any(part.kind is FragmentKind.EMPHASIS for part in fragments(text, lambda _: False))


@pytest.mark.parametrize(
    "text",
    [
        "**25** days",
        "n*o*t",
        "価格は**500**円",
        "**5**GB",
        "2 * 3",
        "snake_case_2_3",
        "*2* *3*",
        "**5**-**7**",
        "**5**, **7**",
        "in **2025.** *5* days",
        "Kund*innen",
    ],
)
def test_other_marks_are_syntax_or_text(text: str) -> None:
    assert {part.kind for part in fragments(text, lambda _: False)} <= {FragmentKind.TEXT, FragmentKind.SYNTAX}


@pytest.mark.parametrize(
    ("text", "is_struck"),
    [
        ("~not~ safe", True),
        ("~not~\u00a0safe", True),
        ("~not~&nbsp;safe", True),
        ("~not~<b>safe</b>", True),
        ("~not~“safe”", True),
        ("~not~—safe", True),
        ("~not~safe", True),
        ("~no~t safe", True),
        ("~1~2 tablets", True),
        ("5~7 or 10~14 days", True),
        ("~~not~~safe", True),
        ("5~7 days", False),
        ("~24 hours, or ~48", False),
        ("in ~/lamp or ~ 5", False),
        ("~not ~safe", False),
        ("\\~2 euros, and 9~18", False),
        ("`~` or `~`", False),
        ("&#126;2 euros, and 9~18", False),
    ],
)
def test_tilde_that_can_close_is_struck(text: str, is_struck: bool) -> None:
    assert any(part.kind is FragmentKind.STRUCK for part in fragments(text, lambda _: False)) is is_struck


@pytest.mark.parametrize("shape", ["1*2", "1*_*_2", "*a **b _c ", "a** b* c_ ", "a*b**c***", "a~b ", "~a "])
def test_time_is_linear(shape: str) -> None:
    def seconds(size: int) -> float:
        text = shape * (size // len(shape)) + "1*2"
        taken = []
        for _ in range(3):
            begun = time.process_time()
            fragments(text, lambda _: False)
            taken.append(time.process_time() - begun)
        return min(taken)

    assert seconds(40_000) < 12 * seconds(10_000)


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("an A* in maths", True),
        ("an A*.", True),
        ("2*(4) tablets", True),
        ("a 5* hotel", True),
        ("a 5** hotel", True),
        ("*The first. The second.*", False),
        ("second** sentence", True),
        ("the second sentence**", False),
        ("**the first sentence", False),
        ("an *A* in maths", False),
        ("Kund*innen", False),
    ],
)
def test_mark_that_can_only_close_is_shown(text: str, is_shown: bool) -> None:
    kinds = {part.kind for part in fragments(text, lambda _: False)}
    assert (FragmentKind.EMPHASIS in kinds) is is_shown
