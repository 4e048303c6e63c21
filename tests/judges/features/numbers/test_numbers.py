import time
from datetime import date
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.features.numbers import BoundKind, QuantityKind, Relation, compare, quantities

PIECES = "12 1,000 3. may % $ € k B th and to - 十 年 点 hundred two a.m. : 1.1 @ § per year 2018 /19 square m"
"""The parts of quantities, for any combination."""


def relation(claim: str, evidence: str) -> Relation:
    (finding, *_) = compare(claim, evidence).findings
    return finding.relation


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("€2.1B", "2.1 billion euros"),
        ("2,100 million euros", "2.1 billion euros"),
        ("$2.1m", "2,100,000 dollars"),
        ("3 Mio. Euro", "3 million euros"),
        ("1,000 pallets", "1000 pallets"),
        ("1 000 pallets", "1000 pallets"),
        (".5 litres", "0.5 l"),
        ("Es wiegt 2,500 kg.", "2500 g"),
        ("1'000 pallets", "1000 pallets"),
        ("1.250,50 Euro", "1250.50 €"),
        ("2,400円", "２，４００円"),
        ("12 500 MWh", "12.5 GWh"),
        ("3 %", "3 percent"),
        ("3,5 %", "3.5 per cent"),
        ("150 bps", "1.5 percentage points"),
        ("1000 mg", "1 g"),
        ("60 minutes", "1 hour"),
        ("24 months", "2 years"),
        ("90 km/h", "90 km per hour"),
        ("14 March 2024", "2024-03-14"),
        ("March 14th, 2024", "14.03.2024"),
        ("14. März 2024", "14 de marzo de 2024"),
        ("14th of March 2024", "Mar. 14, 2024"),
        ("a 3-year term", "36 months"),
        ("2024年3月14日", "14 mars 2024"),
        ("11 p.m.", "23:00"),
        ("20 Uhr", "8 pm"),
        ("à 20 heures", "20h00"),
        ("18時", "18:00"),
        ("twelve metres", "12 m"),
        ("twenty-one days", "three weeks"),
        ("three and a half hours", "210 minutes"),
        ("zwei Jahre", "deux années"),
        ("−5 °C", "-5 degrees Celsius"),
        ("two dozen metres", "2 dozen metres"),
        ("360 euros per year", "30 euros per month"),
        ("a year costs 360 euros", "30 euros per month"),
        ("v2.0.1", "version 2.0.1"),
        ("03/14/2024", "14 March 2024"),
        ("渡轮7点15分出发", "07:15"),
        ("2.100.000 Euro", "2.1 million euros"),
        ("twice", "2 times"),
        ("the third floor", "the 3rd floor"),
        ("one percent", "1 %"),
        ("2 points de pourcentage", "2 Prozentpunkte"),
        ("the 1990s", "the 1990s"),
        ("the annual fee is 360 euros", "30 euros monthly"),
        ("8:00", "open from 8 to 17"),
        ("in 1931", "1931 pallets"),
        ("half a million people", "500,000 people"),
        ("a quarter million people", "250,000 people"),
        ("two and a half million people", "2,500,000 people"),
        ("1 million and a half", "1.5 million"),
        ("half a dozen eggs", "six eggs"),
        ("two dozen eggs", "24 eggs"),
        ("2½ hours", "2.5 hours"),
        ("1 ½ hours", "90 minutes"),
        ("¾ cup", "0.75 cup"),
        ("1/2 cup", "0.5 cup"),
        ("1 1/2 cups", "1.5 cups"),
        ("half an hour", "30 minutes"),
        ("a half-hour", "30 minutes"),
        ("an hour and a half", "90 minutes"),
        ("one and a half hours", "90 minutes"),
        ("three quarters of an hour", "45 minutes"),
        ("a quarter of a percentage point", "25 basis points"),
        ("half a year", "six months"),
        ("for a decade", "for 10 years"),
        ("within a fortnight", "within 14 days"),
        ("one in 20 children", "5 % of children"),
        ("nine out of ten patients", "90 % of patients"),
        ("two in three adults", "67 % of adults"),
        ("1 in 10 people", "10 in 100 people"),
        ("thirty (30) days", "30 days"),
        ("30 (thirty) days", "30 days"),
        ("the twenty-first floor", "the 21st floor"),
        ("quatre-vingt-dix jours", "90 jours"),
        ("vingt et un jours", "21 jours"),
        ("soixante-douze heures", "72 heures"),
        ("treinta y cinco años", "35 años"),
        ("$3-billion", "$3 billion"),
        ("2 lakh", "200,000"),
        ("1 crore", "10 million"),
        ("minus 5 degrees Celsius", "-5 °C"),
        ("minus 3 million euros", "-3 million euros"),
        ("1-800-555-0100", "+1 800 555 0100"),
        ("(555) 010-9999", "555-010-9999"),
        ("one hour and 30 minutes", "90 minutes"),
        ("1 h 30 min", "90 minutes"),
        ("2 years and 6 months", "30 months"),
        ("5 feet 10 inches", "70 inches"),
        ("two thirds of the members", "67 % of the members"),
        ("roughly 66 percent", "about two-thirds"),
        ("5/3/2024", "May 3, 2024"),
        ("5/3/2024", "5 March 2024"),
        ("9:25 pm", "9:25"),
        ("21:25", "9:25"),
        ("5 o'clock", "17:00"),
        ("AD 14", "14 AD"),
        ("covid-19 patients", "COVID-19 cases"),
        ("a 2,700K lamp", "a lamp of 2,700K"),
        ("€ 15 m", "15 million euros"),
        ("the 1960's", "the 1960s"),
        ("1982's best film", "the best film of 1982"),
    ],
)
def test_one_quantity_in_two_notations_agrees(one: str, other: str) -> None:
    assert relation(one, other) is Relation.AGREE
    assert relation(other, one) is Relation.AGREE


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        ("74 billion francs", "74 million francs"),
        ("80 dollars", "80 euros"),
        ("500 g", "500 mg"),
        ("30 euros per year", "30 euros per month"),
        ("twenty percentage points", "from 4 to 6 percent"),
        ("35 %", "3,5 %"),
        ("99.99 percent", "99.9 percent"),
        ("14 February 2012", "14 February 2022"),
        ("15 de marzo", "15 de mayo"),
        ("23:00", "20:00"),
        ("from 31 August", "until 31 August"),
        ("v2.1.0", "v2.0.1"),
        ("10.0.0.21:8080", "10.0.0.12:8080"),
        ("on Monday", "on Tuesday"),
        ("four rooms", "three rooms"),
        ("Nr. 9", "Nr. 7"),
        ("over 80 decibels", "71, 74.5 and 78 decibels"),
        ("exactly 3,000 people", "2,987 people"),
        ("within forty seconds", "within twelve seconds"),
        ("200 euros", "up to 100 euros"),
        ("at least 10 kg", "at most 10 kg"),
        ("circa 60 metres", "about 62 metres"),
        ("3 months", "30 days"),
        ("info@example.org", "sales@example.org"),
        ("30 euros per hour", "30 euros per month"),
        ("at least 20 kg", "at most 10 kg"),
        ("5 kg", "at least 10 kg"),
        ("rose by 9 million euros", "rose by 8 million euros"),
        ("an increase of 12 mg", "increased by 10 mg"),
        ("signed by 12 members", "15 members"),
        ("more than 20 mg", "at most 10 mg"),
        ("half an hour", "two hours"),
        ("one hundred and twenty people", "130 people"),
        ("half a million people", "1 million people"),
        ("two dozen eggs", "two eggs"),
        ("one in 20 children", "10 % of children"),
        ("one hour", "90 minutes"),
        ("2 hours 55 seconds", "2 hours 10 minutes and 55 seconds"),
        ("5/4/2024", "May 3, 2024"),
        ("555-010-9999", "555-010-9998"),
        ("less than 13.2 million people", "at least 13.2 million people"),
        ("1.3 million people", "1,204,567 people"),
        ("before 2000", "in 2001"),
        ("after 10:00", "9:38"),
        ("9:25 am", "21:25"),
        ("85 BC", "85 AD"),
        ("seat 1B", "seat 2B"),
        ("within forty seconds", "in 50 seconds"),
    ],
)
def test_another_value_for_the_same_thing_differs(claim: str, evidence: str) -> None:
    assert relation(claim, evidence) is Relation.DIFFER


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        ("4 rooms", "3 balconies"),
        ("4 euros", "4 rooms"),
        ("5 kg", "5 metres"),
        ("150 billion", "150 bps"),
        ("12 %", "12 euros"),
        ("3 March 2024", "in 2024"),
        ("50 euros", "up to 100 euros"),
        ("3 hours", "3 hours and 18 minutes"),
        ("two-thirds majority", "2/3 majority"),
        ("1,234,567 people", "1.2 million people"),
        ("1.2 million people", "1,234,567 people"),
        ("4,000 households", "a broken insulator"),
        ("§ 4", "Art. 12"),
        ("v2.0.1", "10.0.0.12"),
        ("in May", "in 2024"),
        ("the third floor", "the second quarter"),
        ("rose by 9 million euros", "it is now 37 million euros"),
        ("12 fewer people than in May", "40 people"),
        ("it is now 37 million euros", "rose by 9 million euros"),
    ],
)
def test_incomparable_quantities_are_absent(claim: str, evidence: str) -> None:
    assert relation(claim, evidence) is Relation.ABSENT


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        ("about 5 litres", "4.96 litres"),
        ("nearly 3,000 people", "2,987 people"),
        ("at least ten wells", "twelve wells"),
        ("more than 70 decibels", "78 decibels"),
        ("up to 100 euros", "80 euros"),
        ("31 August", "31 August 2024"),
        ("in 2024", "14 March 2024"),
        ("30 days", "a period of 1 month"),
        ("12.3 percent", "12.34 percent"),
        ("two percentage points", "from 4 to 6 percent"),
        ("three and a half hours", "from 10:30 a.m. to 2 p.m."),
        ("€8 million lower than a year before", "it fell to €37 million from €45 million"),
        ("fell by about €8 million", "€37 million, down from €45 million"),
        ("12 more people than before", "from 40 to 52 people"),
        ("an increase of 10 mg", "from 20 mg to 30 mg"),
        ("was increased by 10 mg", "an increase of 10 mg"),
        ("8 kg", "3 kg and 5 kg"),
        ("15,100,000 euros", "roads cost 41.9 million euros while parks received 15.1 million"),
        ("7.5 %", "it rose from 7.5 to 8 %"),
        ("before 2005", "on September 25, 2001"),
        ("after 2002", "in 2015"),
        ("before 10:00", "at 9:38"),
        ("after 9 o'clock", "at about 9:40"),
        ("around 10:00", "at 10:04"),
        ("over $100", "about $125"),
        ("under $100", "about $90"),
    ],
)
def test_approximations_agree(claim: str, evidence: str) -> None:
    assert relation(claim, evidence) is Relation.AGREE


