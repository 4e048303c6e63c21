"""What of a table in a document the judge reads."""

from judges.evidence import EvidenceIndex, build_index
from judges.sentences import IncrementalSplitter
from judges.types import Chunk


def read(text: str) -> EvidenceIndex:
    return build_index(
        [Chunk(id="d", text=text)], splitter=IncrementalSplitter, count=lambda one: len(one.split()), max_tokens=512
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
    assert window.read.splitlines() == [
        "Prices in 2025:",
        "| Plan | Price | Users |",
        "Plan: Basic; Price: 9 euros; Users: 2",
        "Plan: Team; Price: 49 euros",
        "| A | B |",
        "| 1 | 2 |",
        "The end.",
    ]
    assert read("No table. At all.").windows[0].told == ""


def test_a_window_that_begins_within_a_table_knows_its_header() -> None:
    rows = "".join(f"| Plan {number} | {number} euros |\n" for number in range(30))
    windows = read(f"| Name | Price |\n|---|---|\n{rows}").windows
    assert len(windows) > 2
    assert windows[-1].read.splitlines()[-1] == "Name: Plan 29; Price: 29 euros"
    assert all("Name: Plan" in window.read and "Name:" not in window.text for window in windows)
