"""One word in place of another."""

import pytest

from judges.features import Features, compute, prepare


def features(evidence: str, claim: str) -> Features:
    return compute(prepare(evidence), prepare(claim))


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("It is soluble in many organic solvents.", "It is soluble in few organic solvents."),
        ("Morse code is less sensitive to poor signals.", "Morse code is more sensitive to poor signals."),
        ("A woman is sitting near the fruit stall.", "A man is sitting near the fruit stall."),
        ("The vessel was laid down during the war.", "The vessel was laid up during the war."),
        ("Press the green button to stop the pump.", "Press the red button to stop the pump."),
    ],
)
def test_opposite_word_in_the_same_place_is_an_opposite(evidence: str, claim: str) -> None:
    assert features(evidence, claim).polarity_differs >= 0.4


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("He walked up the street and then down the hill.", "He walked up the street."),
        ("The red button starts it, the green button stops it.", "The green button stops it."),
        ("It costs more in summer and less in winter.", "It costs less in winter."),
        ("A grey cat sleeps on the roof.", "A gray cat sleeps on the roof."),
    ],
)
def test_opposite_word_elsewhere_is_none(evidence: str, claim: str) -> None:
    assert features(evidence, claim).polarity_differs == 0.0


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        (
            "The office is near the market in Thailand that sells cloth.",
            "The office is near the market in India that sells cloth.",
        ),
        ("In the summer Shelly was born in Florida by chance.", "In the summer Shelly was born in Arizona by chance."),
    ],
)
def test_another_name_in_the_same_place_differs(evidence: str, claim: str) -> None:
    found = features(evidence, claim)
    assert found.name_differs == 1.0
    assert found.contained == 0.0


def test_name_known_to_the_evidence_is_a_weaker_difference() -> None:
    evidence = "In the summer Shelly was born in Florida by chance. Her mother is from Arizona."
    assert features(evidence, "In the summer Shelly was born in Arizona by chance.").name_differs == 0.4


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        (
            "It lies somewhere in the middle of VA by the sea.",
            "It lies somewhere in the middle of Virginia by the sea.",
        ),
        ("You have to ask Severn about the Javis children.", "You have to ask Severn about the Jarvis children."),
        ("The museum in Lund opened in spring.", "The museum in Lund opened in spring."),
    ],
)
def test_spelling_variant_is_the_same_name(evidence: str, claim: str) -> None:
    assert features(evidence, claim).name_differs == 0.0


def test_contained_text_has_all_its_words() -> None:
    evidence = (
        "A man with a blue jacket and a woman with a black jacket stand near a large statue and look at the water."
    )
    assert features(evidence, evidence.replace("statue", "bridge")).contained == 0.0
    assert features(evidence, evidence).contained == 1.0