def test_range_includes_its_bounds() -> None:
    low, high = quantities("between 70 and 80 decibels")
    assert (low.bound, high.bound) == (BoundKind.AT_LEAST, BoundKind.AT_MOST)
    assert low.unit == high.unit == "decibel"
    inside = compare("between 70 and 80 decibels", "71, 74.5 and 78 decibels")
    assert len([finding for finding in inside.findings if finding.relation is Relation.AGREE]) == 2


def test_kinds_are_distinguished() -> None:
    text = (
        "On Monday, 3 May 2021, at 10:15 it paid 5 % or 20 euros for the 2nd of 30 kg, see Art. 7 at https://x.org/a."
    )
    assert [quantity.kind for quantity in quantities(text)] == [
        QuantityKind.WEEKDAY,
        QuantityKind.DATE,
        QuantityKind.TIME,
        QuantityKind.PERCENT,
        QuantityKind.MONEY,
        QuantityKind.ORDINAL,
        QuantityKind.MEASURE,
        QuantityKind.REFERENCE,
        QuantityKind.IDENTIFIER,
    ]


def test_articles_and_modals_are_not_numbers() -> None:
    assert quantities("One may march on; it is a fact, or so an expert said.") == []


def test_year_is_a_date_unless_it_counts_something() -> None:
    (year,) = quantities("The bridge was built in 1931.")
    assert year.date == (1931, None, None)
    (season,) = quantities("It ran through the season 2018/19.")
    assert season.date == (2018, None, None)
    (number,) = quantities("It stores 1931 pallets.")
    assert number.values == (Decimal(1931),)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("between one hundred and two hundred people", [100, 200]),
        ("two hundred three-bedroom homes", [200, 3]),
        ("twenty or thirty people", [20, 30]),
        ("rated 4 out of 5 stars", [4, 5]),
        ("page 3 in 10 books", [3, 10]),
        ("half of it, in the second half", [2]),
        ("half-year results", []),
        ("twice a decade", [2]),
        ("dozens of people", []),
        ("on 3/4 we met", [3, 4]),
    ],
)
def test_text_beside_a_number_is_no_part_of_it(text: str, values: list[int]) -> None:
    assert [int(found.values[0]) for found in quantities(text) if found.values] == values


