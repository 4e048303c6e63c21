"""How much of a claim's wording stands in the evidence."""

import pytest

from judges.signals import prepare
from judges.training.wording import Wording, measure_wording


def test_it_counts_the_wording_shared() -> None:
    """Of seven words six stand in the evidence, in runs of four and two: pairs 3 + 1 of 6, triples 2 of 5."""
    evidence = prepare("The old mill stands near Bergen, and its wheel turns slowly.")
    found = measure_wording(evidence, prepare("The old mill stands, its wheel broke"))
    assert found.pairs == pytest.approx(4 / 6)
    assert found.triples == pytest.approx(2 / 5)
    assert found.longest == pytest.approx(4 / 7)
    assert found.quantities == 1.0
    assert 0.5 < found.content < 1.0
    assert measure_wording(evidence, prepare("It has 3 wheels.")).quantities == 0.0
    assert measure_wording(prepare(""), prepare("A claim.")) == Wording()
