"""The text that the judge reads of a table in a document."""

from judges.evidence.index import EvidenceIndex
from judges.evidence.windowing import DocumentCutter, build_index
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Chunk


def read(text: str) -> EvidenceIndex:
    return build_index(
        [Chunk(id="d", text=text)],
        cutter=DocumentCutter(IncrementalSplitter),
        count=lambda one: len(one.split()),
        max_tokens=512,
    )


TABLE = """Prices in 2025:

| Plan | Price | Users |
|------|------:|------:|
| Basic | 9 euros | 2 |
| Team | 49 euros | |

| A | B |
| 1 | 2 |

The end."""


def test_rows_of_a_table_are_read_with_its_header() -> None:
    index = read(TABLE)
    (window,) = index.windows
    assert window.text == TABLE
    assert window.judged_text.splitlines() == [
        "Prices in 2025:",
        "| Plan | Price | Users |",
        "Plan: Basic; Price: 9 euros; Users: 2",
        "Plan: Team; Price: 49 euros",
        "| A | B |",
        "| 1 | 2 |",
        "The end.",
    ]
    assert read("No table. At all.").windows[0].verbalised == ""


def test_window_within_a_table_contains_its_header() -> None:
    rows = "".join(f"| Plan {number} | {number} euros |\n" for number in range(30))
    windows = read(f"| Name | Price |\n|---|---|\n{rows}").windows
    assert len(windows) > 2
    assert windows[-1].judged_text.splitlines()[-1] == "Name: Plan 29; Price: 29 euros"
    assert all("Name: Plan" in window.judged_text and "Name:" not in window.text for window in windows)


def test_blank_line_or_another_table_ends_a_table() -> None:
    one, two = "| Plan | Price |\n|---|---|\n| Basic | 9 |\n", "| City | Staff |\n|---|---|\n| Rome | 7 |\n"
    for between in ("\n", " \n", ""):
        (window,) = read(one + between + two).windows
        assert window.judged_text.splitlines()[1] == "Plan: Basic; Price: 9"
        assert window.judged_text.splitlines()[-1] == "City: Rome; Staff: 7"
    (window,) = read((one + "\n" + two).replace("\n", "\r\n")).windows
    assert window.judged_text.splitlines()[-1] == "City: Rome; Staff: 7"


def test_lines_of_dashes_are_read_unchanged() -> None:
    index = read("a\n" + "|--|\n" * 2000)
    assert max(len(window.judged_text.split()) for window in index.windows) <= index.window_tokens
