"""A definition makes links of markers in other sentences. They are found if they may be part of a statement."""

import pytest

from judges.text.reference_labels import ReferenceLabels
from judges.types import Sentence, Span

NAMES = frozenset(["[1]", "[2]", "[8]", "[Children]", "[hr.pdf]", "[^8]"])


def found(*texts: str) -> list[str]:
    """The text of each marker and definition that may be a link."""
    reply = [Sentence(index=index, text=text, span=Span(0, len(text)), plain=text) for index, text in enumerate(texts)]
    labels = ReferenceLabels(lambda sentence: sentence.text, lambda bracket: bracket in NAMES)
    return [
        sentence.text[span.start : span.end].strip() for sentence in reply for span in labels.links(sentence, reply)
    ]


@pytest.mark.parametrize(
    ("used", "definition"),
    [
        ("At most [8] tablets.", "[8]: u"),
        ("At most **[8]** tablets.", "[8]: <u> 'Title'"),
        ("At most [8][8] tablets.", "[8]: u"),
        ("At most [8][Children] tablets.", "[Children]: u"),
        ("Tablets: [8].", "[8]: u"),
        ("| Tablets | [8] |", "[8]: u"),
        ("For [Children], at most 4.", "[children]: u"),
        ("For [Children], at most 4.", "[ CHILDREN\n]: u"),
    ],
)
def test_definition_of_a_marker_inside_a_clause_is_found(used: str, definition: str) -> None:
    assert found(f"{used}\n\n", definition) == [definition]
    assert found(f"{used}\n\n", "More.\n\n", f"[1]: u\n{definition}\n[2]: u") == [definition]


@pytest.mark.parametrize(
    ("definition", "used", "marker"),
    [
        ("[8]: u", "At most [8] tablets.", "[8]"),
        ("[children]: u", "For [Children], at most 4.", "[Children]"),
        ("[8]: u", "At most ([8]) tablets.", "[8]"),
        ("[8]: u", "At most ([1], [8]) tablets.", "[8]"),
    ],
)
def test_marker_inside_a_clause_is_found_after_its_definition(definition: str, used: str, marker: str) -> None:
    assert found(f"{definition}\n\n", used) == [marker]


@pytest.mark.parametrize(
    "texts",
    [
        ("25 days [8].\n\n", "[8]: u"),
        ("25 days [1][8], and\n\n", "[1]: u\n[8]: u"),
        ("25 days. [Children]\n\n", "[Children]: u"),
        ("25 days [[8]] and\n\n", "[8]: u"),
        ("25 days [8] and\n\n", "[1]: u"),
        ("25 days[^8] and\n\n", "[^8]: hr.pdf"),
        ("[8]: u\n\n", "25 days [8]."),
        ("Sources:\n", "[1]: u\n[2]: u\n", "[8]: u"),
    ],
)
def test_citation_at_the_end_of_a_clause_is_not_found(texts: tuple[str, ...]) -> None:
    assert found(*texts) == []
