"""Relevance and completeness of replies, with claims whose evidence is given."""

import pytest

from judges.answer_relevance import answer_relevance, answered_parts, question_parts
from judges.types import Chunk, Claim, ClaimVerdict, Label, QuestionPart, Source, Span

LAMP = "The Orion lamp costs 20 euros. It is delivered within three days. The lamp is made of brass."
PRICE, DELIVERY = "What does the Orion lamp cost?", "How long does delivery of the Orion lamp take?"


def claim(text: str, label: Label = Label.SUPPORTED, passage: str | None = LAMP) -> ClaimVerdict:
    source = None
    if passage is not None:
        source = Source(
            document_id="d", document_index=0, source=None, content=passage, score=0.9, span=Span(0, len(passage))
        )
    said = Claim(text=text, span=Span(0, len(text)), sentence_index=0)
    return ClaimVerdict(claim=said, label=label, entailed=0.9, contradicted=0.0, best_source=source)


@pytest.mark.parametrize(
    ("reply", "least", "most"),
    [
        ("The Orion lamp costs 20 euros.", 1.0, 1.0),
        ("You pay 20 euros for it.", 1.0, 1.0),  # by the passage with the same quantity
        ("It is made of brass.", 0.0, 0.5),
        ("Bicycles may be parked behind the canteen.", 0.0, 0.0),
    ],
)
def test_relevance(reply: str, least: float, most: float) -> None:
    found = answer_relevance(PRICE, [claim(reply)])
    assert found is not None
    assert least <= found <= most


def test_reply_words_count_without_evidence() -> None:
    assert answer_relevance(PRICE, [claim("The Orion lamp costs 9 euros.", Label.UNVERIFIABLE, None)]) == 1.0


@pytest.mark.parametrize("question", ["", "???", PRICE])
def test_reply_without_claims_has_no_relevance(question: str) -> None:
    assert answer_relevance(question, [claim("I can't say.", Label.NOT_A_CLAIM)]) is None
    assert answer_relevance(question, []) is None


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (PRICE, [PRICE]),
        (f"{PRICE} {DELIVERY}", [PRICE, DELIVERY]),
        (
            "What does the lamp cost, and how long does delivery take?",
            ["What does the lamp cost", "how long does delivery take?"],
        ),
        ("Who designed the bridge and when did it open?", ["Who designed the bridge", "when did it open?"]),
        ("What do salt and pepper cost?", ["What do salt and pepper cost?"]),
        ("Was kostet die Lampe und wann kommt sie?", ["Was kostet die Lampe", "wann kommt sie?"]),
    ],
)
def test_parts(question: str, parts: list[str]) -> None:
    assert question_parts(question) == parts


def test_answered_parts_are_found_in_documents_and_reply() -> None:
    question = "What does the Orion lamp cost, and who designed the bridge in Lyon?"
    lamp, bridge = "What does the Orion lamp cost", "who designed the bridge in Lyon?"
    chunks = [Chunk(id="d", text=LAMP)]
    assert answered_parts(question, [claim("You pay 20 euros.")], chunks) == (
        QuestionPart(text=lamp, in_documents=True, in_reply=True),
        QuestionPart(text=bridge, in_documents=False, in_reply=False),
    )
    both = [*chunks, Chunk(id="e", text="The bridge in Lyon was designed by Elena Marsh.")]
    assert [part.in_documents for part in answered_parts(question, [], both)] == [True, True]


def test_long_input_takes_bounded_time() -> None:
    """Quadratic work would take minutes."""
    assert len(question_parts(" and what" * 200_000)) <= 8
    assert answer_relevance("what " * 400_000, [claim("It costs 20 euros.")]) is None
