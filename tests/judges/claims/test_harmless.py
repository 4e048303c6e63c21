"""The closed list of text that states nothing, and its limits."""

import pytest

from judges.claims.harmless import HarmlessText
from judges.claims.known_text import KnownText

KNOWN = KnownText(
    question="Is the rate limit 500 requests? How do refunds work?",
    documents=[
        "The API rate limit is 500 requests per minute. Refunds are paid within 5 days. Take 2 tablets every 8 hours."
    ],
    names=["faq.pdf"],
)
HARMLESS = HarmlessText(KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "Hello!", "Hi there,", "Great question!", "I hope this helps!", "Please feel free to ask.", "Of course!",
        "Let me know if you have any other questions about refunds.", "Thank you for your question.",
        "Here is a summary of the refund policy:", "Feel free to reach out if you need more help with the rate limit!",
        "I'm happy to help you with refunds.", "Ich hoffe, das hilft Ihnen weiter.", "N’hésitez pas à me contacter.",
        "Espero que esto le ayude.", "Melden Sie sich gerne bei Fragen.",
    ],
)  # fmt: skip
def test_courtesy_alone_states_nothing(text: str) -> None:
    assert HARMLESS.is_courtesy(text)


@pytest.mark.parametrize(
    "text",
    [
        "Please feel free to take up to 8 tablets.", "Do not hesitate to take 8.", "Feel free to take 2 tablets.",
        "Let me know if the limit is 9000.", "Thank you for asking, the limit is 9000.", "Hi Zaphod!",
        "I hope this helps with your 9000 requests.", "Here is the limit: 9000", "Let me know if you have no refunds.",
    ],
)  # fmt: skip
def test_statement_or_name_ends_a_courtesy(text: str) -> None:
    assert not HARMLESS.is_courtesy(text)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Thank you for asking, the limit is 9000.", "the limit is 9000."),
        ("I think the limit is 9000.", "the limit is 9000."),
        ("Did you know that the limit is 9000?", "the limit is 9000?"),
        ("Note: the limit is 9000.", "the limit is 9000."),
        ("Sure! The limit is 9000.", "The limit is 9000."),
        ("Ich glaube, dass das Limit 9000 ist.", "das Limit 9000 ist."),
        ("Hey Jude, a song by the Beatles, was released.", "Hey Jude, a song by the Beatles, was released."),
    ],
)
def test_introduction_is_no_part_of_a_statement(text: str, rest: str) -> None:
    assert text[HARMLESS.prefix(text) :] == rest


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("I don't know.", "I don't know."),
        ("I don't know, the limit is 9000.", "I don't know,"),
        ("The documents do not say whether refunds work.", "The documents do not say whether refunds work."),
        ("The documents do not say whether refunds are paid.", ""),
        ("The handbook does not say.", "The handbook does not say."),
        ("The policy says nothing about refunds.", "The policy says nothing about refunds."),
        ("That is not mentioned in the manual.", "That is not mentioned in the manual."),
        ("Das steht nicht in den Dokumenten.", "Das steht nicht in den Dokumenten."),
        ("Das Handbuch sagt das nicht.", "Das Handbuch sagt das nicht."),
        ("Ce n'est pas mentionné dans le manuel.", "Ce n'est pas mentionné dans le manuel."),
        ("El manual no dice nada.", "El manual no dice nada."),
        ("The documents do not mention 9000 requests.", ""),
        ("The handbook does not mention Zaphod.", ""),
        ("The contract does not allow refunds.", ""),
        ("The policy is insufficient.", ""),
        ("I cannot find the rate limit, but it is 500.", "I cannot find the rate limit,"),
    ],
)
def test_refusal_ends_where_a_statement_begins(text: str, refused: str) -> None:
    assert text[: HARMLESS.refusal(text)] == refused


@pytest.mark.parametrize("text", ["Rate limit", "Summary", "Key points:", "Refund timeline", "Plan"])
def test_label_of_known_words_states_nothing(text: str) -> None:
    assert HARMLESS.is_label(text)


@pytest.mark.parametrize(
    "text",
    [
        "The rate limit is 9000",
        "The rate limit is 500",
        "Take 8 tablets",
        "Zebra policy",
        "No refunds",
        "500 requests",
        "30 days",
        "5.5 days",
        "12.30 euros:",
        "3. days",
        "v. minutes",
        "2. 5 days",
        "30",
    ],
)
def test_label_with_a_statement_or_name_is_a_claim(text: str) -> None:
    assert not HARMLESS.is_label(text)


@pytest.mark.parametrize(
    "text",
    ["Would you like more details?", "Which plan do you have?", "How do refunds work?"],
)
def test_question_to_the_user_states_nothing(text: str) -> None:
    assert HARMLESS.is_question(text)


@pytest.mark.parametrize(
    "text",
    [
        "Did you know that the limit is 9000?",
        "Is it 9000?",
        "Do you need 9000 requests?",
        "When did the Zaphod fee start?",
        "What is the rate limit?",
    ],
)
def test_question_with_a_statement_is_a_claim(text: str) -> None:
    assert not HARMLESS.is_question(text)


