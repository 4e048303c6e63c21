"""A claim's quantities in the form of the evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.features import as_written, prepare


@pytest.mark.parametrize(
    ("claim", "evidence", "asked"),
    [
        ("It has three days to report.", "It reports within 72 hours.", "It has 72 hours to report."),
        ("The most is 2 g a day.", "A maximum of 2000 mg a day.", "The most is 2000 mg a day."),
        ("Half a million came.", "There were 500,000 of them.", "500,000 came."),
        ("It opened on 14 March 2024.", "Opening: 2024-03-14.", "It opened on 2024-03-14."),
        ("It has three days to report.", "It reports within 72 hours, not three days.", "It has three days to report."),
        ("It has three days to report.", "It reports within 70 hours.", "It has three days to report."),
        ("In three days, not three days.", "In 72 hours.", "In three days, not three days."),
        ("It weighs 5 kg.", "It costs 5 euros.", "It weighs 5 kg."),
    ],
)
def test_quantity_is_rewritten_as_in_the_evidence(claim: str, evidence: str, asked: str) -> None:
    assert as_written(claim, prepare(claim), [prepare(evidence)]) == asked


def test_notation_of_any_window_is_accepted() -> None:
    windows = [prepare("Reports are written."), prepare("They come within 72 hours.")]
    claim = "They come within three days."
    assert as_written(claim, prepare(claim), windows) == "They come within 72 hours."


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_texts_are_accepted(claim: str, evidence: str) -> None:
    assert as_written(claim, prepare(claim), [prepare(f"{claim}\n{evidence}")]) == claim
