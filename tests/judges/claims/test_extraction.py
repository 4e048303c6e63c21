import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.known_text import KnownText
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Claim, Sentence, Span

CASES = json.loads((Path(__file__).parents[1] / "data" / "segmentation.json").read_text(encoding="utf-8"))


def split(text: str, *, truncated: bool = False) -> list[Sentence]:
    splitter = IncrementalSplitter()
    return [*splitter.push(text), *splitter.flush(truncated=truncated)]


def extract(text: str, *, truncated: bool = False) -> list[list[Claim]]:
    """The claims of each sentence of ``text``."""
    sentences, extractor = split(text, truncated=truncated), HeuristicClaimExtractor(message="")
    return [list(asyncio.run(extractor.extract(s, sentences[:i]))) for i, s in enumerate(sentences)]


def claims(text: str) -> list[str]:
    return [claim.text for found in extract(text) for claim in found]


def last(text: str) -> Claim:
    return extract(text)[-1][-1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_harmless_sentences_have_no_claim(case: dict[str, Any]) -> None:
    found = extract(case["answer"], truncated=case.get("truncated", False))
    stating = {"G025": [0, 1], "G026": [1]}.get(case["id"], [])  # a question and an instruction, a fragment
    silent = [place for place in case.get("not_a_claim", []) if place not in stating]
    assert [place for place, of_one in enumerate(found) if not of_one] == silent


@pytest.mark.parametrize(
    "text",
    [
        "Is it valid?", "¿Quiere saber el plazo?", "有給休暇ですか？", "**Is it?**",
        "Hello!", "Hi Ms Smith,", "Great question!", "Of course.", "Sehr geehrte Frau Roy,",
        "Bonjour !", "Claro que sí.", "Well!", "I hope this helps.", "Let me know if you need more.",
        "Feel free to ask.", "Here's a summary of the policy.", "N’hésitez pas à me contacter.",
        "Ich hoffe, das hilft.", "Espero que ayude.", "I’m happy to help.", "IDK", "I don’t know.",
        "I'm sorry, but I can't answer that.",
        "I'm sorry I can't answer that.", "Unfortunately, the documents do not mention dogs.",
        "Based on the provided context, I cannot answer.", "The provided sources do not contain enough information.",
        "There is no information about dogs in the text.", "The price is not mentioned in the documents.",
        "Das weiß ich leider nicht.", "Das Dokument erwähnt Hunde nicht.",
        "Die Quellen enthalten dazu keine Angaben.", "Im Dokument wird der Preis nicht genannt.",
        "Le contexte ne précise pas la date.", "El documento no menciona perros.", "The plan includes:",
        "Folgendes gilt：", "# The fee", "**Opening hours**", "## 1. Fees. And more", "```\nfee = 5\n```", "`fee = 5`",
        "https://a.example/b", "[1]", "---", "- ", "😀", 
        "[1] handbook.pdf", "[^2]: kb/terms.md", "[3]: https://a.example/terms", "【4】 handbook.pdf",
        "Source: [terms](https://a.example).", "Sources:\n- [The terms](https://a.example)\n- Handbook.pdf [2]",
    ],
)  # fmt: skip
def test_text_without_a_claim(text: str) -> None:
    assert claims(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "The policy does not cover water damage.",
        "There is no data charge in Spain.",
        "Perhapsburg has 5 gates.",
        "Of course, dogs may enter the park on Sunday.",
        "Hi-fi sets cost 50 euros at the counter.",
        "Please note that the fee is 5 euros.",
        "**Fee:** 5 euros",
        "**The fee is 5 euros**",
        "Plan A",
        "Paris.",
        "42",
        'The sign asks "Why?"',
        "Das Dokument gilt nicht für Hunde.",
        "Le document ne contient pas de virus.",
        "10 Gates (see https://a.example)",
        "He sold apples; pears; figs.",
        "Node.js",
        "Stop.",
        "Apologies, see a doctor.",
        "I don't know, who may drink alcohol.",
        "Wait!",
        "The fee is 5 euros, no.",
        "I don't know, but OK.",
        "9000. OK.",
        "[^2]: Part-time staff receive less.",
        "[1] handbook.pdf says so",
    ],
)
def test_text_with_one_claim(text: str) -> None:
    assert len(claims(text)) == 1


def test_claim_is_the_plain_text_of_its_sentence_with_its_span() -> None:
    assert extract("Hello! The fee is **5** euros.[1]  \nBye.")[1] == [
        Claim(text="The fee is 5 euros.", span=Span(7, 33), sentence_index=1)
    ]


