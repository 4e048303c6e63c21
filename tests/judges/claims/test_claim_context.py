import asyncio

import pytest

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.known_text import KnownText
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Claim, Sentence, Span
from tests.support.judging.claim_extraction import extract


def last(text: str) -> Claim:
    return extract(text)[-1]


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("The lift carries 8. Its limit is 830 kg.", "The lift carries 8."),
        ("The fee is 5. Is that much? It also covers tax.", "The fee is 5."),
        ("The hall is new. It covers 90 m². It has 3 doors.", "The hall is new."),
        ("The hall is new. It covers 90 m². That is 0.9 a.", "The hall is new. It covers 90 m²."),
        ("Das Haus ist alt. Es steht leer.", "Das Haus ist alt."),
        ("Le parc est grand. Cela coûte cher.", "Le parc est grand."),
        ("El parque abre. Esto es nuevo.", "El parque abre."),
        ("It is 5. It is 6.", "It is 5."),
        ("That is 5. This is 6.", "That is 5."),
        ("It is 5 euros.", ""),
        ("The fee is 5. Items cost 6.", ""),
        ("The fee is 5. Y holds.", ""),
        ("The plan costs 5 per month; it includes a phone.", "The plan costs 5 per month"),
    ],
)
def test_pronoun_is_read_with_its_antecedent(text: str, context: str) -> None:
    assert last(text).context == context


@pytest.mark.parametrize(
    "text",
    [
        "(1) Anna signs.\n(2) She gets 14 days.",
        "1) Anna signs.\n2) She gets 14 days.",
        "a) Anna signs.\nb) She gets 14 days.",
        "(A) Anna signs.\n(B) She gets 14 days.",
        "Anna signs.\n\n    2. She gets 14 days.",
        "Anna signs.\n\n<p>2) She gets 14 days.</p>",
        "Anna signs.\n\n> (2) She gets 14 days.",
        "(1) Anna signs.\n(2) Then 14 days are left.",
    ],
)
def test_pronoun_after_a_list_number_is_read_with_its_antecedent(text: str) -> None:
    assert last(text).context.endswith("Anna signs.")


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("The rates are:\n\n- Adults: 5 euros. Kids too.\n\n- Others: 3", "The rates are:"),
        ("The rates are:\n1. Adults\n2. They pay 5", "The rates are: Adults"),
        ("Here is what I found:\n- Adults pay 5", ""),
        ("The rates are new.\n- Adults pay 5", ""),
        ("- Adults pay 5", ""),
        ("The rates are:\n- Adults\n\nKids too.", "The rates are:"),
        ("The rates are:\n- Adults\n\nWe found all of it in the new plans.", ""),
    ],
)
def test_list_item_is_read_with_its_lead_in(text: str, context: str) -> None:
    assert last(text).context == context


PLANS = """Here are the plans:

## Team plan

- **Price:** 49 euros a month
- Users: 10. More cost extra.

It can be ended at any time. You get support by mail, every day of the week.

**Firm plan**

The plan includes:

1. 25 users
2. **Support**
   - by mail
   - by phone
3. It has a hotline.

### Summary

- The Firm plan costs more.
"""


def test_headings_and_parent_items_are_context() -> None:
    assert [(claim.text, claim.context) for claim in extract(PLANS)] == [
        ("Price: 49 euros a month", "Team plan"),
        ("Users: 10.", "Team plan"),
        ("More cost extra.", "Team plan"),
        ("It can be ended at any time.", "More cost extra."),
        ("You get support by mail, every day of the week.", ""),
        ("25 users", "Firm plan The plan includes:"),
        ("Support", "Firm plan The plan includes:"),
        ("by mail", "Firm plan The plan includes: Support"),
        ("by phone", "Firm plan The plan includes: Support"),
        ("It has a hotline.", "Firm plan The plan includes: by phone"),
        ("The Firm plan costs more.", ""),
    ]


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("## Team plan\nIt costs 49 euros.", "Team plan"),
        ("The Firm plan costs 129 euros.\n\n## Team plan\nIt costs 49 euros.", "Team plan"),
        ("The Firm plan costs 129 euros.\n\n## Summary\nIt has 25 users.", "The Firm plan costs 129 euros."),
        ("**Team plan**\nYou get 10 users.", "Team plan"),
        ("**Team plan**\nAll in all, ten people can use it every day.", "Team plan"),
        ("- **Team plan**\n  - 10 users\n- **Firm plan**\n  - 25 users", "Firm plan"),
        ("1. **Team plan**\n- 10 users\n2. **Firm plan**\n- 25 users", "Firm plan"),
        ("- Team plan\n    - Users\n        - 10 by default", "Team plan Users"),
        ("- Team plan\n- 10 users", ""),
        ("## Overview\n- 10 users", ""),
        ("## Key points\nThe rates are:\n- 10 a day", "The rates are:"),
        ("### Teamplan\n- 10 Nutzer", "Teamplan"),
        ("### Zusammenfassung\n- 10 Nutzer", ""),
    ],
)
def test_context_of_nested_headings_and_lists(text: str, context: str) -> None:
    assert last(text).context == context


def test_user_messages_are_no_context() -> None:
    for asked in ("**Pro plan**", "# Pro plan", "The Pro plan is mine.", "What is it?"):
        question = Sentence(index=-1, text=f"{asked}\n\n", span=Span(0, 0), plain=asked.strip("*# "))
        splitter = IncrementalSplitter()
        (sentence,) = [*splitter.push("It costs 9 euros a month."), *splitter.flush()]
        (claim,) = asyncio.run(HeuristicClaimExtractor().extract(sentence, [question]))
        assert (claim.context, claim.question) == ("", question.plain)


