"""Text around claims in replies: greetings, announcements, document names, and repeated questions."""

import pytest

from tests.support.judging.claim_extraction import extract

SAID = "Dogs pay half the price of children."


@pytest.mark.parametrize(
    "prefix",
    [
        "Answer: ", "**Answer:** ", "Final answer: ", "The short answer: ", "Short version: ", "The answer is: ",
        "The answer to your question is: ", "The answer to your question is that ",
        "To answer your question, ", "In answer to your question: ", "TL;DR: ", "tldr: ", "FYI: ",
        "Bottom line: ", "The bottom line: ", "Good news: ", "Key takeaway: ", "Key points: ", "Summary: ",
        "In summary: ", "In summary, ", "To summarize: ", "In short, ", "In a nutshell, ", "Note: ", "Important: ",
        "Important note: ", "Quick update: ", "Please note that ", "Note that ", "Keep in mind that ",
        "It is important to note that ", "It's worth mentioning that ", "It should be noted that ", "Remember: ",
        "Remember that ", "As mentioned above, ", "As you can see, ", "I found that ", "I can confirm that ",
        "Hi Anna, ", "Hello there, ", "Dear Ms Roy, ", "Sure, ", "Sure! ", "Of course, ", "Certainly, ",
        "According to the handbook, ", "According to document 2, ", "As stated in document 1: ", "Per our records, ",
        "Based on the documents provided, ", "The policy says that ", "The policy clearly states that ",
        "The documents state that ", "Our records show that ", "The handbook says: ", "The FAQ explains that ",
        "Hi Anna, note that according to the policy, ", "Note: the policy says that ",
    ],
)  # fmt: skip
def test_harmless_words_before_a_claim_are_removed(prefix: str) -> None:
    said = SAID[0].lower() + SAID[1:] if prefix.rstrip()[-1] not in ":!" else SAID
    claim = extract(prefix + said)[-1]
    assert claim.text == SAID
    assert claim.context == ""


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("Antwort: Hunde zahlen die Hälfte.", "Hunde zahlen die Hälfte."),
        ("Die Antwort auf Ihre Frage lautet: Hunde zahlen die Hälfte.", "Hunde zahlen die Hälfte."),
        ("Um Ihre Frage zu beantworten: Hunde zahlen die Hälfte.", "Hunde zahlen die Hälfte."),
        ("Kurz gesagt: Hunde zahlen die Hälfte.", "Hunde zahlen die Hälfte."),
        ("Bitte beachten Sie, dass Hunde die Hälfte zahlen.", "Hunde die Hälfte zahlen."),
        ("Laut Handbuch, Hunde zahlen die Hälfte.", "Hunde zahlen die Hälfte."),
        ("Hunde zahlen die Hälfte (siehe Handbuch).", "Hunde zahlen die Hälfte."),
        ("Réponse : les chiens paient la moitié.", "Les chiens paient la moitié."),
        ("En bref, les chiens paient la moitié.", "Les chiens paient la moitié."),
        ("Le document précise que les chiens paient la moitié.", "Les chiens paient la moitié."),
        ("Les chiens paient la moitié, selon le guide.", "Les chiens paient la moitié."),
        ("Respuesta: los perros pagan la mitad.", "Los perros pagan la mitad."),
        ("En resumen, los perros pagan la mitad.", "Los perros pagan la mitad."),
        ("El documento indica que los perros pagan la mitad.", "Los perros pagan la mitad."),
        ("Los perros pagan la mitad, según el manual.", "Los perros pagan la mitad."),
    ],
)
def test_harmless_words_are_removed_in_other_languages(text: str, claim: str) -> None:
    assert extract(text)[-1].text == claim


@pytest.mark.parametrize(
    "suffix",
    [
        " (see the handbook)", ", according to the handbook", ", as stated in the policy", " (source: document 3)",
        ", per the policy",
    ],
)  # fmt: skip
def test_document_named_after_a_claim_is_no_part_of_it(suffix: str) -> None:
    (claim,) = extract(f"{SAID[:-1]}{suffix}.")
    assert claim.text == SAID


@pytest.mark.parametrize(
    "text",
    [
        "Answer the phone within three rings.",
        "The answer is 42 per cent.",
        "Note the serial number before you call.",
        "Remember the code of the gate.",
        "No document states that parking is free.",
        "Neither document states that admission is free.",
        "Few records show that the drug works.",
        "The old contract says that notice is 30 days.",
        "Draft policy says that leave is 30 days.",
        "According to the 2019 handbook, the fee is 10 euros.",
        "Hey Jude, a song by the Beatles, was released in 1968.",
        "Welcome Break, the motorway operator, runs 35 sites.",
        "Wrong answer: the fee is 5 euros.",
        "The answer to the question is no longer 5 euros.",
        "Per contract, a fee of 5 euros is charged.",
        "Temps réponse moyen : 5 minutes.",
        "Le prix varie de 5 à 10 euros, selon le contrat.",
        "Salaries are set individually, based on the contract.",
        "Points: 5 for each purchase.",
        "Result: 5 mg per litre.",
        "The policy covers dental care.",
        "The policy requires that staff wear badges.",
        "The policy suggests that staff wear badges.",
        "According to Moreno, overtime is paid.",
        "Moreno says that overtime is paid.",
        "Get the form from the website.",
        "Fees are due, see page 4.",
        "Hi-fi, television and radio are included.",
        "Sure start centres, nurseries and schools are open.",
        "Welcome packs, keys and maps lie at the desk.",
        "Of course fees apply to guests, children and dogs.",
        "In summary proceedings, no witness is heard.",
        "The short answer lines, like all others, are free.",
        'The answer to the question "what do dogs pay" is: half the price.',
        "The answer to the question what dogs pay is: half the price.",
        "You asked what dogs pay: dogs pay half the price.",
        "In response to your question about dogs, they pay half the price.",
    ],
)
def test_words_that_belong_to_a_claim_are_kept(text: str) -> None:
    (claim,) = extract(text)
    assert claim.text == text


def test_text_without_an_introduction_is_unchanged() -> None:
    assert [claim.text for claim in extract("Note: Answer: Dogs pay half.")] == ["Dogs pay half."]
    assert extract("In summary:") == []


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("What do dogs pay? Half the price.", "What do dogs pay?"),
        ("Was kosten Hunde? Die Hälfte.", "Was kosten Hunde?"),
        ("What do dogs pay? They pay half.", "What do dogs pay?"),
        ("What do dogs pay? In this park children pay half. Dogs too.", ""),
        ("What do dogs pay? In this park, dogs pay half the price of a child.", "What do dogs pay?"),
        ("What do dogs pay? Thanks for asking! Half.", "What do dogs pay?"),
        ("Half the price.", ""),
    ],
)
def test_short_answer_is_read_with_its_question(text: str, asked: str) -> None:
    claim = extract(text)[-1]
    assert (claim.question, claim.context) == (asked, "")
