"""A label is harmless only if it introduces something. Otherwise, it can be the answer, so it is judged."""

import asyncio
import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judges.checker import GroundingChecker
from judges.evidence.index import EvidenceIndex
from judges.label_thresholds import Thresholds
from judges.reply_check import ReplyCheck
from judges.testing import ScriptedJudge, entails
from judges.types import Chunk, Claim, Standing

pytestmark = pytest.mark.anyio

QUESTION = "Which tablets should I take, and what do the red tablets cost?"
DOCUMENT = (
    "Adults take the blue tablets. Children take the red tablets. Keep the tablets dry until all steps are done. "
    "The terms are at https://example.com/terms. The tablets come with a leaflet, a card and a table of doses."
)


@cache
def evidence() -> tuple[GroundingChecker, EvidenceIndex]:
    checker = GroundingChecker(ScriptedJudge(default=entails()))
    return checker, asyncio.run(checker.prepare([Chunk(id="d1", text=DOCUMENT, source="leaflet.pdf")]))


def opened(*, prefill: str = "", is_json: bool = False) -> ReplyCheck:
    checker, index = evidence()
    return checker.reply(
        index,
        thresholds=Thresholds(),
        question=QUESTION,
        message=QUESTION,
        conversation=QUESTION,
        prefill=prefill,
        is_json=is_json,
        resolves=lambda bracket: bracket in ("[1]", "(leaflet.pdf)"),
    )


def claims(text: str, *, prefill: str = "", is_json: bool = False) -> list[Claim]:
    """The claims in a reply."""
    reply = opened(prefill=prefill, is_json=is_json)
    sentences = [*reply.push(text), *reply.flush()]
    return [claim for sentence in sentences for claim in asyncio.run(reply.claims_of(sentence))]


def judged(text: str, *, prefill: str = "", is_json: bool = False) -> list[str]:
    return [claim.text.removeprefix(f"{QUESTION} ") for claim in claims(text, prefill=prefill, is_json=is_json)]


KINDS = {
    "a label that is the whole reply": [
        ("**Blue**", ["Blue"]), ("# Blue", ["Blue"]), ("Blue:", ["Blue:"]), ("**Blue:**", ["Blue:"]),
        ("__Blue__", ["Blue"]), ("###### Blue tablets", ["Blue tablets"]), ("# 1. Blue", ["1. Blue"]),
        ("**1. Blue**", ["1. Blue"]), ("| Blue |\n|---|\n", ["Blue"]), ("| Blue | Red |", ["Blue, Red"]),
        ("Then take:", ["Then take:"]), ("The tablets are:", ["The tablets are:"]),
        ("Here are the blue tablets:", ["Here are the blue tablets:"]),
        ("Let's start with the blue tablets", ["Let's start with the blue tablets"]),
        ("I'll explain the blue tablets.", ["I'll explain the blue tablets."]),
        ("So, let's start with the blue tablets!", ["So, let's start with the blue tablets!"]),
        ("Subject: Blue tablets", ["Subject: Blue tablets"]),
        ("Hier sind die blue tablets:", ["Hier sind die blue tablets:"]),
    ],
    "a label per option": [
        ("## Blue\n\n## Done", ["Blue", "Done"]), ("**Blue**\n\n**Done**", ["Blue", "Done"]),
        ("## Blue\n\n# Done", ["Blue", "Done"]), ("- Blue:\n- Red:", ["Blue:", "Red:"]),
        ("1. Blue:\n2. Red:", ["Blue:", "Red:"]), ("- **Blue**\n- **Red**", ["Blue", "Red"]),
        ("Tablets:\n- Blue:\n- Red:", ["Tablets:", "Blue:", "Red:"]),
        ("# Tablets\n\n## Blue\n\n## Red", ["Tablets", "Blue", "Red"]),
        ("**Blue**\n\n**Red**\n\nKeep the tablets dry.", ["Blue", "Keep the tablets dry."]),
        ("- Blue:\n- Red: keep the tablets dry.", ["Blue:", "Red: keep the tablets dry."]),
        ("  - Blue:\n- Keep the tablets dry.", ["Blue:", "Keep the tablets dry."]),
        ("| Blue |\n|---|\n\n| Red |\n|---|\n| 8 |", ["Blue", "Red: 8"]),
    ],
    "a label before text that states nothing": [
        ("Then take: [1]", ["Then take: [1]"]), ("Blue:\n\n---\n\n[1]", ["Blue:"]),
        ("Blue:\n\nI hope this helps!", ["Blue:"]), ("# Blue\n\nI hope this helps!", ["Blue"]),
        ("Blue:\n\nWould you like more details?", ["Blue:"]),
        ("**Blue**\n\nWould you like more details?", ["Blue"]),
        ("# Blue\n\nSources: [1]", ["Blue"]), ("# Blue\n\nSources: 1", ["Blue"]),
        ("# Blue\n\n```\n```", ["Blue"]), ("| Blue |\n|---|\n\nI hope this helps!", ["Blue"]),
        ("Let's start with the blue tablets. I hope this helps!", ["Let's start with the blue tablets."]),
        ("I'll explain the blue tablets, thanks!", ["I'll explain the blue tablets, thanks!"]),
        ("# Blue\n\nThe documents don't mention the cost.", ["Blue"]), ("# Blue\n\nI don't know.", ["Blue"]),
        ("Blue:\n\nI hope this helps!\n\nKeep the tablets dry.", ["Blue:", "Keep the tablets dry."]),
    ],
    "a label at the end of a reply": [
        ("Keep the tablets dry.\n\nThen take:", ["Keep the tablets dry.", "Then take:"]),
        ("Keep the tablets dry.\n\n# Blue", ["Keep the tablets dry.", "Blue"]),
        ("Keep the tablets dry. I'll explain the blue", ["Keep the tablets dry.", "I'll explain the blue"]),
        ("## Red\n\nKeep the tablets dry.\n\n## Blue", ["Keep the tablets dry.", "Blue"]),
    ],
}  # fmt: skip