def test_table_cells_are_claims_with_their_headers() -> None:
    table = "| Plan | Price |\n|---|---|\n| A | **5** |\n| B | |\n| C | 7 | odd |\n"
    assert claims(table + "\nIt ends.") == ["Plan: A; Price: 5", "Plan: B", "C; 7; odd", "It ends."]
    assert claims(f"It starts.\n{table}\n| Seats |\n|---|\n| 8 |")[-1] == "Seats: 8"
    (row,) = extract(table)[2]
    assert table[row.span.start : row.span.end] == "| A | **5** |"


def test_known_names_in_a_column_of_sources_are_left_out() -> None:
    table = "| Plan | Price | Source |\n|---|---|---|\n| A | 5 | [Handbook](https://a.example) |\n"
    assert claims(table) == ["Plan: A; Price: 5"]


def test_truncated_row_is_read() -> None:
    assert [claim.text for claim in extract("| A |\n|---|\n| 1", truncated=True)[-1]] == ["A: 1"]


def test_long_clauses_are_judged_separately() -> None:
    text = "The flat has three rooms; the garden is **shared** by all; I think that it is sunny there."
    (found,) = extract(text)
    assert [claim.text for claim in found] == [
        "The flat has three rooms",
        "the garden is shared by all",
        "It is sunny there.",
    ]
    assert [text[claim.span.start : claim.span.end] for claim in found] == [
        "The flat has three rooms;",
        "the garden is **shared** by all;",
        "I think that it is sunny there.",
    ]
    assert len(claims("The list (one two three four; five six seven eight) holds.")) == 1


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("According to the document, overtime is paid.", "Overtime is paid."),
        ("As stated in the policy, dogs pay half.", "Dogs pay half."),
        ("Selon le document, le parc ferme.", "Le parc ferme."),
        ("According to Moreno, overtime is paid.", "According to Moreno, overtime is paid."),
        ("I don't know, but admission is 9 euros.", "Admission is 9 euros."),
        ("Here's the answer: it closes at 10:30.", "It closes at 10:30."),
        ("Das weiß ich leider nicht, aber der Eintritt kostet 9 €.", "Der Eintritt kostet 9 €."),
    ],
)
def test_introduction_is_no_part_of_a_claim(text: str, claim: str) -> None:
    assert claims(text) == [claim]


@pytest.mark.parametrize("text", ["The deposit is due in May", "The fee is due on the", "Hinweis: siehe die"])
def test_unterminated_piece_is_read(text: str) -> None:
    assert len(extract(text, truncated=True)[-1]) == len(claims(text)) == 1


def test_language_without_a_table_is_named() -> None:
    with pytest.raises(ValueError, match=r"languages: .*'xx'"):
        HeuristicClaimExtractor(languages=["xx"])


@pytest.mark.parametrize(
    "text",
    [
        "**1. Refund policy**", "**1) Refund policy**\n\n**2) Next steps**",
        "__1. Refunds__\n\n__2. Fees__\n\n__3. Refund policy__", 
        "# 1. Refunds\n\n## 1.1. Fees\n\n## 1.2. Limits\n\n# 2. Policy",
        "i. Refunds:\n\nii. Fees:\n\niii. Limits:", "# A. Refunds\n\n# B. Fees", "# (a) Refunds\n\n# (b) Fees",
    ],
)  # fmt: skip
def test_numbered_titles_that_follow_one_another_state_nothing(text: str) -> None:
    assert claims(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "# 8. Refunds", "**8. Refunds**", "# 8) Refunds", "# (8) refunds", "# 8.5. Refunds", "8. Refunds:",
        "(8) Refunds:", "viii. Refunds:", "# x) refunds", "# \\(8\\) refunds", "# <b>8.</b> Refunds",
        "# b. Refunds", "# 0. Refunds",
        "# 1. Refunds\n\n# 3. Fees", "# i. Refunds\n\n# iii. Fees", "# 1. Refunds\n\n## 2.1. Fees",
    ],
)  # fmt: skip
def test_title_whose_number_does_not_follow_is_a_claim(text: str) -> None:
    assert len(claims(text)) == 1


def read(text: str, *, message: str, before: str = "") -> list[str]:
    """The claims in ``text`` after ``before``, in a reply to ``message``."""
    previous, (sentence,) = split(f"{before}\n\n") if before else [], split(text)
    known = KnownText(question=message, documents=[f"{before} Wash your hands."])
    extractor = HeuristicClaimExtractor(message=message, known=known)
    return [claim.text for claim in asyncio.run(extractor.extract(sentence, previous))]


@pytest.mark.parametrize("message", ["Is the fee due?", "Tell me if the fee is due."])
@pytest.mark.parametrize(
    "text",
    ["Absolutely, here are the steps:", "Of course, let me explain.", "Sure, here you go:", "Great question, sure."],
)
def test_announcement_after_an_answer_is_judged_with_the_question(text: str, message: str) -> None:
    assert read(text, message=message) == [f"{message} {text}"]
    assert read(text, message="How do I pay?") == []


