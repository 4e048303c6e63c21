import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.features import (
    NAMES,
    NAMES_OF_TWO,
    WORDED,
    Features,
    Wording,
    combine,
    compute,
    measure_wording,
    prepare,
    spread,
    together,
    weigh,
)
from judges.features.probability_calibration import Regression, regressions
from judges.label_thresholds import Thresholds
from judges.types import Label, Probabilities

UNSURE = Probabilities(0.25, 0.65, 0.10)
"""The probabilities of an uncertain model."""
AGAINST = Probabilities(0.05, 0.85, 0.10)

MANUAL = (
    "The pump starts at 6 a.m. and runs for 40 minutes. It must not be opened while it runs. "
    "Filters are replaced every 3 months by Nordwind AG. Model A weighs 12 kg. Model B weighs 15 kg. "
    "Spare parts cost 80 euros per set. The main valve closes after the alarm has sounded."
)


def label(evidence: str, claim: str, model: Probabilities = UNSURE) -> Label:
    found = combine(prepare(evidence), prepare(claim), model).probabilities
    assert found.entailed + found.neutral + found.contradicted == pytest.approx(1.0)
    return Thresholds().label(found.entailed, found.contradicted)


@pytest.mark.parametrize(
    "claim",
    [
        "It must not be opened while it runs.",
        "Filters are replaced every **3 months** by Nordwind AG.[2]",
        "The pump starts at 06:00 and runs for 40 minutes.",
        "Model B weighs 15 kg.",
        "According to the manual, spare parts cost €80 per set.",
        "Filters are replaced every three months.",
        "Spare Parts Cost 80 Euros Per Set.",
    ],
)
def test_sentence_of_the_evidence_is_supported(claim: str) -> None:
    assert label(MANUAL, claim) is Label.SUPPORTED


@pytest.mark.parametrize(
    "claim",
    [
        "The pump starts at 9 a.m. and runs for 40 minutes.",
        "The pump starts at 6 a.m. and runs for 40 hours.",
        "It must be opened while it runs.",
        "Filters are replaced every 3 weeks by Nordwind AG.",
        "Model A weighs 15 kg.",
        "Spare parts cost 80 dollars per set.",
        "Spare parts do not cost 80 euros per set.",
        "The alarm sounded after the main valve had closed.",
    ],
)
def test_sentence_with_one_change_is_contradicted(claim: str) -> None:
    assert label(MANUAL, claim) is Label.CONTRADICTED


@pytest.mark.parametrize(
    "claim",
    [
        "The ferry carries 60 cars.",
        "The generator runs for 55 minutes.",
        "Gloves are replaced every 2 months.",
        "Model C weighs 20 kg.",
        "The sales team has 80 members.",
    ],
)
def test_numbers_of_other_things_are_neutral(claim: str) -> None:
    assert label(MANUAL, claim, AGAINST) is Label.UNVERIFIABLE


