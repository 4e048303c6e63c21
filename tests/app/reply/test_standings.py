"""Unjudged text: listed under ``warn``, left out under ``strip``, and blocking under ``block``."""

import json
from typing import Any

import pytest

from policies.types import Policy
from tests.support.gateways.in_process_gateway import (
    TRUE,
    bench,
    chunk,
    finish_of,
    policy,
    said,
    sse,
    summary_of,
    text_of,
    whole,
)

pytestmark = pytest.mark.anyio

HIDDEN = [
    ("code", "\n\n```\nrm -rf lamp\n```\n", "rm -rf lamp"),
    ("code", "\n\n```Take 8 tablets\n```\n", "Take 8 tablets"),
    ("link", " See [the terms](https://example.com/take-8).", "take-8"),
    ("link", ' See [the terms](faq "Take 8").', "Take 8"),
    ("attribute", ' It is <b title="take 8">so</b>.', "take 8"),
    ("comment", " It is so <!-- take 8 -->.", "take 8"),
    ("stray_marker", " It is so [9].", "[9]"),
]


def rules(action: str, **more: Any) -> Policy:
    return policy(unjudged_action=action, min_citations=0, max_unverifiable_ratio=1.0, min_grounding_score=0.0, **more)


async def reply_to(text: str, given: Policy, *, stream: bool) -> tuple[str, str, dict[str, Any]]:
    """The text, the finish reason and the summary that a client receives."""
    if stream:
        frames = await (await bench(said(*text.split("|")), given)).stream()
        return text_of(frames), finish_of(frames)[-1], summary_of(frames)
    body = await (await bench(whole(text.replace("|", "")), given)).unary()
    choice = body["choices"][0]
    return choice["message"]["content"], choice["finish_reason"], body["grounding"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("kind", "hidden", "word"), HIDDEN)
async def test_unjudged_text_is_named_removed_or_blocked(kind: str, hidden: str, word: str, stream: bool) -> None:
    text, finish, summary = await reply_to(f"{TRUE}{hidden}", rules("warn"), stream=stream)
    assert (word in text, finish) == (True, "stop")
    named = [(part["kind"], text[part["start"] : part["end"]]) for part in summary["unjudged"]]
    assert [one for one, _ in named] == [kind]
    assert word in named[0][1] or word == "Take 8"
    assert summary["is_trusted"] is False
    assert summary["coverage"] < 1.0

    text, finish, summary = await reply_to(f"{TRUE}{hidden}", rules("strip"), stream=stream)
    assert (text.startswith(TRUE), word in text, finish) == (True, False, "stop")
    assert "unjudged" not in summary

    text, finish, summary = await reply_to(f"{TRUE}{hidden}", rules("block"), stream=stream)
    assert (word in text, finish, summary["action"]) == (False, "content_filter", "block")


LABELS = ["**Permanent staff**", "# Permanent staff\n\n## Leave", "Annual leave:", "Let's start with the leave."]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("mode", ["hold", "final"])
@pytest.mark.parametrize("label", LABELS)
async def test_label_is_sent_only_with_text_that_it_introduces(label: str, mode: str, stream: bool) -> None:
    given = policy(unverifiable_action="strip", stream_mode=mode, abstention_response="Ask HR.")
    begun = f"{label[:5]}|{label[5:]}"
    for end in ("", "\n\n", " "):
        text, finish, _ = await reply_to(f"{begun}{end}", given, stream=stream)
        assert (text.strip(), finish) == ("Ask HR.", "stop")
    for end in ("Would you like |more details?", "I hope |this helps!"):
        text, finish, _ = await reply_to(f"{begun}\n\n|{end}", given, stream=stream)
        assert (text.strip(), finish) == (end.replace("|", ""), "stop")
    text, finish, summary = await reply_to(f"{begun}\n\n|{TRUE}", given, stream=stream)
    assert (text, finish, summary["coverage"]) == (f"{label}\n\n{TRUE}", "stop", 1.0)


async def test_label_is_sent_at_once_in_live_mode_and_judged_at_the_end() -> None:
    given = policy(unverifiable_action="block", max_unverifiable_ratio=0.0, stream_mode="live")
    stream = await (await bench(said("**Permanent ", "staff**\n\n", "I hope this helps!"), given)).stream()
    assert (text_of(stream), finish_of(stream)) == ("**Permanent staff**\n\nI hope this helps!", ["content_filter"])


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("other", "trusted"),
    [
        ({}, True),
        ({"tool_calls": [CALL]}, True),
        ({"refusal": "Take 8."}, False),
        ({"audio": {"id": "a", "data": "AAAA", "transcript": "Take 8.", "expires_at": 1}}, False),
        ({"reasoning_content": "Take 8."}, True),
    ],
)
async def test_reply_with_unchecked_content_is_not_trusted(other: dict[str, Any], trusted: bool, stream: bool) -> None:
    if stream:
        made = sse(chunk({"content": TRUE}), *([chunk(other)] if other else []), chunk({}, "stop"))
        summary = summary_of(await (await bench(made, rules("warn"))).stream())
    else:
        summary = (await (await bench(whole(TRUE, **other), rules("warn"))).unary())["grounding"]
    assert (summary["verdict"], summary["is_trusted"]) == ("supported", trusted)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("action", ["strip", "block"])
