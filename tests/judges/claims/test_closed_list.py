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


@pytest.mark.parametrize(
    "reply",
    [
        "The casing material does not contain lead.", "The casing materials do not contain lead.",
        "The chocolate chunks do not contain nuts.", "The alcohol source is insufficient.",
        "The energy source does not cover the lamp.", "Your water sources do not provide tea.",
        "The casing material has no lead details.", "The casing material is insufficient.",
        "Lead is not included in the material.", "Lead isn't provided by the casing material.",
        "Alcohol is not covered by the contract.", "The contract does not cover alcohol.",
        "The contract does not cover tablets.", "The report contains no lead information.",
        "The casing contains no lead data.", "The passage does not contain lead.", "The file has no alcohol.",
        "The page does not include tablets.", "The relevant material does not contain lead.",
        "The available sources do not provide alcohol.", "The casing policy does not contain lead.",
        "The documents do not mention tea.", "The documents don't mention the red tablet.",
        "The leaflet says nothing about nickel.", "Nickel isn't mentioned in the documents.",
        "There is no information about nickel in the documents.",
    ],
)  # fmt: skip
def test_refusal_about_things_or_unasked_words_is_judged(reply: str) -> None:
    assert said(reply) == [reply]


@pytest.mark.parametrize(
    "reply",
    [
        "The documents do not contain lead.", "The provided documents don't mention alcohol.",
        "The provided sources do not cover alcohol.", "The passages provided do not mention lead.",
        "The reports you provided don't say whether adults take alcohol.", "The context doesn't mention children.",
        "The given information says nothing about alcohol.", "Alcohol isn't mentioned in the documents.",
        "There is no information about lead in the given documents.",
    ],
)  # fmt: skip
def test_refusal_about_the_documents_and_the_question_is_harmless(reply: str) -> None:
    assert read(reply) == ([], [])


@pytest.mark.parametrize(
    "reply",
    [
        "I cannot offer refunds within 30 days.", "I can't recommend tea with the tablets.", "I can't offer alcohol.",
        "I'm unable to offer a tablet.", "I cannot give you a tablet within 30 days.", "I am not able to give alcohol.",
        "I cannot advise alcohol.", "I can't give alcohol to children.", "I don't have it.", "I don't have alcohol.",
        "I can't share the tablets.", "I could not provide lead.", "I can't help children.",
        "I cannot assist adults.", "I'm not able to recommend the tablets.", "I can't discuss alcohol.",
        "I can't comment on alcohol.", "I don't have the lead casing.", "I can't see lead in the casing material.",
        "No puedo ofrecer alcohol.", "No tengo alcohol.", "Ich kann alcohol nicht empfehlen.",
        "Je ne peux pas donner alcohol.",
    ],
)  # fmt: skip
def test_refusal_to_do_something_is_judged(reply: str) -> None:
    assert said(reply) == [reply]


@pytest.mark.parametrize(
    "reply",
    [
        "I can't say whether alcohol is allowed.", "I cannot confirm that.", "I can't help with that.",
        "I'm unable to determine whether children take alcohol.", "I can't provide any information about alcohol.",
        "I don't have any information about lead.", "I cannot give you details about alcohol.",
        "No puedo confirmar.", "No tengo información.", "Das weiß ich leider nicht.",
    ],
)  # fmt: skip
def test_refusal_to_tell_something_is_harmless(reply: str) -> None:
    assert read(reply) == ([], [])


