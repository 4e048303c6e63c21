"""Similar text that isn't on the closed list: all of it is judged, and nothing is removed for judging alone."""

import asyncio

import pytest

from judges.checker import GroundingChecker
from judges.label_thresholds import Thresholds
from judges.testing import ScriptedJudge
from judges.types import Chunk, ClaimVerdict, Part, Standing
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents

DOCUMENTS = [
    "Adults take 4 tablets daily. Children take 2 tablets daily. Store the tablets at 25 °C. Alcohol is forbidden. Tea "
    "is allowed. The deadline for Ben is Monday and the deadline for Anna is Friday. The red tablet is for adults. Add "
    "½ cup of water. Take a quarter of an eighth, the twofold dose or the third cup. The casing material contains lead "
    "but no nickel. Chunks of nuts are sold. Refunds are offered within 30 days. The lamp has an energy source. The "
    "contract covers water damage. Kinder nehmen Tee. Les enfants prennent du thé. Los niños toman té.",
    *(f"Document {number} is about the weather." for number in range(2, 10)),
]
GIVEN = [Chunk(id=f"d{number}", text=text) for number, text in enumerate(DOCUMENTS, 1)]
NAMES = DocumentNames(GIVEN)
QUESTION = (
    "Is alcohol allowed with the tablets? What do adults and children take? Does the casing material contain lead?"
)


def read(reply: str, question: str = QUESTION) -> tuple[list[ClaimVerdict], list[Part]]:
    """The claims in a reply, and its unjudged parts."""

    async def check() -> tuple[list[ClaimVerdict], list[Part]]:
        checker = GroundingChecker(ScriptedJudge())
        check = checker.reply(
            await checker.prepare(GIVEN),
            thresholds=Thresholds(),
            question=question,
            message=question,
            conversation=question,
            resolves=lambda bracket: names_only_documents(bracket, NAMES),
        )
        verdicts = [await check.check(sentence) for sentence in [*check.push(reply), *check.flush()]]
        claims = [claim for verdict in verdicts for claim in verdict.claims]
        parts = [part for verdict in verdicts for part in verdict.parts]
        return claims, [part for part in parts if part.standing is Standing.UNJUDGED]

    return asyncio.run(check())


def said(reply: str, question: str = QUESTION) -> list[str]:
    """What the judge reads: each claim after its context."""
    return [f"{one.claim.context} {one.claim.text}".strip() for one in read(reply, question)[0]]


@pytest.mark.parametrize(
    "reply",
    [
        "To answer your question alcohol is allowed: I hope this helps!",
        "To answer the question children take alcohol, I hope this helps!",
        "To answer your question “alcohol is allowed”: let me explain.",
        "Regarding your question alcohol is allowed, I hope this helps.",
        "Regarding this question alcohol is allowed, let me know.",
        "In reply to that question tea contains lead, the documents do not say.",
        "In response to your question children take alcohol, children take 4 tablets daily.",
        "In answer to your question adults take no tablets: adults take 4 tablets daily.",
        "Answer to your question children take 4 tablets daily: adults take 4 tablets daily.",
        "My answer to your question tea is forbidden: I hope this helps.",
        'The answer to your question "alcohol is allowed" is: the documents do not say.',
        "You asked alcohol is allowed: I hope this helps.",
        "You wanted to know alcohol is allowed: let me explain.",
        "Zu Ihrer Frage Kinder nehmen Alkohol: Ich hoffe, das hilft Ihnen.",
        "Antwort auf Ihre Frage Kinder nehmen Alkohol: Ich hoffe, das hilft.",
        "Um deine Frage Kinder nehmen Tee zu beantworten: Adults take 4 tablets daily.",
        "Concernant votre question les enfants prennent du thé, merci pour votre question.",
        "Réponse à votre question les enfants prennent du thé : j’espère que cela vous aide.",
        "Respecto a su pregunta los niños toman té: espero que esto le ayude.",
        "Respuesta a su pregunta los niños toman té: muchas gracias.",
    ],
)
def test_question_that_a_reply_repeats_is_judged_with_its_answer(reply: str) -> None:
    assert said(reply) == [reply]


@pytest.mark.parametrize(
    "opener", ["To answer your question, ", "In response to your question: ", "The answer to your question is: ",
               "Um Ihre Frage zu beantworten: ", "Pour répondre à votre question, ", "En respuesta a su pregunta: "],
)  # fmt: skip
def test_opener_of_fixed_words_is_removed(opener: str) -> None:
    assert said(f"{opener}children take 2 tablets daily.") == ["Children take 2 tablets daily."]


STEP = "take 4 tablets daily."


@pytest.mark.parametrize(
    "introduction",
    [
        "Here are the instructions for children: ", "Here is the information about children: ",
        "Here are the steps for adults: ", "Here is how children sleep: ", "Let me explain for children: ",
        "Let's look at children: ", "Let me summarize the information for children: ", "I'll explain for adults: ",
        "More information for children: ", "Further reading on children: ", "Sources for children: ",
        "Regarding your question about children, ", "Thank you for asking about children, ",
        "I'm happy to help with children: ", "I hope this helps with children: ",
        "If you have questions about children, just ask: ", "I don't know about children, but ",
        "I don't have any information about children, but ", "The documents don't mention children, but ",
        "Sorry about the children, but ", "Hello children, ",
        "Hier sind die Informationen für Kinder: ", "Vielen Dank für Ihre Frage zu Kinder: ",
        "Voici les informations pour les enfants : ", "Aquí está la información para los niños: ",
    ],
)  # fmt: skip
def test_topic_of_an_introduction_is_judged_with_the_claim(introduction: str) -> None:
    (claim,) = said(introduction + STEP)
    assert claim == introduction + STEP


@pytest.mark.parametrize(
    "introduction",
    [
        "Thanks for asking about children! ", "Let me explain the dose for children. ",
        "Thank you for your question about children. ", "I'm happy to help with children! ",
        "Here is the information about children.\n\n", "Let's start with children. ",
        "Here are the steps for children:\n- ", "Let me walk through the steps for children:\n\n1. ",
        "Let me explain for children:\n- ", "Hier sind die Schritte für Kinder:\n- ",
        "Voici les étapes pour les enfants :\n\n- ", "Gracias por su pregunta sobre los niños. ",
    ],
)  # fmt: skip
def test_introduction_that_names_a_topic_is_context(introduction: str) -> None:
    (claim,) = said(f"{introduction}T{STEP[1:]}")
    assert claim == f"{introduction.splitlines()[0].strip()} T{STEP[1:]}"


@pytest.mark.parametrize("introduction", ["Here are the steps:\n- ", "Let me explain. ", "Thank you for asking! "])
def test_introduction_of_fixed_words_is_no_context(introduction: str) -> None:
    assert said(f"{introduction}T{STEP[1:]}") == ["Take 4 tablets daily."]