def test_entries_of_a_source_list_are_no_claims() -> None:
    assert extract("## Sources\n- Handbook.pdf\n- The terms of 2024") == []
    assert extract("**References**\nHandbook of 2024") == []


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("Not allowed:\n\nTea and cola.", "Not allowed:"),
        ("Not allowed:\n\nTea.\n\nCola and beer.", "Not allowed:"),
        ("Not allowed:\n\n> Tea and cola", "Not allowed:"),
        ("Not allowed:\n- Tea\n\nCola and beer", "Not allowed:"),
        ("Not allowed:\n\n<ul><li>Cola</li></ul>", "Not allowed:"),
        ("Not allowed:\n\n| Drink |\n|---|\n| Cola |", "Not allowed:"),
        ("Not allowed:\n\n| Drink |\n|---|\n| Tea |\n| Cola |", "Not allowed:"),
        ("Not allowed:\n\nHere is the list:\n- Cola", "Not allowed:"),
        ("For kids:\n\nThe plan has ten users and a hotline. The plan costs a lot of money.", "For kids:"),
        ("## Kids\n\nFor adults:\n\nThe plan has ten users and a hotline.", "Kids For adults:"),
        ("- Kids\n  Not allowed:\n\n  Cola and beer.", "Not allowed:"),
        ("Not allowed\n---\n- Cola", "Not allowed"),
        ("Not allowed\n===\n\nThe plan has ten users and a hotline.", "Not allowed"),
        ("<b>Not allowed</b>\n- Cola", "Not allowed"),
        ("<h2>Not allowed</h2>\n\nCola and beer.", "Not allowed"),
        ("<strong>Not allowed</strong>\n\nThe plan has ten users and a hotline.", "Not allowed"),
        ("## Not allowed\n\n| Drink |\n|---|\n| Cola |", "Not allowed"),
        ("## Kids\n\nThe plan has ten users and a hotline.", "Kids"),
        ("The plan is new.\n---\nThe plan has ten users and a hotline.", "The plan is new."),
        ("The plan is new.\n\n---\nThe plan has ten users and a hotline.", ""),
        ("For kids:\n\nTen users.\n\nThe plan has a number to call at night.", ""),
        ("The plan is new.\n\n| Drink |\n|---|\n| Cola |", ""),
        ("For kids:\nTen users.\n\nFor adults:\nTen users.", "For adults:"),
        ("Kids:\nTen users\nAdults:\nTen users", "Adults:"),
        ("The basic plan:\n14 days\n\nThe pro plan:\n14 days", "The pro plan:"),
        ("For kids:\n\nTea.\n\nFor adults:\n\n- Cola", "For adults:"),
        ("A:\n\nB:\n\nC:\n\nD:\n\nE:\n\nF:\n\nCola and beer.", "C: D: E: F:"),
    ],
)
def test_text_below_a_heading_or_lead_in_is_read_with_it(text: str, context: str) -> None:
    assert last(text).context == context


@pytest.mark.parametrize(
    "text",
    [
        "What is not allowed?\n\n- Tea\n- Cola",
        "What is not allowed?\n\n1. Tea\n2. Beer\n3. Cola",
        "What is not allowed? Tea. Cola.",
        "What is not allowed?\n\nTea and beer.\n\nCola.",
        "What is not allowed?\n- Tea\n\nCola.",
        "What is not allowed?\n\n> Cola",
    ],
)
def test_every_answer_to_a_question_is_read_with_it(text: str) -> None:
    assert last(text).question == "What is not allowed?"


HOTEL = "Guests of the hotel can check in from 3 p.m. The pool and the fees of the basic plan are listed below."


def stands_alone(text: str, *, question: str = "", document: str = HOTEL) -> bool:
    """Return whether the last claim of ``text`` can be understood without its context."""
    splitter = IncrementalSplitter()
    extractor = HeuristicClaimExtractor(known=KnownText(question=question, documents=[document]), message=question)
    sentences = [*splitter.push(text), *splitter.flush()]
    return asyncio.run(extractor.extract(sentences[-1], sentences[:-1]))[-1].stands_alone


@pytest.mark.parametrize(
    "text",
    [
        "Here are the key facts about the hotel:\n\n- Check-in from 3 p.m.",
        "Here's an overview of the fees:\n\n- Basic plan: 3%",
        "## Pool\n\nGuests swim until 9 p.m.",
        "**1. Pool**\n\n- Open until 9 p.m.",
        "The fees:\n\n| Plan | Fee |\n|---|---|\n| Basic | 3% |",
    ],
)
def test_claim_below_words_of_the_documents_stands_alone(text: str) -> None:
    assert stands_alone(text)


@pytest.mark.parametrize(
    "text",
    [
        "Guests check in from 3 p.m.",  # no context
        "For pregnant guests:\n\n- Check-in from 3 p.m.",  # no document mentions them
        "The hotel:\n\n- Pool",  # a name alone states nothing
        "The pool is open. It closes at 9 p.m.",  # a pronoun
        "The hotel:\n\n- It opens at 3 p.m.",
        "Never in the hotel:\n\n- Check-in from 3 p.m.",  # a denial
        "## Not listed\n\nGuests of the hotel can check in from 3 p.m.",
        "Without the basic plan:\n\n- Check-in from 3 p.m.",
        "💊:\n\n- Check-in from 3 p.m.",  # no words
    ],
)
def test_claim_that_depends_on_its_context(text: str) -> None:
    assert not stands_alone(text, question="When can pregnant guests check in?")
