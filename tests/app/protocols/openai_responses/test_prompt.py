"""The prompt of a Responses request."""

from typing import Any

import pytest

from app.protocols.openai_responses.prompt import inject, prompt_text
from judges.types import Chunk

CHUNKS = [Chunk(id="a", text="Alpha.")]
IMAGE = {"type": "input_image", "image_url": "data:"}


def user(content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


def test_system_position_follows_the_instructions() -> None:
    made = inject({"instructions": "Be kind.", "input": "Q"}, CHUNKS, where="system")
    assert made["instructions"].startswith("Be kind.\n\nAnswer from the numbered documents")
    assert "[1]\nAlpha." in made["instructions"]
    assert made["input"] == "Q"


def test_system_position_creates_missing_instructions() -> None:
    made = inject({"input": [user("Q")]}, CHUNKS, where="system")
    assert made["instructions"].startswith("Answer from")
    assert made["input"] == [user("Q")]


@pytest.mark.parametrize(("given", "kept"), [("Q", [{"role": "user", "content": "Q"}]), ([user("Q")], [user("Q")])])
def test_system_position_precedes_the_input_if_instructions_are_items(given: Any, kept: list[Any]) -> None:
    made = inject({"instructions": [{"role": "system"}], "input": given}, CHUNKS, where="system")
    assert made["instructions"] == [{"role": "system"}]
    assert made["input"][0]["role"] == "developer"
    assert made["input"][1:] == kept


def test_user_position_precedes_the_text() -> None:
    assert inject({"input": "Q"}, CHUNKS, where="user")["input"].endswith("\n\nQ")
    assert "Alpha." in inject({}, CHUNKS, where="user")["input"]


def test_user_position_precedes_the_last_question_of_a_conversation() -> None:
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    items = [user("old"), user([IMAGE]), output]
    first, asked, last = inject({"input": items}, CHUNKS, where="user")["input"]
    assert (first, last) == (user("old"), output)
    assert asked["content"][0]["type"] == "input_text"
    assert "Alpha." in asked["content"][0]["text"]
    assert asked["content"][1] == IMAGE
    (plain,) = inject({"input": [user("Q")]}, CHUNKS, where="user")["input"]
    assert plain["content"].endswith("\n\nQ")


def test_user_position_adds_a_missing_message() -> None:
    made = inject({"input": [{"type": "item_reference", "id": "x"}]}, CHUNKS, where="user")
    assert made["input"][-1]["role"] == "user"


def test_request_body_of_the_caller_is_not_modified() -> None:
    body = {"instructions": "I", "input": [user([IMAGE])]}
    inject(body, CHUNKS, where="user")
    inject(body, CHUNKS, where="system")
    assert body == {"instructions": "I", "input": [user([IMAGE])]}


def test_all_prompt_text_counts() -> None:
    items = [
        user("one"),
        user([{"type": "input_text", "text": "two"}, IMAGE]),
        {"type": "function_call", "arguments": "three"},
        {"type": "function_call_output", "output": [{"type": "input_text", "text": "four"}]},
        {"type": "file_search_call", "results": [{"text": "five"}]},
    ]
    assert prompt_text({"instructions": "zero", "input": items}) == "zero\none\ntwo\nthree\nfour\nfive"
    assert prompt_text({"input": "Q"}) == "Q"
    assert prompt_text({"previous_response_id": "resp_1"}) == ""
