"""A judge reads the labels of links that belong to a sentence, and leaves out those that are citations."""

import time

import pytest

from judges.text.fragments import FragmentKind, spoken
from judges.text.markdown import fragments

NAMES = frozenset(["[1]", "[[1]]", "[2]", "[8]", "[**8**]", "[Children]", "(Children)", "[hr.pdf]", "(hr.pdf)"])
MARKERS = (FragmentKind.MARKER, FragmentKind.STRAY_MARKER)


def read(text: str) -> tuple[str, set[str]]:
    """The text that a judge reads, and the kinds of the markers in it."""
    parts = fragments(text, lambda bracket: bracket in NAMES)
    return spoken(parts), {part.kind.value for part in parts if part.kind in MARKERS}


@pytest.mark.parametrize(
    "text",
    [
        "25 days of leave [1](u).", "25 days of leave[1](u).", "25 days of leave.[1](u)",
        "25 days of leave [1](u), and",
        "25 days of leave [1](u)[2](u).", "25 days of leave [1](u) [2](u).", "25 days of leave [1](u), [2](u).",
        "It is 25 [1](u).", "It is 25 [1](u)[2](u).", "It is 5% [1](u).", "It is 20€[1](u).", "“Leave”[1](u).",
        "25 days (a year) [1](u); more",
        "25 days ([1](u)).", "25 days ([1](u)), so", "25 days **[1](u)**.", "| Leave | 25 days [1](u) |",
        "25 days [[1]](u) and", "25 days [1] and", "25 days[1].", "In 2025[1].", "[1] Leave", "25 days [hr.pdf](u).",
        "25 days ([1](u), [2](u)).", "25 days [[1](u)].", "25 days [[1](u), [2](u)].", "25 days [1][2] and",
        "25 days of leave<sup>1</sup>.", "25 days of leave **<sup>1</sup>**.", "In 2025 <sup>1</sup> and",
        "| Leave | 25 days [1](u)                                             |",
        "That is how it is. [1](u)", "The maximum is 25 [1](u).", "The maximum is [1].", "The limit applies [1](u).",
        "25 days (hr.pdf) and", "[hr.pdf] Leave", "25 days. [Children](u)", "休暇は25日です[1](u)。",
    ],
)  # fmt: skip
def test_marker_at_the_end_of_a_clause_is_a_citation(text: str) -> None:
    said, kinds = read(text)
    assert kinds == {"marker"}
    assert not any(name in said for name in ("1", "hr.pdf", "Children"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The maximum is [8](u).", "The maximum is 8."),
        ("The maximum is **[8](u)**.", "The maximum is 8."),
        ("The maximum is [8](u), and", "The maximum is 8, and"),
        ("The fee costs [1](u)[2](u).", "The fee costs 12."),
        ("| It was [8](u) | 4 |", "It was 8 4"),
        ("Das Limit ist [8](u).", "Das Limit ist 8."),
        ("at most [1](u)2 tablets", "at most 12 tablets"),
        ("at most 2[1](u) tablets", "at most 21 tablets"),
        ("at most 2[1](u)[2](u).", "at most 212."),
        ("at most **2**[1](u).", "at most 21."),
        ("[Children](u) take 4.", "Children take 4."),
        ("[Children](u): 4.", "Children: 4."),
        ("For [Children](u), 4.", "For Children, 4."),
        ("| [Children](u) | 4 |", "Children 4"),
        ("[Children] take 4.", "Children take 4."),
        ("(Children) Take 4.", "Children Take 4."),
        ("Read [hr.pdf](u) today.", "Read hr.pdf today."),
        ("<sup>1</sup>5 euros", "^1 5 euros"),
        ("<sup>1</sup>**5** euros", "^1 5 euros"),
        ("a fee of <sup>1</sup>&#53; euros", "a fee of ^1 5 euros"),
        ("5<sup>1</sup> euros", "5^1 euros"),
        ("a room of 25 m<sup>2</sup>.", "a room of 25 m^2 ."),
        ("a bulb of 4 mg<sup>1</sup>, twice", "a bulb of 4 mg^1 , twice"),
        ("take <sup>1</sup>/<sub>2</sub> tablet", "take ^1 / 2 tablet"),
        ("(10)<sup>2</sup> units", "(10)^2 units"),
        ("*5*<sup>1</sup> euros", "5^1 euros"),
        ("`5`<sup>1</sup> euros", "5^1 euros"),
        ("5<b></b><sup>1</sup> euros", "5^1 euros"),
        ("5<sub></sub><sup>1</sup> euros", "5 ^1 euros"),
        ("5<wbr><sup>1</sup><sup>2</sup> euros", "5^1 ^2 euros"),
        ("5<sup>9</sup><sup>1</sup> euros", "5^9 ^1 euros"),
        ("½<sup>1</sup> euros", "½^1 euros"),
    ],
)
def test_label_that_belongs_to_the_sentence_is_read(text: str, said: str) -> None:
    assert read(text) == (said, set())