@pytest.mark.parametrize(
    "reply",
    [
        "When children take 4 tablets daily, alcohol is allowed?", "Which is why alcohol is allowed for children?",
        "Where alcohol is allowed, children take tablets?", "Who takes 4 tablets, children?",
        "What is allowed for children, alcohol?", "What children take: 4 tablets daily?",
        "Which tablets: 4 red tablets daily?", "What, alcohol is allowed for children?",
        "How could alcohol not be allowed?", "When is alcohol not allowed for children?",
        "What do children take, if not alcohol?", "How do adults take alcohol?", "Who takes alcohol?",
        "What do you take – alcohol?", "Which tablets do you take, the red tablets?", "Alcohol is allowed?",
        "Where do you store the tablets?", "What would you like: tea?", "Was Kinder nehmen: 4 tablets daily?",
        "Wann nehmen Kinder alcohol?", "¿Quién toma 4 tablets, los niños?", "Qui prend alcohol, les enfants ?",
        "Have you considered alcohol?", "Have you tried alcohol?", "Could you try alcohol?", "Do you want tea?",
        "Which alcohol would you like with the tablets?", "Which tea do you want?", "How much alcohol do you want?",
        "Would you like to know how much alcohol children take?", "Would you like the red tablet for adults?",
        "Would you like to know how long alcohol is allowed for children?", "When do children drink alcohol?",
        "Would you like more information about tea?", "Would you like more information about 4 tablets?",
        "Shall I explain why alcohol is allowed?", "Do you need alcohol for children?",
        "Möchten Sie Tee?", "Voulez-vous du thé ?", "¿Quiere té?",
        "The documents don't say how long alcohol is allowed.", "I don't know how much alcohol children take.",
        "Let us know when children need alcohol.", "I hope this clarifies why alcohol is allowed.",
        "Thank you for asking when children take tea.", "I'm happy to explain why alcohol is allowed.",
    ],
)  # fmt: skip
def test_question_that_names_or_suggests_something_is_judged(reply: str) -> None:
    assert len(said(reply)) == 1


@pytest.mark.parametrize(
    "reply",
    [
        "Is there anything else I can help you with?", "Would you like more details about alcohol?",
        "Do you want more information about adults and children?", "Where would you like to start?",
        "Would you like an example?", "Is alcohol allowed with the tablets?", "What do adults and children take?",
        "Möchten Sie mehr wissen?", "Avez-vous une autre question ?", "¿Quiere saber más?", "Did that help?",
    ],
)  # fmt: skip
def test_question_to_the_user_in_fixed_words_is_harmless(reply: str) -> None:
    assert read(reply) == ([], [])


@pytest.mark.parametrize(
    "refusal",
    [
        "I cannot confirm that", "I can't say that", "The documents do not say that",
        "The documents don't mention that",
        "I could not find", "I'm unable to say", "I don't know", "I cannot verify that", "The context doesn't say",
        "Ich kann nicht sagen", "Je ne sais pas", "No puedo confirmar", "Thanks", "I'm sorry",
    ],
)  # fmt: skip
def test_text_that_a_line_break_cuts_off_is_judged_with_what_follows(refusal: str) -> None:
    assert said(f"{refusal}\nAdults take 4 tablets daily.") == [f"{refusal} Adults take 4 tablets daily."]


@pytest.mark.parametrize(
    "before", ["I don't know.\n", "I don't know\n\n", "The documents don't say:\n", "Hello!\n", "# Adults\n"]
)
def test_complete_text_is_not_continued(before: str) -> None:
    assert [one.claim.text for one in read(f"{before}Adults take 4 tablets daily.")[0]] == [
        "Adults take 4 tablets daily."
    ]


@pytest.mark.parametrize(
    "reply",
    [
        "Hello! [4]", "Children: [4]", "Let me explain: [4]", "**Tablets for children:** [4]",
        "Hello!\n\n[4]\n\nI hope this helps!", "| Children |\n|---|\n| [4] |", "The documents do not say. [4]",
        "I don't know [4].", "[8]", "Sources: [4]", "## Sources\n\n8", "## Sources\n\n[4]", "Sources:\n- 4",
        "Would you like more details? [4]", "Thank you! [4] [5]", "Here are the steps: [4]", "- Hello\n- [4]",
        "Hello!\n\n[4]\n\n[5]", "Great question! [3] [4]",
    ],
)  # fmt: skip
def test_marker_that_cites_nothing_is_judged(reply: str) -> None:
    assert any(char.isdecimal() for text in said(reply) for char in text)