ORDINARY = {
    "a heading": [
        "# Blue\n\nKeep the tablets dry.", "**Blue**\n\nKeep the tablets dry.",
        "# Blue\n\n## Red\n\nKeep the tablets dry.",
        "# Blue\n\nGreat question!\n\nKeep the tablets dry.", "# Tablets\n\n**Blue**\n\nKeep the tablets dry.",
        "**Tablets**\n\n**1. Blue**\n\nKeep the tablets dry.", "**1. Tablets**\n\n**Blue**\n\nKeep the tablets dry.",
        "# Blue\n\nWould you like more details?\n\n- Keep the tablets dry.",
        "# Blue\n\n| Tablets |\n|---|\n| 8 |", "# Blue\n\n```\ntake --blue\n```",
    ],
    "a lead-in": [
        "The tablets are:\n\n- Keep the tablets dry.", "Then take:\n\n---\n\nKeep the tablets dry.",
        "Here are the blue tablets:\n\n## Blue\n\nKeep the tablets dry.", "The tablets:\n\n| Blue |\n|---|\n| 8 |",
        "Tablets:\n\n1. Blue:\n   - Keep the tablets dry.", "1. Blue:\n- Keep the tablets dry.",
        "Then take:\n`take --blue`",
        "Then take:\n```\ntake --blue\n```", "The terms are:\nhttps://example.com/terms",
        "Let's start with the blue tablets: keep the tablets dry.",
    ],
    "an announcement": [
        "Let's start with the blue tablets. Keep the tablets dry.",
        "Let's start with the blue tablets. Great question! Keep the tablets dry.",
        "I'll explain the blue tablets.\n\n## Blue\n\nKeep the tablets dry.",
        "Subject: Blue tablets\n\nDear Sir or Madam,\n\nKeep the tablets dry.\n\nKind regards,\n[Your name]",
    ],
    "text that names nothing": [
        "Let me explain.", "Here's a summary:", "**Answer:**\n\nI don't know.", "# Summary\n\nI don't know.",
        "Keep the tablets dry.\n\n**Next steps**\n\nWould you like more details?",
        "I can also explain the blue tablets.",
        "Keep the tablets dry.\n\n**Sources**\n- [1]\n- leaflet.pdf",
        "Keep the tablets dry.\n\nSources:\n1. leaflet.pdf",
    ],
    "what the user asked about, before a refusal": [
        "# Red tablets\n\nThe documents don't mention the red tablets.",
        "Red tablets:\n\nI couldn't find the cost of the red tablets.",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "said"), [(kind, *row) for kind, rows in KINDS.items() for row in rows])
def test_label_that_introduces_nothing_is_judged(kind: str, text: str, said: list[str]) -> None:
    assert judged(text) == said, kind


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in ORDINARY.items() for text in texts])
def test_label_that_introduces_something_is_harmless(kind: str, text: str) -> None:
    said = ("keep the tablets dry", "8", "take --blue", "https://example.com/terms")
    assert all(claim.lower().endswith(said) for claim in (one.strip(".") for one in judged(text))), kind