@pytest.mark.parametrize("reference", ["[1]", "[]"])
def test_name_that_refers_to_a_definition_is_read(reference: str) -> None:
    assert read(f"For [Children]{reference}, 4.")[0] == "For Children, 4."
    assert read(f"25 days. [Children]{reference}")[0] == "25 days."


@pytest.mark.parametrize(
    "text",
    [
        "at most [8](u) tablets", "at most ([8](u)) tablets", "at most [**8**](u) tablets",
        "at most [1](u) [8](u) tablets",
        "at most [8](u)\ntablets", "at most “[8](u)” tablets", "at most [8](u)/2 tablets", "at most [8](u) € a day",
        "at most [8](u).5 tablets", "take 5.[8](u)", "take 5,[8](u)", "a fee of €[8](u).", "Tablets: [8](u)", "[8](u)",
        "| Tablets | [8](u) |", "leave [1](u) and more", "at most 2[8] tablets", "at most [8]2 tablets",
        "at most [8]**2** tablets", "at most ½[8] tablets", "at most [8][] tablets",
        "10[^2] units", "a dose of 10[^2].",
        "at most [[8](u) tablets].", "at most [[8](u) tablets.", "at most [^[8](u) tablets.",
    ],
)  # fmt: skip
def test_number_that_may_belong_to_the_sentence_is_stray(text: str) -> None:
    assert "stray_marker" in read(text)[1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[**Children**](u) take 8.", "Children take 8."),
        ("[__Children__](u) take 8.", "Children take 8."),
        ("[Chil*dren*](u) take 8.", "Children take 8."),
        ("**[*Children*](u) take** 8.", "Children take 8."),
        ("[***Children***](u) take *8*.", "Children take 8."),
        ("| [**Children**](u) take | 8 |", "Children take 8"),
    ],
)
def test_emphasis_in_the_name_of_a_document_is_read_as_it_is_shown(text: str, shown: str) -> None:
    parts = fragments(text, lambda bracket: f"[{bracket.strip('[]').replace('*', '').replace('_', '')}]" in NAMES)
    assert {part.kind for part in parts} <= {FragmentKind.TEXT, FragmentKind.SYNTAX, FragmentKind.LINK}
    assert spoken(parts).strip() == shown


@pytest.mark.parametrize("shape", ["[1]  ", "[1] \n", "[1])", "[1](u)) "])
def test_time_for_a_row_of_markers_is_linear(shape: str) -> None:
    def used(size: int) -> float:
        text, begun = "a " + shape * size, time.process_time()
        read(text)
        return time.process_time() - begun

    assert min(used(20_000) for _ in range(3)) < 8 * min(used(5_000) for _ in range(3))


@pytest.mark.parametrize(
    "text",
    ["at most [8) tablets", "at most (8] tablets", "at most [8} tablets", "［8) tablets"],
)
def test_brackets_that_do_not_match_are_text(text: str) -> None:
    assert read(text) == (text, set())