@pytest.mark.parametrize(
    ("evidence", "claim", "expected"),
    [
        ("Smoking is prohibited on the whole site.", "Smoking is not permitted anywhere on the site.", Label.SUPPORTED),
        ("Smoking is prohibited on the whole site.", "Smoking is permitted on the site.", Label.CONTRADICTED),
        ("The basic cover excludes theft.", "The basic cover includes theft.", Label.CONTRADICTED),
        ("Output rose by 8 percent in May.", "Output fell by 8 percent in May.", Label.CONTRADICTED),
        ("Output rose by 8 percent in May.", "Output increased by 8 percent in May.", Label.SUPPORTED),
        ("Der Vertrag endet nicht automatisch.", "Der Vertrag endet automatisch.", Label.CONTRADICTED),
        ("La piscine n'est pas chauffée en hiver.", "La piscine est chauffée en hiver.", Label.CONTRADICTED),
        ("El museo no abre los lunes de enero.", "El museo abre los lunes de enero.", Label.CONTRADICTED),
        ("The shop is open on weekdays and closed on Sundays.", "The shop is open on Sundays.", Label.CONTRADICTED),
        (
            "Guests booked online may cancel. Guests at the desk may not cancel.",
            "All guests may cancel.",
            Label.CONTRADICTED,
        ),
        ("Trams cost less to run than buses.", "Buses cost less to run than trams.", Label.CONTRADICTED),
        ("The tenant paints the walls. The owner paints the roof.", "The owner paints the walls.", Label.CONTRADICTED),
        ("Visitors wait at gate B.", "Visitors wait at gate C.", Label.CONTRADICTED),
        ("Entries are accepted until 31 August.", "Entries are accepted from 31 August.", Label.CONTRADICTED),
        ("Grants are paid before the audit.", "Grants are paid after the audit.", Label.CONTRADICTED),
        (
            "The default fund holds 60% shares and 40% bonds.",
            "The default fund holds 60% bonds and 40% shares.",
            Label.CONTRADICTED,
        ),
        (
            "Adults take 20 mg and children take 10 mg a day.",
            "Adults take 10 mg and children take 20 mg a day.",
            Label.CONTRADICTED,
        ),
        ("In May 5 pumps ran and in June 7.", "In May 7 pumps ran and in June 5.", Label.CONTRADICTED),
        (
            "The default fund holds 60% shares and 40% bonds.",
            "The default fund holds 40% bonds and 60% shares.",
            Label.SUPPORTED,
        ),
        ("Sales rose from 5 million to 7 million.", "Sales rose to 7 million from 5 million.", Label.SUPPORTED),
        (
            "Team A has 3 wins and team B has 5 wins.",
            "Team B has 5 wins and team A has 3 wins.",
            Label.SUPPORTED,
        ),
        ("The spread widened by 150 bps.", "The spread widened by 1.5 percentage points.", Label.SUPPORTED),
        ("The spread widened by 150 bps.", "The spread widened by 150 billion.", Label.CONTRADICTED),
        ("The rate rose from 4 to 6 percent.", "The rate rose by two percentage points.", Label.SUPPORTED),
        ("The rate rose from 4 to 6 percent.", "The rate rose by five percentage points.", Label.CONTRADICTED),
        ("Anna Berg chairs the board of Nordwind.", "Anna Berg chairs the board of Sudwind.", Label.UNVERIFIABLE),
        ("Visitors wait at gate B.", "Anyone waits at gate 7.", Label.UNVERIFIABLE),
        ("年会費は２，４００円です。", "年会費は2,400円です。", Label.SUPPORTED),
        ("展厅九点开门。", "展厅十点开门。", Label.CONTRADICTED),
    ],
)
def test_opposites_roles_and_languages(evidence: str, claim: str, expected: Label) -> None:
    assert label(evidence, claim) is expected


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("Trams are older than buses and newer than trains.", "Trams are newer than buses."),
        ("Staff may park at gate B.", "Staff may park at the rear gate."),
    ],
)
def test_undetected_differences_are_left_to_the_model(evidence: str, claim: str) -> None:
    """Nearly the same words, without a difference that an exact comparison can find: wording alone must not support
    it."""
    assert label(evidence, claim, AGAINST) is Label.UNVERIFIABLE


def test_support_elsewhere_in_the_window_prevents_a_contradiction() -> None:
    evidence = "The day fee is 20 euros. The day fee is 12 euros for children."
    assert label(evidence, "The day fee is 12 euros for children.") is Label.SUPPORTED


def test_words_inside_a_denial_or_a_plan_are_no_support() -> None:
    assert label("It is not true that the lift carries eight persons.", "The lift carries eight persons.") is not (
        Label.SUPPORTED
    )
    assert label("The city plans to open the line in 2027.", "The city opened the line in 2027.") is not Label.SUPPORTED


COVER = (
    "The policy covers lost luggage and a doctor. The lamp has a guarantee of 24 months. "
    "Refunds are paid within 30 days. Keep the alarm on. There is no deposit."
)


@pytest.mark.parametrize(
    "claim",
    [
        *(
            "No doctor.",
            "Without a doctor.",
            "Doctor: no",
            "No guarantee of 24 months.",
            "Guarantee: none",
            "A deposit.",
        ),
        *("Not the alarm.", "Alarm not on.", "Never refunds.", "Refunds after 30 days.", "More than 24 months."),
        *("The guarantee is more than 24 months.", "Refunds are paid after 30 days."),
    ],
)
def test_fragment_that_denies_or_turns_a_sentence_has_no_support_by_its_words(claim: str) -> None:
    found = compute(prepare(COVER), prepare(claim))
    assert (found.verbatim, found.contained) == (0.0, 0.0)
    assert label(COVER, claim, AGAINST) is not Label.SUPPORTED


@pytest.mark.parametrize("claim", ["A doctor.", "Guarantee: 24 months", "No deposit.", "Deposit: none", "Alarm on."])
def test_fragment_of_a_sentence_is_supported(claim: str) -> None:
    assert label(COVER, claim) is Label.SUPPORTED


def test_dropped_condition_weakens_support() -> None:
    evidence = prepare("The deposit is returned in full unless the keys are lost.")
    dropped = compute(evidence, prepare("The deposit is returned in full."))
    kept = compute(evidence, prepare("The deposit is returned in full unless the keys are lost."))
    assert (dropped.verbatim, kept.verbatim) == (0.5, 1.0)