def spelled(number: int, joined: str) -> str:
    """``number`` in English words; ``joined`` is the word between the hundreds and the rest."""
    below_twenty = [
        *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
        *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
    ]
    tens = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
    for scale, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand")):
        if number >= scale:
            whole, rest = divmod(number, scale)
            return f"{spelled(whole, joined)} {name}" + (f" {spelled(rest, joined)}" if rest else "")
    if number >= 100:
        whole, rest = divmod(number, 100)
        return f"{below_twenty[whole]} hundred" + (f"{joined}{spelled(rest, joined)}" if rest else "")
    if number >= 20:
        whole, rest = divmod(number, 10)
        return tens[whole - 2] + (f"-{below_twenty[rest]}" if rest else "")
    return below_twenty[number]


@given(st.integers(2, 10**12), st.sampled_from([" ", " and "]))
def test_number_words_equal_digits(number: int, joined: str) -> None:
    (found,) = quantities(f"It sold {spelled(number, joined)} tickets.")
    assert found.values == (number,)
    assert relation(f"{spelled(number, joined)} tickets", f"{number:,} tickets") is Relation.AGREE


def test_number_is_read_whole() -> None:
    assert relation("50 million euros", "1500 million euros and 250 million euros") is Relation.DIFFER


def _styles(value: int) -> list[str]:
    grouped = f"{value:,}"
    return [
        str(value),
        grouped,
        grouped.replace(",", " "),
        grouped.replace(",", "'"),
        grouped.replace(",", "\u202f"),
        f"**{value}**",
        str(value).translate(str.maketrans("0123456789", "０１２３４５６７８９")),
        f"{Decimal(value) / 1000} thousand",
        f"{Decimal(value) / 10**6:f} million",
    ]


