from typing import Any

import pytest

from app.protocols.documents.parsed_request import question_of, title_in, user_texts

ASKED = "What does the Team plan cost?"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": ASKED}]},
        {"messages": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hi. What can I do?"},
                      {"role": "user", "content": [{"type": "text", "text": ASKED}, {"type": "image_url"}]}]},
        {"messages": [{"role": "user", "content": ASKED}, {"role": "tool", "content": "Is it 5?"}]},
        {"input": ASKED},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": ASKED}]}]},
        {"prompt": f"Question: {ASKED}\nAnswer:"},
        {"prompt": [ASKED]},
        {"messages": None, "input": ASKED},
        {"messages": [{"role": "user", "content": ASKED}, {"role": "user", "content": [{"type": "tool_result"}]}]},
    ],
)  # fmt: skip
def test_question_is_the_last_user_message(body: dict[str, Any]) -> None:
    assert question_of(user_texts(body)[-1]) == ASKED
    assert title_in(body) == ASKED


@pytest.mark.parametrize(
    "body",
    [
        {}, {"messages": []}, {"messages": None}, {"messages": ["x"]}, {"messages": [{"role": "assistant"}]},
        {"messages": [{"role": "user", "content": None}]}, {"messages": [{"role": "user", "content": 5}]},
        {"input": 5}, {"prompt": ["Is it?", "Is it not?"]}, {"prompt": [1, 2]}, {"prompt": [1]},
    ],
)  # fmt: skip
def test_body_without_a_user_message_has_no_question(body: dict[str, Any]) -> None:
    assert [question_of(text) for text in user_texts(body)] in ([], [""])


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Tell me about the Team plan", "Tell me about the Team plan"),
        ("We have 5 people. Is it enough? Thanks!", "Is it enough?"),
        ("Is it 4.5 euros?", "Is it 4.5 euros?"),
        ("**Question:** is it new?", "is it new?"),
        ("Ist es neu？", "Ist es neu？"),
        ("10:30 train platform?", "10:30 train platform?"),
        ("See https://x.org/a?b=1 and tell me of Pro", "See https://x.org/a?b=1 and tell me of Pro"),
        ("Is Basic 10 euros? And what does the Pro plan cost", "Is Basic 10 euros? And what does the Pro plan cost"),
        ("Go on.", ""),
        (" ", ""),
        ("word " * 60, ""),
        (f"Use the context.\n\n{'It is a plan. Why not? ' * 40}\n\nQuestion: {ASKED}", ASKED),
        (f"{ASKED}\n\n{'It is a plan. Why not? ' * 40}\n\nAnswer:", ASKED),
        (f"Use it.\n\n{'It is a plan. Why not? ' * 40}\n\nAnswer:", ""),
    ],
)  # fmt: skip
def test_question_of_a_messages_request(text: str, asked: str) -> None:
    assert question_of(text) == asked


def test_very_long_texts() -> None:
    assert question_of("a" * 5_000_000) == ""
    assert question_of("ab? " * 140) == "ab?"
