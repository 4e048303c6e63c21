import pytest

from judges import features
from judges.verdicts.contradiction_candidates import ContradictionCandidate, contradiction_candidate


def of(one: str, other: str) -> ContradictionCandidate | None:
    """The order doesn't matter."""
    a, b = features.prepare(one), features.prepare(other)
    assert contradiction_candidate(a, b) == contradiction_candidate(b, a)
    return contradiction_candidate(a, b)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Permanent staff receive 25 days of annual leave.", "Permanent staff receive 40 days of annual leave."),
        ("Refunds are possible within 30 days.", "Refunds are not possible."),
        ("The office is open on Saturdays.", "The office is closed on Saturdays."),
        ("All employees may work from home.", "No employee may work from home."),
        ("Sales rose by 5% in 2023.", "Sales fell by 5% in 2023."),
        ("The drug must be taken with food.", "The drug must not be taken with food."),
        ("Shipping takes 3 to 5 days.", "Shipping takes two weeks."),
        ("The total of the invoice is 480.", "The total of the invoice is 510."),
        ("The library holds 12 manuscripts.", "The library holds 14 manuscripts."),
        ("Die Garantie gilt zwei Jahre ab Kauf.", "Die Garantie gilt fünf Jahre ab Kauf."),
        ("The north tower is taller than the south tower.", "The south tower is taller than the north tower."),
    ],
)
def test_words_and_numbers_alone_contradict(one: str, other: str) -> None:
    assert of(one, other) == ContradictionCandidate(definite=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Paris is the capital of France.", "The capital of France is Lyon."),
        ("Dr. Meyer leads the team.", "The team is led by Dr. Schulz."),
        ("The museum was opened in 1932.", "The museum was opened in 1954."),
    ],
)
def test_single_difference_is_left_to_the_model(one: str, other: str) -> None:
    assert of(one, other) == ContradictionCandidate(definite=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Permanent staff receive 25 days of annual leave.", "Temporary staff receive 20 days of annual leave."),
        ("The basic plan costs 9 euros a month.", "The premium plan costs 19 euros a month."),
        ("The office is open on Saturdays.", "The office is closed on Sundays."),
        ("The office is closed on Saturdays.", "The office is closed on Sundays."),
        ("Sales rose by 5% in 2023.", "Sales rose by 7% in 2024."),
        ("The first version was released in 2019.", "The second version was released in 2021."),
        ("Article 5 regulates the notice period.", "Article 6 regulates the notice period."),
        ("Building 12 is behind the canteen.", "Building 14 is behind the canteen."),
        ("The bus 42 stops at the market.", "The bus 43 stops at the market."),
        ("Step 1: Open the valve.", "Step 2: Close the valve."),
        ("The drug must be taken with food.", "The drug must not be taken with alcohol."),
        ("The train leaves the station at 9:15.", "The train arrives at the station at 11:40."),
        ("Shipping within Germany takes 3 days.", "Shipping to France takes 5 days."),
        ("Staff previously received 20 days of leave.", "Staff receive 25 days of leave."),
        ("Number of participants: 3.", "Number of participants: 5."),
        ("25 days of annual leave", "40 days of annual leave"),
        ("The warranty lasts two years.", "The warranty covers parts and labour."),
        ("Leave is granted to permanent staff.", "Leave is granted to permanent staff."),
    ],
)
def test_two_or_no_differences_are_no_candidate(one: str, other: str) -> None:
    """Every document is full of statements that are similar and all true."""
    assert of(one, other) is None