@pytest.mark.parametrize(
    "after", ["[1]", "\n\n[1]", "\n\nSources: [1], [2]", "\n\n## Sources\n\n- [1]\n- [2]", "\n\n## Sources\n\n1"]
)
def test_marker_after_a_claim_is_harmless(after: str) -> None:
    claims, unjudged = read(f"Adults take 4 tablets daily. {after}")
    assert [one.claim.text for one in claims] == ["Adults take 4 tablets daily."]
    assert unjudged == []


MARKS = [
    "; ", " · ", " • ", " | ", " ― ", " ‒ ", " – ", "：", " ! ", " # ", " § ", " _", "-", ": ", ". ", ", the ", ", on ",
    "<br>", " ¡", " / the / ", " ",
]  # fmt: skip


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("label", ["## {}", "**{}**", "{}:"])
def test_label_with_two_names_beside_each_other_is_judged(mark: str, label: str) -> None:
    question = "What is the deadline for Anna?"
    assert len(said(f"{label.format(f'Deadline for Anna{mark}Monday')}\n\nTea is allowed.", question)) >= 2


@pytest.mark.parametrize(
    "label",
    [
        "Deadline for Anna “Monday”", "Deadline for Anna 'Monday'", "Deadline for Anna (Monday)",
        "Deadline for Anna（Monday）", "Deadline for Anna【Monday】", "Deadline for Anna `Monday`",
        "Deadline for Anna _Monday_", "Deadline for Anna «Monday»", "Anna Monday", "Alcohol tea", "Tea: alcohol",
    ],
)  # fmt: skip
def test_label_with_a_name_in_marks_is_judged(label: str) -> None:
    assert len(said(f"## {label}\n\nTea is allowed.", "What is the deadline for Anna?")) == 2


@pytest.mark.parametrize(
    "label", ["Red tablet", "Tablets daily", "Tea and alcohol", "Tea, alcohol", "Tea/alcohol", "Overview: tea",
              "Tablets (overview)", "Water damage", "Deadline for Anna", "Refund timeline", "Casing material"],
)  # fmt: skip
def test_label_with_a_single_name_is_harmless(label: str) -> None:
    assert len(said(f"## {label}\n\nTea is allowed.")) == 1


def test_table_header_with_two_names_is_judged() -> None:
    header = "| Deadline for Anna | Monday |\n|---|---|\n| Tea | allowed |"
    assert said(header)[0].endswith("Deadline for Anna, Monday")
    assert len(said("| | Tea | Alcohol |\n|---|---|---|\n| Rule | allowed | forbidden |")) == 1
    assert len(said("| Plan | Price |\n|---|---|\n| Tea | allowed |")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "½ tablets for children", "½ cup", "Ⅳ lamps", "Quarter cup", "An eighth cup", "The twofold dose",
        "Third red tablet", "Half tablet", "¼ cup of water", "Two tablets", "Tablets ②", "Ⅻ tablets", "A tenfold dose",
        "Second tablet", "Viertel cup", "Demi cup", "Twice tea", "Third tablet",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["# {}", "**{}**", "{}:"])
def test_label_with_a_quantity_is_judged(text: str, form: str) -> None:
    assert len(said(f"{form.format(text)}\n\nTea is allowed.")) >= 2


@pytest.mark.parametrize("text", ["½ cup", "Ⅳ tablets", "② tablets", "two tablets", "4 tablets"])
def test_question_with_a_quantity_is_judged(text: str) -> None:
    assert said(f"Would you like more information about {text}?")


@pytest.mark.parametrize(
    "label", ["Third cup", "First", "Third", "Second step", "First example", "Third option", "Second point"]
)
@pytest.mark.parametrize("form", ["## {}", "**{}**", "{}:"])
def test_ordinal_that_counts_nothing_is_harmless(label: str, form: str) -> None:
    assert len(said(f"{form.format(label)}\n\nTea is allowed.")) == 1


@pytest.mark.parametrize("label", ["Tea: second", "Tea second", "Second tea", "Third option tea", "Third red"])
def test_ordinal_that_ranks_something_is_judged(label: str) -> None:
    assert len(said(f"## {label}\n\nTea is allowed.")) == 2
