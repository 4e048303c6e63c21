"""Pairs of evidence and claim from support, medicine, law, finance and travel, for which a mere comparison of words and
numbers is wrong."""

import json
from pathlib import Path

import pytest

from judges.features import Features, compute, prepare

PAIRS = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data" / "pairs.jsonl").read_text("utf-8").splitlines()
]


def named(pair: dict[str, str]) -> str:
    return pair["claim"]


def features(pair: dict[str, str]) -> Features:
    return compute(prepare(pair["evidence"]), prepare(pair["claim"]))


def alarm(found: Features) -> float:
    """The strength of any feature that says that the evidence contradicts the claim."""
    return max(found.quantity_differs, found.polarity_differs, found.name_differs, found.roles_swapped)


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair["claim_is"] == "supported"], ids=named)
def test_supported_pairs_are_not_blocked(pair: dict[str, str]) -> None:
    assert alarm(features(pair)) < 0.5


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair["claim_is"] == "contradicted"], ids=named)
def test_contradicted_pairs_are_not_taken_for_repetitions(pair: dict[str, str]) -> None:
    found = features(pair)
    assert alarm(found) >= 0.5 or max(found.verbatim, found.contained) < 0.5