def test_every_sentence_of_a_claim_counts() -> None:
    assert label(MANUAL, "Model A weighs 12 kg. Model B weighs 15 kg.") is Label.SUPPORTED
    assert label(MANUAL, "Model A weighs 13 kg. Model B weighs 15 kg.") is Label.CONTRADICTED


def test_sentences_before_a_pronoun_only_resolve_it() -> None:
    evidence = "The licence expires on 3 March 2027."
    assert label(evidence, "The licence expires on 2027-03-03. It expires on 3 May 2027.") is Label.CONTRADICTED
    assert label(evidence, "The licence expires on 3 May 2027. It expires on 2027-03-03.") is Label.SUPPORTED


def test_quoted_sentences_are_found() -> None:
    evidence = (
        'The sign reads "Stop. Call security." Visitors sign the register. It closes at 5 p.m. Then lights go out.'
    )
    assert label(evidence, 'The sign reads "Stop. Call security."') is Label.SUPPORTED
    assert label(evidence, "Then lights go out.") is Label.SUPPORTED


def test_denial_of_a_much_longer_statement_is_only_a_hint() -> None:
    evidence = prepare("Old printed vouchers from the spring campaign bought abroad are not valid.")
    assert 0.0 < compute(evidence, prepare("Vouchers are valid.")).polarity_differs < 0.5


@pytest.mark.parametrize("amount", [".2", "2,000", "2,500", "≠2", ">2", "≥2"])
def test_marks_beside_a_number_are_part_of_it(amount: str) -> None:
    evidence = prepare("Adults take at most 2 tablets in a day.")
    found = compute(evidence, prepare(f"Adults take at most {amount} tablets in a day."))
    assert found.verbatim == 0.0
    assert found.quantity_differs > 0.8 or found.contained == 0.0


def test_marks_are_repeated_word_for_word() -> None:
    evidence = prepare("Patients with a BMI >30 need a letter.")
    assert compute(evidence, prepare("Patients with a BMI >30 need a letter.")).verbatim == 1.0


def test_unresolved_pronoun_weakens_a_difference() -> None:
    evidence = prepare("The hall stands on 12,500 square metres.")
    assert compute(evidence, prepare("It covers 1250 square metres.")).quantity_differs == 0.5


def test_some_does_not_support_most() -> None:
    assert label("Some of the guests preferred tea.", "Most of the guests preferred tea.") is Label.UNVERIFIABLE


def test_context_resolves_a_pronoun() -> None:
    evidence = prepare("The hall stores 1,000 pallets on 12,500 square metres. The office has 300 square metres.")
    right = combine(evidence, prepare("It covers 12500 square metres.", "The hall stores 1000 pallets."), AGAINST)
    wrong = combine(evidence, prepare("It covers 1250 square metres.", "The hall stores 1000 pallets."), AGAINST)
    assert right.probabilities.entailed >= 0.7
    assert wrong.probabilities.contradicted >= 0.7


def test_claim_about_another_subject_is_left_to_the_model() -> None:
    evidence = prepare("The passport expires on 3 March 2027.")
    claim = prepare("It expires on 3 May 2027.", "The fishing licence was issued in Bergen.")
    seen = compute(evidence, claim)
    assert seen.overlap == 1.0
    assert (seen.quantity_differs, seen.contained) == (0.0, 0.0)


def test_model_decides_without_features() -> None:
    """These texts have no words in common: only the model can know that both say the same."""
    sure = combine(
        "Wear a helmet on the site.", "Head protection is compulsory there.", Probabilities(0.97, 0.02, 0.01)
    )
    against = combine("Wear a helmet on the site.", "Nobody needs head protection.", Probabilities(0.01, 0.04, 0.95))
    assert sure.probabilities.entailed > 0.5 > sure.probabilities.contradicted
    assert against.probabilities.contradicted > against.probabilities.entailed
    assert sure.explanation is None


@given(
    st.lists(st.floats(0.001, 1.0), min_size=3, max_size=3),
    st.lists(st.floats(0.001, 1.0), min_size=3, max_size=3),
    st.sampled_from(["Model A weighs 12 kg.", "The pump is loud.", "Filters last three months."]),
)
def test_higher_model_probability_never_lowers_the_result(one: list[float], other: list[float], claim: str) -> None:
    """For all texts: more entailment and less contradiction from the model raise the former and lower the latter."""
    low, high = sorted(
        (Probabilities(e / (e + n + c), n / (e + n + c), c / (e + n + c)) for e, n, c in (one, other)),
        key=lambda probabilities: probabilities.entailed / probabilities.neutral,
    )
    if low.contradicted / low.neutral < high.contradicted / high.neutral:
        return
    if low.entailed > high.entailed or low.contradicted < high.contradicted:
        return
    before, after = (combine(MANUAL, claim, model).probabilities for model in (low, high))
    assert after.entailed >= before.entailed - 1e-9
    assert after.contradicted <= before.contradicted + 1e-9


