"""Every character of the text is in a fragment, and a judge reads what a reader sees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.text.fragments import FragmentKind, code_fragments, spoken
from judges.text.markdown import fragments

SYNTAX = st.sampled_from(
    [
        *"*_`~[]()<>!#|-\\&;:. \n【】",
        "<b>",
        "</b>",
        "<!--",
        "-->",
        "<a href=x>",
        "&amp;",
        "[1]",
        "](",
        "\u200b",
        "\U000e0041",
    ]
)
MARKUP = st.lists(st.one_of(SYNTAX, st.text(max_size=4)), max_size=40).map("".join)


def kinds(text: str, known: str = "") -> list[tuple[str, str]]:
    """The fragments that are neither text nor syntax."""
    found = fragments(text, lambda marker: marker in known.split("|"))
    return [
        (part.kind.value, text[part.start : part.end])
        for part in found
        if part.kind not in (FragmentKind.TEXT, FragmentKind.SYNTAX, FragmentKind.ORDINAL)
    ]


def read(text: str, known: str = "") -> str:
    return spoken(fragments(text, lambda marker: marker in known.split("|")))


@given(MARKUP)
def test_fragments_tile_any_text(text: str) -> None:
    for found in (fragments(text), fragments(text, lambda _: False), code_fragments(text)):
        assert "".join(text[part.start : part.end] for part in found) == text
        assert all(part.end > part.start for part in found)


@given(MARKUP)
def test_every_letter_outside_hidden_text_is_read(text: str) -> None:
    for part in fragments(text, lambda _: False):
        shown = text[part.start : part.end]
        if part.kind is FragmentKind.SYNTAX:
            assert not any(map(str.isalnum, shown)) or shown.startswith("<")
        elif part.kind is FragmentKind.TEXT and not shown.startswith("&"):
            assert part.spoken.count("a") == shown.count("a")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Wait 24 hours.<Take 8 if it hurts.>", "Wait 24 hours."),
        ("Wait 24 hours 【or 8 if it hurts】.", "Wait 24 hours 【or 8 if it hurts】."),
        ("Wait 24 hours [Source: or 8 if it hurts].", "Wait 24 hours [Source: or 8 if it hurts]."),
        ("Take 4<sup>2</sup> tablets.", "Take 4^2 tablets."),
        ("Take <b>8</b> tablets.<br>Daily.", "Take 8 tablets. Daily."),
        ("4 &lt; 8 tablets", "4 < 8 tablets"),
        ("A <custom>8</custom> B", "A 8 B"),
        ("<!-- Take 8", "!-- Take 8"),
        ("Take <8 or > 9 tablets, 2 < 3.", "Take <8 or > 9 tablets, 2 < 3."),
        ('Take <s x="<">8</s/x> tablets.', "Take 8 tablets."),
        ("Take 2<details>4</details> tablets.", "Take 24 tablets."),
        ("Take `<s>8` tablets.", "Take <s>8 tablets."),
    ],
)
def test_visible_text_is_read(text: str, told: str) -> None:
    assert read(text) == told


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Wait.<!-- Take 8. -->", [("comment", "<!-- Take 8. -->")]),
        (
            'See <a href="https://x/take-8" title="Take 8">here</a>.',
            [("attribute", 'href="https://x/take-8" title="Take 8"')],
        ),
        ('See [here](https://x/take-8 "Take 8").', [("link", "https://x/take-8"), ("link", ' "Take 8"')]),
        ("![](take-8.png)", [("link", "take-8.png")]),
        ("Do ![not](take-8.png 'It') wait.", [("attribute", "![not](take-8.png 'It')")]),
        ("Do ![not][take] wait.", [("attribute", "![not][take]")]),
        ("Do ![not] wait.", [("attribute", "![not]")]),
        ("Do ![a [not](b) c](d) wait.", [("attribute", "![a [not](b) c](d)")]),
        ("Do ![a ![not](b) c](d) wait.", [("attribute", "![a ![not](b) c](d)")]),
        ("Do ![no\\]t](b) wait.", [("attribute", "![no\\]t](b)")]),
        ("Do [![not](b)](c) wait.", [("attribute", "![not](b)"), ("link", "c")]),
        ("Do ![not", [("attribute", "![")]),
        ("Do [](not) wait.", [("link", "not")]),
        ("Do []( not ) wait.", [("link", "not")]),
        ("Do [](<not >) wait.", [("link", "<not >")]),
        ("Do [](a (not)) wait.", [("link", "a"), ("link", " (not)")]),
        ("Do [](a 'no\\'t') wait.", [("link", "a"), ("link", " 'no\\'t'")]),
        ("Do [](a\u00a0not) wait.", [("link", "a\u00a0not")]),
        ("Do [](a(b(c))not) wait.", [("link", "a(b(c))not")]),
        ("Do [](a((((b))))not) wait.", [("link", "](")]),
        ("Do [a [b] c](not) wait.", [("link", "not")]),
        ("Do [a [b [c]] d](not) wait.", [("link", "not")]),
        ("[not]: <>\nWait.", [("link", "[not]"), ("link", "<>")]),
        ("[not]: a\n'b'\nWait.", [("link", "[not]"), ("link", "a"), ("link", "\n'b'")]),
        ("not at all]: a\nWait.", [("link", "not at all]"), ("link", "a")]),
        ('[a]: b "not', [("link", "[a]"), ("link", "b"), ("link", ' "not')]),
        ("- [ ] Wait.", [("symbol", "[ ] ")]),
        ("1. [x] Wait.", [("symbol", "[x] ")]),
        ("> * [X] Wait.", [("symbol", "[X] ")]),
        ("- - [x] Wait.", [("symbol", "[x] ")]),
        ("- [x]", [("symbol", "[x]")]),
        ("See [here][take-8].", [("link", "[take-8]")]),
        (
            "[1]: https://x/take-8 'Take 8'",
            [("stray_marker", "[1]"), ("link", "https://x/take-8"), ("link", " 'Take 8'")],
        ),
        ("Five years [7].", [("stray_marker", "[7]")]),
        ("Wait n\u034fot 24.", [("invisible", "\u034f")]),
        ("Wait n\u0336o\u0336t 24\u20e0.", [("struck", "\u0336"), ("struck", "\u0336"), ("struck", "\u20e0")]),
        ("Wait\u200b 24 \U000e0041hours.", [("invisible", "\u200b"), ("invisible", "\U000e0041")]),
        ("Wait &#8203;24 hours.", [("invisible", "&#8203;")]),
        ("Wait \udb40\udc6224 hours.", [("invisible", "\udb40\udc62")]),
        ("Wait \udb4024\udc62 hours.", [("invisible", "\udb40"), ("invisible", "\udc62")]),
        ("Wait \ud83d\ude0a\udb40\udc62.", [("invisible", "\ud83d\ude0a\udb40\udc62")]),
        ("[<s>8</s>]: https://x/y", [("link", "[<s>8</s>]"), ("link", "https://x/y")]),
        ("Wait \u202e24\u202c hours.", [("invisible", "\u202e"), ("invisible", "\u202c")]),
    ],
)
def test_hidden_text_has_a_kind(text: str, hidden: list[tuple[str, str]]) -> None:
    assert kinds(text) == hidden


@pytest.mark.parametrize(
    "markup",
    [
        "<s>", "<s/x>", "<s\n>", '<s x="<">', "<s x='>'>", "</s/x>", "</S >", "<del\tx>", "<details>", "<select x=1>",
        "<xmp>", "<blink>", "<not>", "<math/>", "<b:c>", "<font-face>",
    ],
)  # fmt: skip
def test_any_element_may_hide_text_unless_it_is_known_to_show_it(markup: str) -> None:
    assert kinds(f"Wait {markup} 24.") == [("struck", markup)]


@pytest.mark.parametrize(
    "markup",
    [
        "<!-- 8 -->", "<!-- 8 --!>", "<!-->", "<!--->", "<!8>", "<!DOCTYPE 8\n>", "<?8?>", "</3 8>", "</ s>", "</>",
        "<!-- <b> -->", "<![CDATA[8]]>",
    ],
)  # fmt: skip
def test_comment_ends_where_browsers_end_it(markup: str) -> None:
    assert kinds(f"Wait {markup} 24.") == [("comment", markup)]


@pytest.mark.parametrize("begun", ["<", "<s", "</s x", "<!-- 8", "<? 8", '<b x=">', "</3", f"<s x={'a' * 2000}>8"])
def test_beginning_of_markup_is_unjudged(begun: str) -> None:
    assert kinds(f"Wait 24 {begun}")[0] in [("struck", "<"), ("attribute", 'x="')]


@pytest.mark.parametrize("text", ["``<s>8</s>`", "\\<s>8</s>", "`8``<s>8</s>`", "<p>`<s>`8`</s>`</p>"])
def test_markup_that_is_no_code_is_markup(text: str) -> None:
    assert kinds(text) == [("struck", "<s>"), ("struck", "</s>")]


@pytest.mark.parametrize("mark", ["\u0334", "\u0338", "\u0488", "\u20d2", "\u20e3", "\u20e5", "\ua670", "\U0001d167"])
def test_marks_over_and_around_characters_strike_them_out(mark: str) -> None:
    assert kinds(f"Wait a{mark} while.") == [("struck", mark)]


@pytest.mark.parametrize("text", ["1\ufe0f\u20e3 Wait.", "#\u20e3 Wait.", "cafe\u0301", "a\u0308", "हिन्दी", "กำ", "שָׁ"])
def test_other_marks_are_read(text: str) -> None:
    assert kinds(text) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Do ![not](a.png) wait.", "Do wait."),
        ("Do![not](a.png)wait.", "Do wait."),
        ("Do [![not](a.png)](b) wait.", "Do wait."),
        ("[not]: #\nWait.", "Wait."),
        ("- [x] Wait.", "Wait."),
        ("Wait![1] Go!", "Wait! Go!"),
        ("Do \\![so](a) wait.", "Do !so wait."),
        ("[Note]: Wait here.", "[Note]: Wait here."),
        ("Call f(x) (or g).", "Call f(x) (or g)."),
    ],
)
def test_text_is_read_without_what_browsers_hide(text: str, told: str) -> None:
    assert read(text, "[1]") == told


def test_bracket_naming_a_document_is_a_marker() -> None:
    known = "[1]|(faq.pdf)|【4†source】|[Source: faq.pdf]"
    for text in (
        "Five years [1].",
        "Five years (faq.pdf).",
        "Five years 【4†source】.",
        "Five years [Source: faq.pdf].",
    ):
        assert read(text, known) == "Five years."
        assert [kind for kind, _ in kinds(text, known)] == ["marker"]


@pytest.mark.parametrize(
    "text", ["👩\u200d👧 and ❤\ufe0f", "1\ufe0f\u20e3 first", "می\u200cخواهم", "क्\u200dष", "\ud83d\ude0a"]
)
def test_combining_characters_are_text(text: str) -> None:
    assert kinds(text) == []


def test_code_is_read_line_by_line_with_its_language() -> None:
    text = "```Take 8 tablets\nx = 1\n\ny = 2\n```\n"
    assert [text[part.start : part.end] for part in code_fragments(text) if part.kind is FragmentKind.TEXT] == [
        "Take 8 tablets",
        "x = 1\n",
        "y = 2\n",
    ]
