"""Rows to groups, and the claims made by rule."""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.training.data import augmentation as augment
from judges.training.data.datasets import NO_LICENCE_STATED, Group, Row, Target, group, load, split

PASSAGE = [
    "The lock at Ostrava opens at 6 a.m. and closes at 22:00.",
    "Boats longer than 30 metres must wait for the pilot, who boards at the lower gate.",
    "In 1998, the council approved a second basin.",
    "Mooring is not allowed on Sundays in March.",
    "Viktor Havel, a retired engineer, runs the small museum.",
]
OTHERS = ["Anna Lind founded the school in Uppsala in 1870.", "The school has 40 rooms, and the roof is made of slate."]


def row(premise: str, claim: str, label: str, source: str = "FoolMeTwice") -> dict[str, str]:
    return {"premise": premise, "hypothesis": claim, "label": label, "source": source}


def test_claims_of_one_premise_come_together_in_their_order() -> None:
    groups = group(
        [
            row("A.", "one", "entailed"),
            row("B.", "two", "neutral"),
            row("A.", "three", "unsupported"),
            row("A.", "four", "supported", source="BEGIN"),
        ]
    )
    assert [(one.premise, one.source, [claim.claim for claim in one.rows]) for one in groups] == [
        ("A.", "FoolMeTwice", ["one", "three"]),
        ("B.", "FoolMeTwice", ["two"]),
        ("A.", "BEGIN", ["four"]),
    ]
    assert [claim.target for claim in groups[0].rows] == [Target.ENTAILED, Target.OTHER]


@pytest.mark.parametrize(
    "broken", [row("", "one", "entailed"), row("A.", "", "entailed"), row("A.", "one", "perhaps"), {"source": "x"}]
)
def test_a_row_without_premise_claim_or_label_is_refused(broken: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected a premise, a hypothesis and a label"):
        group([broken])


def test_a_folder_is_loaded_with_and_without_what_states_no_licence(tmp_path: Path) -> None:
    rows = [row("A.", "one", "entailed"), row("B.", "two", "neutral", source=next(iter(NO_LICENCE_STATED)))]
    with gzip.open(tmp_path / "train.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(one) + "\n" for one in rows))
    with gzip.open(tmp_path / "snli.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({**row("C.", "three", "contradicted"), "source": "whatever"}) + "\n")
    assert [one.premise for one in load(tmp_path)] == ["A.", "B.", "C."]
    assert [(one.premise, one.source) for one in load(tmp_path, stated_only=True)] == [
        ("A.", "FoolMeTwice"),
        ("C.", "SNLI"),
    ]


def test_no_premise_is_both_trained_on_and_held_out() -> None:
    groups = [Group(f"premise {number}", (Row("x", Target.NEUTRAL, "BEGIN"),), "BEGIN") for number in range(4000)]
    trained, kept = split(groups)
    assert not {one.premise for one in trained} & {one.premise for one in kept}
    assert 0.04 < len(kept) / len(groups) < 0.08
    assert split(groups) == (trained, kept)


@pytest.mark.parametrize(
    ("rule", "sentence", "made"),
    [
        (augment.shorten, PASSAGE[2], "The council approved a second basin."),
        (augment.apposition, PASSAGE[4], "Viktor Havel is a retired engineer."),
        (augment.negate, PASSAGE[3], "Mooring is allowed on Sundays in March."),
        (augment.negate, "The bridge is open to lorries.", "The bridge is not open to lorries."),
        (augment.oppose, "The council approved it.", "The council rejected it."),
        (augment.part, "The gate is old, and the wall was built later by monks.", None),
        (augment.swap_number, "The gate is old.", None),
        (augment.swap_date, "The gate is old.", None),
        (augment.overstate, "It may rain in the hills.", "It will rain in the hills."),
        (augment.overstate, "Some boats wait at the gate.", "All boats wait at the gate."),
    ],
)
def test_a_rule_makes_what_it_says(rule: augment.Rule, sentence: str, made: str | None) -> None:
    found = {rule(sentence, random.Random(seed)) for seed in range(6)}
    expected = {made, "The bridge is never open to lorries."} if made and " not open" in made else {made}
    assert found <= expected


def test_a_condition_is_never_cut_off() -> None:
    """Without its condition a sentence says more than the passage does."""
    sentence = "The gate stays open when the river is low unless the wind is above force eight."
    assert all("gate stays open." not in (augment.shorten(sentence, random.Random(seed)) or "") for seed in range(20))


@given(st.integers())
def test_a_swapped_number_or_date_differs_and_nothing_else_does(seed: int) -> None:
    rng = random.Random(seed)
    for rule, sentence in ((augment.swap_number, PASSAGE[1]), (augment.swap_date, PASSAGE[3])):
        made = rule(sentence, rng)
        assert made is not None
        assert made != sentence
        assert len(made.split()) == len(sentence.split())
        assert sum(one != other for one, other in zip(made.split(), sentence.split(), strict=True)) == 1


def test_a_borrowed_number_is_one_of_the_passage_and_of_the_same_kind() -> None:
    """A year takes the place of a year alone, and one that the sentence has already takes none."""
    assert augment.borrow_number(PASSAGE[1], PASSAGE, random.Random(1)) == PASSAGE[1].replace("30", "6")
    assert augment.borrow_number(PASSAGE[2], PASSAGE, random.Random(1)) is None
    assert augment.borrow_number(PASSAGE[2], [*PASSAGE, *OTHERS], random.Random(1)) == PASSAGE[2].replace(
        "1998", "1870"
    )


@given(st.integers())
def test_made_claims_are_told_by_their_rule_and_never_twice_the_same(seed: int) -> None:
    rows = augment.claims(PASSAGE, OTHERS, random.Random(seed), count=6)
    assert len({one.claim for one in rows}) == len(rows) <= 6
    assert all(one.source.startswith("made-") for one in rows)
    for one in rows:
        if one.target is Target.CONTRADICTED:
            assert one.claim not in PASSAGE
        if one.source == "made-verbatim":
            assert one.claim in PASSAGE


def test_sentences_that_claim_nothing_are_left_out() -> None:
    passage = "Is it open? Yes. The lock at Ostrava opens at six in the morning. 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8"
    assert augment.sentences(passage) == ["The lock at Ostrava opens at six in the morning."]


@given(st.integers())
def test_words_before_a_sentence_leave_it_whole(seed: int) -> None:
    made = augment.lead("The gate is open.", random.Random(seed))
    assert made.lower().endswith("the gate is open.")
    assert made[0].isupper()
    assert len(made) > len("The gate is open.")