@given(st.integers(1, 10**12), st.data())
def test_any_number_agrees_with_itself_in_any_notation(value: int, data: st.DataObject) -> None:
    one, other = data.draw(st.sampled_from(_styles(value))), data.draw(st.sampled_from(_styles(value)))
    assert relation(f"It weighs {one} kg.", f"Its weight is {other} kg.") is Relation.AGREE


@given(st.integers(2, 10**9), st.integers(1, 400), st.data())
def test_any_two_different_numbers_differ(value: int, step: int, data: st.DataObject) -> None:
    one = data.draw(st.sampled_from(_styles(value)[:3]))
    other = data.draw(st.sampled_from(_styles(value + step)[:3]))
    ambiguous = (value + step) == value * 1000 or len(f"{value:,}") == 5 or len(f"{value + step:,}") == 5
    if not ambiguous:
        assert relation(f"It weighs {one} kg.", f"Its weight is {other} kg.") is Relation.DIFFER


@given(st.dates(min_value=date(1000, 1, 1)))
def test_any_date_agrees_with_itself_in_any_notation(day: date) -> None:
    forms = [f"{day:%Y-%m-%d}", f"{day:%d.%m.%Y}", f"{day:%d %B %Y}", f"{day:%B %d, %Y}"]
    for form in forms:
        assert relation(f"Due on {form}.", f"Due on {forms[0]}.") is Relation.AGREE


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    found = quantities(text)
    assert all(one.last <= other.first for one, other in pairwise(found))


@given(st.lists(st.sampled_from(PIECES.split())))
def test_any_word_order_can_be_read(words: list[str]) -> None:
    text = " ".join(words)
    assert all(finding.relation is Relation.AGREE or not finding.other for finding in compare(text, "").findings)
    quantities("".join(words))


@pytest.mark.parametrize(
    "unit", ["1,", "1.1.", "a.b-c+d", "a@", "十", "二百", "twenty-", "million ", "1 111 ", "1'", "5 and ", "2024年"]
)
def test_long_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    started = time.process_time()
    quantities(text)
    assert time.process_time() - started < 5.0