def test_answer_before_a_statement_is_judged_with_it() -> None:
    text = "Sure, wash your hands after that."
    assert read(text, message="May I drink it?") == [text]
    assert read(text, message="How do I drink it?") == ["Wash your hands after that."]


@pytest.mark.parametrize(
    "before",
    ["How about ice?", "# Ice", "Ice:", "**Ice**", "# Ice\n\nGreat question!"],
)
def test_courtesy_after_text_that_it_can_answer_is_judged_with_it(before: str) -> None:
    (claim,) = read("Absolutely!", message="What helps?", before=before)
    assert "ice" in claim.lower()


@pytest.mark.parametrize("before", ["Hello!", "How do I use ice?", "Ice helps.", "Ice helps. Great question!"])
def test_courtesy_after_courtesies_and_statements_states_nothing(before: str) -> None:
    assert read("Sure!", message="What helps?", before=before) == []


def test_long_message_is_read_up_to_the_paragraph_with_the_question() -> None:
    (sentence,) = split("Absolutely.")
    asked = Sentence(index=-1, text="Is it due?\n\n", span=Span(0, 0), plain="Is it due?")
    message = "The fee is due in May. " * 60 + "\n\nIs it due? Answer in one word.\n\nThanks"
    (claim,) = asyncio.run(HeuristicClaimExtractor(message=message).extract(sentence, [asked]))
    assert claim.text == "Is it due? Answer in one word. Absolutely."
    (claim,) = asyncio.run(HeuristicClaimExtractor(message="x" * 700).extract(sentence, []))
    assert claim.text == "Absolutely."


def answers(text: str, message: str | None, *, unread: bool = False) -> list[tuple[str, bool]]:
    """The claims in ``text``, a reply to ``message``, and whether the question that each answers is known."""
    known = KnownText(question=message or "", documents=["Ice helps."])
    extractor = HeuristicClaimExtractor(message=message, unread=unread, known=known)
    (sentence,) = split(text)
    return [(claim.text, claim.question_known) for claim in asyncio.run(extractor.extract(sentence, []))]


@pytest.mark.parametrize(
    "text", ["Yes.", "No.", "Absolutely!", "Of course!", "Sure.", "OK.", "Enjoy!", "That is correct.", "Gerne!"]
)
def test_answer_to_a_message_that_is_not_known_answers_no_known_question(text: str) -> None:
    assert answers(text, None) == [(text, False)]


@pytest.mark.parametrize("text", ["Absolutely!", "Of course!", "Sure, let me explain.", "OK."])
def test_courtesy_may_answer_unread_text_only_if_the_message_asks_nothing(text: str) -> None:
    assert answers(text, "Thanks!") == []
    assert answers(text, "Thanks!", unread=True) == [(text, False)]
    assert answers(text, "How do I use ice?", unread=True) == answers(text, "How do I use ice?")
    assert answers(text, "Does ice help?", unread=True) == [(f"Does ice help? {text}", True)]


def test_wish_after_a_message_that_asks_nothing_states_nothing() -> None:
    assert answers("You're welcome!", "Thanks!", unread=True) == []


@pytest.mark.parametrize("message", ["Thanks!", "Hello", "That helped, thanks!"])
def test_yes_to_a_message_that_asks_nothing_answers_no_known_question(message: str) -> None:
    assert answers("Yes.", message) == [("Yes.", False)]


@pytest.mark.parametrize(
    "answer",
    ["Answer: Yes.", "**Answer:** Yes.", "In short: Yes.", "Based on the documents, yes.", "Correct, yes.",
     "According to the policy, no.", "Final answer: No.", "Antwort: Ja.", "En bref : oui."],
)  # fmt: skip
def test_introduced_yes_is_judged_with_the_question(answer: str) -> None:
    asked = "Is the fee 20 euros?"
    before = [Sentence(index=-1, text=f"{asked}\n\n", span=Span(0, 0), plain=asked)]
    (sentence,) = split(answer)
    (claim,) = asyncio.run(HeuristicClaimExtractor(message=asked).extract(sentence, before))
    assert claim.text == f"{asked} {sentence.plain.strip()}"


def test_items_that_say_yes_or_no_stand_alone() -> None:
    asked = "Is the fee 20 euros?"
    sentences = [
        Sentence(index=-1, text=f"{asked}\n\n", span=Span(0, 0), plain=asked),
        *split("The plan:\n- Refundable: yes\n- Children: no"),
    ]
    extractor = HeuristicClaimExtractor(message=asked)
    found = [asyncio.run(extractor.extract(each, sentences[:place])) for place, each in enumerate(sentences)][1:]
    assert [claim.text for each in found for claim in each] == ["Refundable: yes", "Children: no"]


