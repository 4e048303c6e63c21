"""What looks like a block mark is one only where CommonMark has it. Anywhere else, a judge reads it as text."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.sentences.splitter import IncrementalSplitter
from judges.types import Sentence


def split(text: str, cuts: Sequence[int] = (), **options: Any) -> Sequence[Sentence]:
    splitter = IncrementalSplitter(**options)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    return [*(one for piece in pieces for one in splitter.push(piece)), *splitter.flush()]


def read(text: str, **options: Any) -> Sequence[str]:
    return [sentence.plain for sentence in split(text, **options)]


@pytest.mark.parametrize(
    ("text", "judged"),
    [
        # other dashes and numbers than those of CommonMark
        ("– 25 °C", ["– 25 °C"]),
        ("— 25 °C.", ["— 25 °C."]),
        ("Store it at:\n– 25 °C.", ["Store it at:", "– 25 °C."]),
        ("– **25 °C**", ["– 25 °C"]),
        ("— ½ tablet", ["— ½ tablet"]),
        ("• 4 tablets", ["• 4 tablets"]),
        ("For children:\n(1) tablets daily", ["For children:", "(1) tablets daily"]),
        ("(a) tablets daily", ["(a) tablets daily"]),
        ("b) tablets daily", ["b) tablets daily"]),
        # indented as far as code, or by other characters than spaces and tabs
        ("Store it at:\n    > 25 °C.", ["Store it at:", "> 25 °C."]),
        ("Store it at:\n    - 25 °C.", ["Store it at:", "- 25 °C."]),
        ("Store it at:\n\t- 25 °C.", ["Store it at:", "- 25 °C."]),
        ("Children take 2\n    * 4 tablets daily.", ["Children take 2 * 4 tablets daily."]),
        ("Children take 2\n     + 4 tablets daily.", ["Children take 2 + 4 tablets daily."]),
        ("For children:\n    1. tablets daily.", ["For children:", "1. tablets daily."]),
        ("- Store it at\n      > 25 °C.", ["Store it at > 25 °C."]),
        ("1. Store it at\n       - 25 °C.", ["Store it at - 25 °C."]),
        ("Store it.\n\n    > 25 °C", ["Store it.", "> 25 °C"]),
        ("\u00a0> 25 °C", ["> 25 °C"]),
        ("\u00a0- 25 °C", ["- 25 °C"]),
        ("\u3000- 25 °C", ["- 25 °C"]),
        ("\f> 25 °C", ["> 25 °C"]),
        ("Store it.\v- 25 °C", ["Store it.", "- 25 °C"]),
        ("Store it at:\u2028> 25 °C", ["Store it at:", "> 25 °C"]),
        ("Store it at:\u2029- 25 °C", ["Store it at:", "- 25 °C"]),
        ("\u00a01. tablets daily", ["1. tablets daily"]),
        # in the middle of a line
        ("Store it cool. > 25 °C.", ["Store it cool.", "> 25 °C."]),
        ("Is it cold? - 25 °C.", ["Is it cold?", "- 25 °C."]),
        # a number other than 1 in a paragraph
        ("1. Store it.\n\nFor adults:\n2. tablets daily.", ["Store it.", "For adults:", "2. tablets daily."]),
        ("Adults take\n14) tablets a week", ["Adults take 14) tablets a week"]),
        # HTML, in which nothing is Markdown
        ("<p>Store it at:\n> 25 °C.</p>", ["Store it at:", "> 25 °C."]),
        ("<div>\n> 25 °C\n</div>", ["> 25 °C"]),
        ("<div>\n1. tablets daily\n</div>", ["1. tablets daily"]),
        ("<table><tr><td>\n- 25 °C\n</td></tr></table>", ["- 25 °C"]),
        ("<pre>\n\n> 25 °C\n</pre>", ["> 25 °C"]),
        # marks before numbers may be signs in clients that show plain text
        ("> 25 °C", ["> 25 °C"]),
        ("- 25 °C", ["- 25 °C"]),
        ("Store it at:\n\n* 25 °C", ["Store it at:", "* 25 °C"]),
        ("Store it at:\n+ $25", ["Store it at:", "+ $25"]),
        # deeper than is followed
        ("> > > > > > > > > - 25 °C", ["> > > > > > > > > - 25 °C"]),
        # code in a list item or block quote doesn't end in the paragraph after it
        ("- ```\n  > 25\n  ```", ["```", "> 25 ```"]),
        ("    - 25 °C", ["- 25 °C"]),
        ("    **25** °C", ["**25** °C"]),
        ("    <big>", ["<big>"]),
        ("    | Blue | **Red** |", ["| Blue | **Red** |"]),
        ("Hello!\n\n    |---|\n\t| Blue <!-- 4 --> |", ["Hello!", "|---|", "| Blue <!-- 4 --> |"]),
        ("Hello!\n\n    <big>", ["Hello!", "<big>"]),
    ],
)  # fmt: skip
def test_what_is_no_mark_is_read(text: str, judged: Sequence[str]) -> None:
    assert [plain for plain in read(text) if plain] == judged


@pytest.mark.parametrize(
    ("text", "judged"),
    [
        ("- Adults get 25 days.\n- Trainees get 20.", ["Adults get 25 days.", "Trainees get 20."]),
        ("- 25 days of leave\n- 5 days off\n- 3 days", ["- 25 days of leave", "5 days off", "3 days"]),
        ("1. 25 days\n2. 5 days\n10. 3 days", ["25 days", "5 days", "3 days"]),
        ("- Fees\n    - Adults\n        - Members", ["Fees", "Adults", "Members"]),
        ("1. Fees\n   - Adults\n     - Members", ["Fees", "Adults", "Members"]),
        ("1. Fees\n    1. Adults\n\n       The rest", ["Fees", "Adults", "The rest"]),
        ("* Fees\n\t* Adults\n\t\t* Members", ["Fees", "Adults", "Members"]),
        ("> Adults take\n> 25 tablets", ["Adults take", "25 tablets"]),
        ("> - Adults\n>   - Members\n> - Trainees", ["Adults", "Members", "Trainees"]),
        ("• Adults\n– Trainees", ["Adults", "Trainees"]),
        ("- [ ] Adults", ["Adults"]),
        ("Adults\n- Members\n1. Trainees", ["Adults", "Members", "Trainees"]),
        ("## Fees\n\n- Adults", ["Fees", "Adults"]),
        ("Fees\n---\n2. Adults", ["Fees", "Adults"]),
        ("<div>\n> 25 °C\n</div>\n\n- Adults", ["> 25 °C", "Adults"]),
        ("A <b>word</b>\n- Adults", ["A word", "Adults"]),
    ],
)  # fmt: skip
def test_marks_are_not_read(text: str, judged: Sequence[str]) -> None:
    assert [plain for plain in read(text) if plain] == judged


@pytest.mark.parametrize(
    "text",
    [
        "Hello!\n    ```\nChildren\ntake 4 tablets",
        "    ```\nChildren\ntake 4 tablets",
        "\t```\nChildren\ntake 4 tablets",
        "\t~~~\nChildren\ntake 4 tablets",
        "\u00a0```\nChildren\ntake 4 tablets",
        "\u2003~~~\nChildren\ntake 4 tablets",
        "Hello!\u2028```\nChildren\ntake 4 tablets",
        "<div>\n```\nChildren\ntake 4 tablets",
        "Hello!\n<section>\n~~~\nChildren\ntake 4 tablets",
        "<pre>\n\n```\nChildren\ntake 4 tablets",
        f"```Children{' ' * 81}`\ntake 4 tablets",
        f"```Children{' ' * 2000}`\ntake 4 tablets",
        f"```{'x' * 2000}\n```\n\nChildren\ntake 4 tablets",
        "- ```\n  x\n  ```\n\nChildren\ntake 4 tablets",
        "1. ~~~\n   x\n   ~~~\n\nChildren\ntake 4 tablets",
        "> ```\n> x\n\nChildren\ntake 4 tablets",
        "- x\n\n  ```\nChildren\ntake 4 tablets",
        "```\nx\n```\t\nChildren\ntake 4 tablets",
        f"```\nx\n```{' ' * 40}\nChildren\ntake 4 tablets",
        "````\nx\n    ````\n> ````\n````\nChildren\ntake 4 tablets",
        f"{'`' * 70}\nx\n{'`' * 70}\nChildren\ntake 4 tablets",
    ],
)
def test_what_is_no_fence_begins_no_code(text: str) -> None:
    last = [sentence for sentence in split(text) if "take" in sentence.text]
    assert [sentence.in_code for sentence in last] == [False]


@pytest.mark.parametrize(
    "text",
    [
        "```\nChildren\ntake 4 tablets",
        "   ```python title=x\nChildren\ntake 4 tablets\n   ```",
        "~~~ a`b`\nChildren\ntake 4 tablets",
        "Hello:\n```\nChildren\ntake 4 tablets",
        "- x\n  ```\n  Children\n  take 4 tablets\n  ```",
        "```\nx\n    ```\nChildren\ntake 4 tablets",
        "```\nx\n> ```\nChildren\ntake 4 tablets",
        "~~~\nx\n```\nChildren\ntake 4 tablets",
    ],
)
def test_fence_begins_code(text: str) -> None:
    assert all(sentence.in_code for sentence in split(text) if "take" in sentence.text)


@pytest.mark.parametrize(
    "text",
    ["> 25 °C", "– 25 °C", "1) tablet daily", "- 25 °C", "```\nChildren", "2. tablets", "    # 4", "* 4 tablets"],
)
def test_nothing_is_a_mark_if_the_text_is_not_markdown(text: str) -> None:
    assert read(text, markdown=False) == [" ".join(text.split())]


@pytest.mark.parametrize("text", ["- 25 °C", "1. tablet daily", "> 25 °C", "```\nChildren"])
def test_text_that_continues_a_line_begins_with_no_mark(text: str) -> None:
    assert read(text, begins_line=False) == [" ".join(text.split())]


_STARTS = "- |  - |    - |> |1. |2. |10) |* |+ |– |a) |\t|    |# |```|``` x`|~~~|---|===|\u00a0|\u2028"
_REST = "<div>|</div>|<b>x</b>|<pre>|¦ a ¦ b ¦|[8]: u|word|Word.|25|\n|\n|\n|\n\n|\r\n| |  "
LINES = st.lists(st.sampled_from(f"{_STARTS}|{_REST}".split("|")), max_size=24).map("".join)


@given(LINES, st.lists(st.integers(0, 60), max_size=8))
def test_blocks_do_not_depend_on_deltas(text: str, cuts: Sequence[int]) -> None:
    text = text.replace("¦", "|")
    whole = split(text)
    assert split(text, cuts) == whole == split(text, range(len(text)))
    assert "".join(sentence.text for sentence in whole) == text
