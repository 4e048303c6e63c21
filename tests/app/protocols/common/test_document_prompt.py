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


def test_documents_keep_their_numbers_with_the_most_relevant_first_and_last() -> None:
    text = inject(body(USER), CHUNKS, where="system")["messages"][0]["content"]
    assert re.findall(r"^\[(\d)\]", text, re.MULTILINE) == ["2", "1", "4", "3"]
    assert "[1] a.pdf\nAlpha." in text
    assert "[3] The C\nGamma." in text


def test_system_position_follows_existing_system_messages() -> None:
    messages = inject(body(SYSTEM, USER), CHUNKS, where="system")["messages"]
    assert [message["role"] for message in messages] == ["system", "system", "user"]
    assert messages[0] == SYSTEM


def test_user_position_precedes_the_last_question() -> None:
    messages = inject(body(USER, ASSISTANT, USER), CHUNKS, where="user")["messages"]
    assert messages[0] == USER
    assert messages[2]["content"].endswith("\n\nuser")
    assert "Alpha." in messages[2]["content"]


def test_typed_parts_stay_as_they_are() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    (message,) = inject(body({"role": "user", "content": [image]}), CHUNKS, where="user")["messages"]
    assert message["content"][1] == image
    assert message["content"][0]["type"] == "text"


def test_user_message_is_added_if_there_is_none() -> None:
    assert inject(body(SYSTEM), CHUNKS, where="user")["messages"][-1]["role"] == "user"


def test_fence_is_random_so_that_documents_cannot_close_it() -> None:
    fences = {re.findall(r"<<documents \w+>>", str(inject(body(USER), CHUNKS, where="system")))[0] for _ in range(5)}
    assert len(fences) == 5


def test_request_body_of_the_caller_is_not_modified() -> None:
    original = body(USER)
    inject(original, CHUNKS, where="user")
    assert original == body(USER)