def test_explanation_names_the_difference() -> None:
    assert combine(MANUAL, "Model A weighs 13 kg.", UNSURE).explanation == (
        "A number, date or unit differs: 13 kg where the source says 12 kg."
    )
    assert combine(MANUAL, "Model A weighs 12 kg.", UNSURE).explanation == "The source says so in these words."


def test_empty_texts_have_no_features() -> None:
    assert compute(prepare(""), prepare("")) == Features()


@given(st.text(max_size=200), st.text(max_size=100))
def test_any_two_texts_can_be_combined(evidence: str, claim: str) -> None:
    found = combine(evidence, claim, UNSURE).probabilities
    assert found.entailed + found.neutral + found.contradicted == pytest.approx(1.0)


@pytest.mark.parametrize("unit", ["[a](", "[", "according to the ", "a: b. ", "\n", "'a", "not but ", "Model A. "])
def test_long_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    started = time.process_time()
    combine(text, text[:500], UNSURE)
    assert time.process_time() - started < 5.0


def test_joined_texts_have_the_features_of_each() -> None:
    parts = [prepare("The lock opens at six. It is 12 m wide."), prepare("Boats over 3 m must wait.")]
    both = together(parts)
    assert both.sentences == parts[0].sentences + parts[1].sentences
    assert both.quantities == parts[0].quantities + parts[1].quantities
    assert compute(both, prepare("Boats over 3 m must wait.")).verbatim == 1.0
    assert compute(both, prepare("It is 12 m wide.")).verbatim == 1.0
    assert together(parts[:1]) is parts[0]


def test_regression_has_a_bias_and_a_weight_per_feature() -> None:
    regression = Regression(bias=0.5, weights=(2.0, -1.0))
    assert regression.log_odds([3.0, 0.25]) == pytest.approx(0.5 + 6.0 - 0.25)
    sizes = {name: len(one.weights) for name, one in regressions().items()}
    assert sizes == {
        **dict.fromkeys(("entailed", "contradicted"), len(NAMES)),
        **dict.fromkeys(("entailed_by_two", "contradicted_by_two"), len(NAMES_OF_TWO)),
        "worded": len(WORDED),
    }


def test_missing_wording_weakens_a_claim_and_present_wording_does_not_support_it() -> None:
    found = [0.0, 0.0, 0.5, 0.1, 0.5]
    none, some, most, all_of_it = (
        weigh(found, Wording(content=share, sentence=share, pairs=share), Features()).entailed
        for share in (0.0, 0.2, 0.9, 1.0)
    )
    assert none < some < most == all_of_it


def test_probability_not_entailed_is_contradicted_or_neutral() -> None:
    """Odds of 3 for the one, and of 1 for the other in the rest: three quarters, and half of a quarter each."""
    found = spread(math.log(3.0), 0.0, Features())
    assert (found.entailed, found.neutral, found.contradicted) == pytest.approx((0.75, 0.125, 0.125))


def test_differences_count_even_against_the_surest_model() -> None:
    found = spread(40.0, -40.0, Features(quantity_differs=1.0))
    assert found.contradicted > 0.6 > 0.2 > found.entailed


def test_wording_is_the_share_found_in_the_evidence() -> None:
    """Six of seven words are in the evidence, in runs of four and two: 3 + 1 of 6 pairs. All of its content except
    "broke" is there; if a sentence is in between, "mill" and "wheel" are in two."""
    claim = prepare("The old mill stands, its wheel broke")
    found = measure_wording(prepare("The old mill stands near Bergen, and its wheel turns slowly."), claim)
    apart = measure_wording(prepare("The old mill stands near Bergen. The wheel turns slowly."), claim)
    assert found.pairs == pytest.approx(4 / 6)
    assert 0.5 < found.content < 1.0
    assert found.sentence == found.content == apart.content > apart.sentence > 0.0
    whole = measure_wording(claim, claim)
    assert (whole.content, whole.sentence, whole.pairs) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("evidence", "claim"), [("", "A claim."), ("Some text.", ""), ("", "")])
def test_empty_text_has_no_wording(evidence: str, claim: str) -> None:
    assert measure_wording(prepare(evidence), prepare(claim)) == Wording()
