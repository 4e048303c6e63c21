"""Writing documents into the prompt."""

import re
from typing import Any

from app.protocols.common.document_prompt import inject
from judges.types import Chunk

CHUNKS = [
    Chunk(id="a", text="Alpha.", relevance_score=0.2, source="a.pdf"),
    Chunk(id="b", text="Beta.", relevance_score=0.9),
    Chunk(id="c", text="Gamma.", relevance_score=0.5, title="The\nC"),
    Chunk(id="d", text="Delta."),
]
SYSTEM, USER, ASSISTANT = ({"role": role, "content": role} for role in ("system", "user", "assistant"))


def body(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)}


def test_documents_keep_their_numbers_and_the_two_most_relevant_stand_first_and_last() -> None:
    text = inject(body(USER), CHUNKS, where="system")["messages"][0]["content"]
    assert re.findall(r"^\[(\d)\]", text, re.MULTILINE) == ["2", "1", "4", "3"]
    assert "[1] a.pdf\nAlpha." in text
    assert "[3] The C\nGamma." in text


def test_a_system_message_goes_behind_those_that_are_there() -> None:
    messages = inject(body(SYSTEM, USER), CHUNKS, where="system")["messages"]
    assert [message["role"] for message in messages] == ["system", "system", "user"]
    assert messages[0] == SYSTEM


def test_user_puts_them_before_the_last_question() -> None:
    messages = inject(body(USER, ASSISTANT, USER), CHUNKS, where="user")["messages"]
    assert messages[0] == USER
    assert messages[2]["content"].endswith("\n\nuser")
    assert "Alpha." in messages[2]["content"]


def test_typed_parts_stay_as_they_are() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    (message,) = inject(body({"role": "user", "content": [image]}), CHUNKS, where="user")["messages"]
    assert message["content"][1] == image
    assert message["content"][0]["type"] == "text"


def test_without_a_user_message_one_is_added() -> None:
    assert inject(body(SYSTEM), CHUNKS, where="user")["messages"][-1]["role"] == "user"


def test_the_fence_is_new_each_time_so_that_no_document_can_close_it() -> None:
    fences = {re.findall(r"<<documents \w+>>", str(inject(body(USER), CHUNKS, where="system")))[0] for _ in range(5)}
    assert len(fences) == 5


def test_the_callers_body_is_left_alone() -> None:
    original = body(USER)
    inject(original, CHUNKS, where="user")
    assert original == body(USER)
