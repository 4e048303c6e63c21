"""The wording features of a row."""

import pytest

from judges.features import WORDED, prepare
from judges.training.data.datasets import Group, Row, Target
from judges.training.data.wording_prior import measure_rows, measures

EVIDENCE = "The old mill stands near Bergen, and its wheel turns slowly."


def test_measures_of_a_claim() -> None:
    """Six of seven words are in the evidence, in runs of four and two: triples 2 of 5, the longest 4 of 7."""
    found = measures(prepare(EVIDENCE), prepare("The old mill stands, its wheel broke"))
    triples, longest, quantities, names, length, evidence_length = found[len(WORDED) :]
    assert triples == pytest.approx(2 / 5)
    assert longest == pytest.approx(4 / 7)
    assert quantities == names == 1.0
    assert 0.0 < length < evidence_length
    assert measures(prepare(EVIDENCE), prepare("It has 3 wheels."))[len(WORDED) + 2] == 0.0
    assert measures(prepare(""), prepare("A claim.")) == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]


def test_rows_are_measured_without_captions_and_deterministically() -> None:
    rows = tuple(Row(f"The old mill has {number} wheels.", Target(number % 4), "one") for number in range(8))
    captions = Group(EVIDENCE, (Row("A mill.", Target.ENTAILED, "SNLI"),), "SNLI")
    groups = [Group(EVIDENCE, rows, "one"), captions]
    found, again = measure_rows(groups), measure_rows(groups)
    assert found.measures.shape == (8, 9)
    assert (found.measures == again.measures).all()
    assert set(found.sources) == {"one"}
    assert found.entailed.sum() == 2