def test_label_that_introduces_nothing_is_judged_with_the_question() -> None:
    text = "Keep the tablets dry.\n\n## Blue\n\n## Red"
    *_, blue, red = claims(text)
    for claim, name in ((blue, "Blue"), (red, "Red")):
        assert (claim.text, text[claim.span.start : claim.span.end]) == (f"{QUESTION} {name}", f"## {name}")
    (head,) = claims("| Blue |\n|---|\n")
    assert head.text == f"{QUESTION} Blue"


def test_labels_of_a_long_row_of_labels_are_judged() -> None:
    titles = "".join(f"{'#' * min(level, 6)} Blue\n\n" for level in range(1, 101))
    assert judged(f"{titles}Keep the tablets dry.") == ["Blue"] * 99 + ["Keep the tablets dry."]
    announced = "Let's start with the blue tablets.\n\n" * 100
    assert len(judged(f"{announced}Keep the tablets dry.")) == 36 + 1  # the last 64 are near enough


@pytest.mark.parametrize(
    ("prefill", "text", "said"),
    [
        ("The", " tablets:", ["The tablets:"]),
        ("The", " tablets:\n\nKeep the tablets dry.", ["Keep the tablets dry."]),
        ("Then", " take:", ["Then take:"]), ("# Blue\n\n", "# Red", ["Red"]),
        ("Then", " take:\n- Keep the tablets dry.", ["Keep the tablets dry."]),
    ],
)  # fmt: skip
def test_label_that_begins_in_the_prefill_is_read_as_a_whole(prefill: str, text: str, said: list[str]) -> None:
    assert judged(text, prefill=prefill) == said


def test_labels_in_a_json_string_introduce_text_in_that_string() -> None:
    text = json.dumps({"answer": "# Blue\n\nI hope this helps!", "text": "# Blue\n\nKeep the tablets dry."})
    assert judged(text, is_json=True) == ["# Blue", "Keep the tablets dry."]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Let me check the blue tablets:", []),
        ("Let me check the blue tablets.", []),
        ("Blue:", [f"{QUESTION} Blue:"]),
        ("# Blue", [f"{QUESTION} Blue"]),
    ],
)
def test_only_an_announcement_may_introduce_what_follows_a_pause(text: str, said: list[str]) -> None:
    reply = opened()
    sentences = [*reply.push(text), *reply.pause()]
    assert [claim.text for one in sentences for claim in asyncio.run(reply.claims_of(one))] == said


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("| Red | Tablets |\n", "| Blue |\n"),
        ("| Red | Tablets |\n| --- | --- |\n", "| Blue |\n| --- |\n"),
        ("- Red: 8.\n", "- Blue:\n- Red: 8.\n"),
        ("Keep the tablets dry.\n", "# Blue\n"),
    ],
)
@pytest.mark.parametrize("prefill", ["", "Hello!\n\n"])
def test_discarded_sentences_do_not_change_the_labels_that_are_judged(first: str, second: str, prefill: str) -> None:
    reply, expected = opened(prefill=prefill), judged(second, prefill=prefill)
    reply.push(first)
    reply.restart(0)
    sentences = [*reply.push(second), *reply.flush()]
    said = [claim.text.removeprefix(f"{QUESTION} ") for one in sentences for claim in asyncio.run(reply.claims_of(one))]
    assert said == expected


PIECES = st.sampled_from(
    [
        "# Blue", "## Red", "**Blue**", "**1. Red**", "Blue:", "- Blue:", "- ", "1. ", "   ", "Then take:",
        "| Blue |", "|---|",
        "| 8 |", "Let's start with the red tablets.", "I hope this helps!", "Keep the tablets dry.", "I don't know.",
        "[1]", "Sources: 1", "```\nx\n```", "---", "Answer:", "Hello!", "\n", "\n\n", " ",
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=14).map("".join), st.lists(st.integers(1, 30), min_size=1, max_size=6))
@settings(max_examples=400)
def test_chunking_does_not_change_the_labels_that_are_judged(text: str, lengths: list[int]) -> None:
    whole, cut = opened(), opened()
    expected = [*whole.push(text), *whole.flush()]
    found, at = [], 0
    while at < len(text):
        end = at + lengths[len(found) % len(lengths)]
        found += cut.push(text[at:end])
        at = end
    assert [*found, *cut.flush()] == expected


@given(st.lists(PIECES, max_size=14).map("".join))
@settings(max_examples=400)
def test_reply_without_any_judged_text_has_no_label(text: str) -> None:
    """If nothing in a reply is judged, it has no words of a label either."""
    reply = opened()
    verdicts = [asyncio.run(reply.check(sentence)) for sentence in [*reply.push(text), *reply.flush()]]
    parts = [part for verdict in verdicts for part in verdict.parts]
    if all(part.standing is Standing.HARMLESS for part in parts):
        assert not any(word in text for word in ("Blue", "Red", "red", "take"))