def test_yes_states_what_a_closed_question_asks() -> None:
    assert HARMLESS.answers("Yes.", "Is it 9000?")
    assert HARMLESS.answers("Of course!", "Is it 9000?")
    assert not HARMLESS.answers("Of course!", "How do refunds work?")


@pytest.mark.parametrize(
    "text",
    [
        "OK.", "...Yes.", "— no", "((yes))", "Oh, sure!", "OK, right?", "Sounds like an excellent plan.", "Any time!",
        "With pleasure.", "That should do the trick.", "Enjoy your meal!", "Please try again later.", "Claro que sí.",
        "Gute Idee!", "Très bien.", "Va bene.", "Com certeza!", "Geen probleem.",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "question", ["May I take 8 tablets?", "is it 9000", "The limit is 9000, right?", "Hello. So 8?"]
)
def test_courtesy_that_can_answer_the_question_is_an_answer(text: str, question: str) -> None:
    assert HARMLESS.answer_in(text)
    assert HARMLESS.answers(text, question)


@pytest.mark.parametrize(
    "text", ["Sure!", "Glad to help!", "Enjoy your stay!", "Gerne!", "Bien sûr !", "Claro que sí."]
)
@pytest.mark.parametrize(
    "question",
    [
        "How do refunds work?", "Tell me the rate limit.", "Was muss ich zahlen?",
        "I need 2 tablets. Where are they sold?", "When are refunds paid? It is late.",
        "Hi! Can you explain how refunds work? Thanks!", "What is the limit, please?",
        "Question: Which limit applies?\nAnswer:", "Wie funktioniert die Lampe?", "Comment résilier ?",
        "¿Cuánto cuesta?",
        "Quanto costa?", "Qual é o prazo?", "Hoe werkt de lamp?", "Thanks, that helped!", "Hello", "",
    ],
)  # fmt: skip
def test_courtesy_answers_no_open_question(text: str, question: str) -> None:
    assert HARMLESS.is_courtesy(text)
    assert not HARMLESS.answers(text, question)


@pytest.mark.parametrize(
    "text", ["Absolutely.", "Sure, let me explain.", "**Sure** – here you go:", "OK.", "Gerne!", "Enjoy!"]
)
@pytest.mark.parametrize(
    "message",
    [
        "Is it 9000? Answer in one word.", "May I take 8? Please answer quickly. Thanks", "Tell me if it is 9000.",
        "Please confirm that it is 9000.", "True or false: it is 9000", "I wonder if I may take 8.",
        "It is 9000, isn't it",
        "What about 9000?", "How about 8?", "Why not take 8?", "What if I take 8?", "Any problem when I take 8?",
        "Is it 9000? How much?", "How much, or is it 9000?", "What do you think of 8?", "How is 8?",
        "What is better: 8?",
        "I will take 8.", "Explain that it is 9000.", "Give me the OK for 8.", "Would you take 8?",
        "Sag mir, ob es 9000 ist.",
        "Was ist mit 8?", "Wie wäre es mit 8?", "Dis-moi si c'est 9000.", "Et 8 ?", "¿Qué tal 8?", "¿Y 8?", "E 8?",
        "是9000吗", "هل هو 9000؟", None,
    ],
)  # fmt: skip
def test_courtesy_answers_a_message_that_is_not_known_to_be_open(text: str, message: str | None) -> None:
    assert HARMLESS.answer_in(text.replace("*", ""))
    assert HARMLESS.answers(text.replace("*", ""), message)


@pytest.mark.parametrize("text", ["Great.", "Right.", "Any time!", "Gut.", "Perfecto."])
def test_judgement_can_answer_an_open_question(text: str) -> None:
    assert HARMLESS.answers(text, "Which side is it?")
    assert not HARMLESS.answers(text, "How do refunds work?")


def test_wish_after_a_statement_is_no_answer() -> None:
    assert not HARMLESS.answers("Enjoy!", "Is it 9000?", stated=True)
    assert HARMLESS.answers("Sure!", "Is it 9000?", stated=True)


@pytest.mark.parametrize("text", ["Stop.", "Wait!", "Hold on.", "Please wait.", "Please, stop."])
def test_instruction_is_no_courtesy(text: str) -> None:
    assert not HARMLESS.is_courtesy(text)


@pytest.mark.parametrize("text", ["The limit is 9000, right?", "The limit is 9000, isn't it?"])
def test_question_tag_is_no_part_of_a_statement(text: str) -> None:
    assert text[: HARMLESS.suffix(text)] == "The limit is 9000"


@pytest.mark.parametrize(
    "text",
    ["The limit is 9000, no.", "The limit is 9000 (no)", "The limit is 9000. Yes?", "Well... yes!", "It is — no?"],
)
def test_word_without_a_comma_and_a_question_mark_is_no_tag(text: str) -> None:
    assert HARMLESS.suffix(text) == len(text)


def test_documents_quote_whole_words_up_to_white_space() -> None:
    assert KNOWN.quotes("rate   limit is 500")
    assert KNOWN.quotes("faq.pdf")
    assert not KNOWN.quotes("imit is 50")
    assert not KNOWN.quotes("limit is 50")