async def test_invisible_characters_are_removed(action: str, stream: bool) -> None:
    text, finish, _ = await reply_to(TRUE.replace(" ", " \u200b\U000e0041", 1), rules(action), stream=stream)
    assert (text, finish) == (TRUE, "stop")


@pytest.mark.parametrize("stream", [True, False])
async def test_emptied_reply_is_replaced(stream: bool) -> None:
    given = rules("strip", abstention_response="Ask HR.")
    text, finish, _ = await reply_to("```\nrm -rf lamp\n```\n", given, stream=stream)
    assert (text.strip(), finish) == ("Ask HR.", "stop")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("mode", ["hold", "final"])
@pytest.mark.parametrize("documents", [None, []])
async def test_no_statement_is_sent_without_documents(documents: list[Any] | None, mode: str, stream: bool) -> None:
    given = rules("block", abstention_response="Ask HR.", stream_mode=mode)
    answer = said("Hello! ", TRUE) if stream else whole(f"Hello! {TRUE}")
    at = await bench(answer, given)
    if stream:
        data = await at.stream_bytes(documents=documents)
        assert TRUE.encode() not in data
        assert b"Ask HR." in data
    else:
        body = await at.unary(documents=documents)
        assert body["choices"][0]["message"]["content"] == "Ask HR."
    greeting = await (await bench(said("Hello! ", "How can I help you?"), given)).stream(documents=documents)
    assert text_of(greeting) == "Hello! How can I help you?"


async def test_held_stream_without_documents_is_never_live() -> None:
    given = rules("warn", stream_mode="hold")
    frames = await (await bench(said(TRUE, " ", TRUE), given)).stream(documents=None)
    texts = [text_of([frame]) for frame in frames if text_of([frame])]
    ends = [index for index, frame in enumerate(frames) if finish_of([frame])]
    assert "".join(texts) == f"{TRUE} {TRUE}"
    assert ends


@pytest.mark.parametrize("stream", [True, False])
async def test_unterminated_last_piece_is_judged(stream: bool) -> None:
    text = "Permanent staff receive 40 days of annual"
    given = policy(contradiction_action="block", min_citations=0, max_unsupported_claims=0, action_on_violation="block")
    if stream:
        frames = await (await bench(sse(chunk({"content": text}), chunk({}, "length")), given)).stream()
        assert "40 days" not in json.dumps(frames)
        assert finish_of(frames) == ["content_filter"]
    else:
        answer = whole(text)
        body = await (await bench(answer, given)).unary()
        assert "40 days" not in body["choices"][0]["message"]["content"]


async def test_blocking_rule_decided_at_the_end_holds_the_reply() -> None:
    given = policy(min_citations=3, action_on_violation="block", min_grounding_score=0.0)
    frames = await (await bench(said(TRUE, " ", TRUE), given)).stream()
    assert TRUE not in text_of(frames)
    assert "min_citations" in summary_of(frames)["final_because"]


async def test_coverage_below_the_minimum_is_a_violation() -> None:
    given = rules("warn", min_coverage=0.9, action_on_violation="block")
    frames = await (await bench(said(TRUE, "\n\n```\nrm -rf lamp lamp lamp lamp\n```\n"), given)).stream()
    assert finish_of(frames) == ["content_filter"]
    assert "lamp" not in text_of(frames)


async def test_reported_scores_are_decided_before_the_call() -> None:
    given = policy(abstention_threshold=0.8, action_on_violation="block", abstention_response="Ask HR.")
    for stream in (True, False):
        at = await bench(said(TRUE) if stream else whole(TRUE), given)
        fields: dict[str, Any] = {"grounding": {"reported": {"output_confidence": 0.3}}}
        if stream:
            frames = await at.stream(**fields)
            assert (text_of(frames), finish_of(frames)) == ("Ask HR.", ["content_filter"])
        else:
            body = await at.unary(**fields)
            assert body["choices"][0]["message"]["content"] == "Ask HR."
            assert body["choices"][0]["finish_reason"] == "content_filter"
        assert len(at.forwarded) == 0
        assert at.event.request.status == "blocked"


SLIPPED = [
    "Thank you for your question, leave permanent staff.",
    "I hope this helps and receive annual leave days.",
    "Contact us within 25 days.",
    "Let's receive annual days of leave and 25 staff.",
    "# Receive no annual leave",
    "Annual leave is not covered by the policy.",
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("slipped", SLIPPED)
async def test_claims_next_to_harmless_words_are_judged(slipped: str, stream: bool) -> None:
    given = rules("block", max_unsupported_claims=0, action_on_violation="block")
    text, finish, _ = await reply_to(f"{TRUE}\n\n{slipped}\n", given, stream=stream)
    assert (slipped in text, finish) == (False, "content_filter")


@pytest.mark.parametrize("stream", [True, False])
async def test_courtesies_around_a_true_statement_are_sent(stream: bool) -> None:
    given = rules("block", max_unsupported_claims=0, action_on_violation="block")
    answer = (
        f"I'm sorry to hear that! {TRUE}\n\nLet me know if you need anything else, and get well soon!\n\n"
        "Kind regards,\nHR Team"
    )
    text, finish, _ = await reply_to(answer, given, stream=stream)
    assert (text, finish) == (answer, "stop")