def test_statement_after_a_yes_is_judged_without_a_known_question() -> None:
    assert answers("Yes, ice helps.", None) == [("Yes, ice helps.", True)]


@pytest.mark.parametrize(
    "text", ["**3.5 tablets**", "**1. 8 tablets**", "**2. Use ice**", "**1. The limit is high**", "**4. No refunds**"]
)
def test_numbered_bold_line_with_a_statement_is_a_claim(text: str) -> None:
    assert len(claims(text)) == 1


SOURCES = KnownText(
    question="How many tablets?",
    documents=["Adults take 4 tablets a day. Children over 8 years take 2. The 2024 edition is on page 3."],
    names=["faq.pdf", "Dosage, adults and children", "leaflet 8"],
)


def resolves(bracket: str) -> bool:
    return bracket in ("[1]", "[2]", "[8]", "[faq.pdf p. 3]", "[faq.pdf, p. 5]", "[1, 2]")


def stated(*texts: str) -> list[str]:
    """The claims in a reply that consists of ``texts``."""
    extractor = HeuristicClaimExtractor(known=SOURCES, message="", resolves=resolves)
    sentences = split("".join(texts))
    found = [asyncio.run(extractor.extract(each, sentences[:place])) for place, each in enumerate(sentences)]
    return [claim.text for of_one in found for claim in of_one]


@pytest.mark.parametrize(
    "text",
    [
        "Sources: faq.pdf, leaflet 8", "Sources: Dosage, adults and children", "Sources: faq.pdf p. 3; leaflet 8",
        "Sources: faq.pdf, p. 5",
        "Hello!\n\nSources: faq.pdf", "Children take 2.\n\nSources: 1, 2", "I don't know.\n\nSources: 1, 2",
        "Children take 2.\n\nSources:\n- 1\n- 2", "**4 tablets**\n\nSources: [1]",
        "Sources:\n- faq.pdf\n- Tablets for children\n- The 2024 edition",
        "See also: the dosage for children",
    ],
)  # fmt: skip
def test_list_of_sources_states_nothing(text: str) -> None:
    assert stated(text) in ([], ["Children take 2."], ["4 tablets"])


@pytest.mark.parametrize(
    "text",
    [
        "Sources: 8", "Sources: 1, 2", "References: 8 tablets", "Sources: Adults (8)",
        "See also: dose for children: 4 tablets",
        "Sources:\n- Children 4 tablets", "References:\n- Children: 4", "# Sources\n\nAdults 8 tablets",
        "Sources: adults, 4 tablets", "| Dose | Source |\n|---|---|\n| Adults | children: 4 tablets |",
    ],
)  # fmt: skip
def test_source_that_states_something_is_judged(text: str) -> None:
    assert stated(text) != []


@pytest.mark.parametrize("text", ["How about 4 tablets?", "Why not tablets?", "What if adults take tablets?"])
def test_suggestion_is_judged(text: str) -> None:
    assert stated(text) != []


@pytest.mark.parametrize("before", ["", "Hello!\n\n", "Great question!\n\nWould you like more details?\n\n", "---\n\n"])
@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("[8]", ["[8]"]), ("[1] [2]", ["[1] [2]"]), ("**[8]**", ["**[8]**"]), ("Sources: 8", ["8"]),
        ("Sources: [8]", ["Sources: [8]"]), ("Sources: [8](url)", ["Sources: [8](url)"]), ("Sources: 1, 2", ["1, 2"]),
        ("See also: 8", ["8"]), ("Thanks! [8]", ["Thanks! [8]"]), ("Hello [8]!", ["Hello [8]!"]),
        ("Sources:\n- 1\n- 8", ["- 1", "8"]), ("**Sources**\n- [1]\n- [8](url)", ["- [1]", "- [8](url)"]),
    ],
)  # fmt: skip
def test_citation_before_the_first_statement_is_judged(before: str, text: str, claims: list[str]) -> None:
    assert stated(before, text) == claims
    assert stated(before, "Adults take 4 tablets.\n\n", text) == ["Adults take 4 tablets."]


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("B) Children take 2.", "B) Children take 2."),
        ("(c) Children take 2.", "(c) Children take 2."),
        ("A) Children take 2.", "A) Children take 2."),
        ("i) Children take 2.", "i) Children take 2."),
    ],
)
def test_letter_of_an_item_is_judged_if_the_letter_before_is_missing(text: str, claim: str) -> None:
    assert stated(text) == [claim]
