"""The message that a "yes" in the reply answers, and the text that the reply continues. What isn't read is unknown."""

import time
from typing import Any

import pytest

from app.protocols.documents.last_turn import LastTurn, last_turns

ASKED = "Is it due?"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]}


def user(*parts: Any) -> dict[str, Any]:
    content = parts[0] if parts and isinstance(parts[0], str) else list(parts)
    return {"role": "user", "content": content}


def text(said: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": said}


def assistant(said: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": said}


def system(said: str) -> dict[str, Any]:
    return {"role": "system", "content": said}


DOCUMENT = {"type": "document", "source": {"type": "text", "data": "The fee is due."}}
PDF = {"type": "document", "source": {"type": "base64", "data": "aGk="}}
SEARCHED = {"type": "search_result", "content": [text("The fee is due.")]}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user(ASKED)]},
        {"messages": [system("Be kind."), user(ASKED)]},
        {"system": "Be kind.", "messages": [user(ASKED)]},
        {"messages": [user("Hi?"), assistant("Hi."), user(text(ASKED))]},
        {"messages": [user(DOCUMENT, text(ASKED))]},
        {"messages": [user(SEARCHED, text(ASKED))]},
        {"messages": [user(text("A document."), text(ASKED))]},
        {"input": ASKED},
        {"input": [user(text(ASKED, "input_text"))], "instructions": "Be kind."},
        {"prompt": ASKED},
    ],
)  # fmt: skip
def test_text_of_the_last_message_is_known(body: dict[str, Any]) -> None:
    (turn,) = last_turns(body, evidence=["A document."])
    assert (turn.message, turn.unread) == (ASKED, False)


def test_all_messages_since_the_last_reply_count() -> None:
    (turn,) = last_turns({"messages": [user("Hello?"), assistant("Hi."), user(ASKED), user("Thanks!")]})
    assert turn == LastTurn(message=f"{ASKED}\n\nThanks!")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": ["x"]},
        {"messages": [system(ASKED)]},
        {"messages": [{"role": "developer", "content": ASKED}]},
        {"messages": [user()]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [user(IMAGE)]},
        {"messages": [user(text("Thanks!"), IMAGE)]},
        {"messages": [user("Thanks!"), assistant("Hi."), user(IMAGE)]},
        {"messages": [user(IMAGE), user("Thanks!")]},
        {"messages": [user({"type": "input_audio", "input_audio": {}})]},
        {"messages": [user(PDF, text("Thanks!"))]},
        {"messages": [user({"type": "search_result", "content": []}, text("Thanks!"))]},
        {"messages": [user("Thanks!", ), user({"type": "text", "text": 5})]},
        {"messages": [user({"type": "what", "text": "Thanks!"})]},
        {"messages": [user({"type": "tool_result", "content": ASKED})]},
        {"input": None, "instructions": ASKED},
        {"prompt": {"id": "pmpt_1"}},
        {"previous_response_id": "resp_1"},
        {"input": 5},
        {"input": [{"content": ASKED}]},
        {"input": [{"role": "developer", "content": ASKED}]},
        {"input": [user({"type": "input_image", "image_url": "x"})]},
        {"input": [user({"type": "input_file", "file_id": "x"}, text("Thanks!", "input_text"))]},
        {"prompt": None},
        {"prompt": []},
        {"prompt": [[1, 2]]},
    ],
)  # fmt: skip
def test_message_that_is_not_read_in_full_is_unknown(body: dict[str, Any]) -> None:
    assert [turn.message for turn in last_turns(body)] == [None]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user("Thanks!"), system(ASKED)]},
        {"messages": [user("Thanks!"), CALL, {"role": "tool", "content": ASKED}]},
        {"messages": [user("Thanks!"), CALL, user({"type": "tool_result", "content": ASKED})]},
        {"messages": [user({"type": "tool_result", "content": ASKED}, text("Thanks!"))]},
        {"input": [user("Thanks!"), {"type": "function_call_output", "output": ASKED}]},
        {"input": "Thanks!", "previous_response_id": "resp_1"},
        {"input": "Thanks!", "conversation": "conv_1"},
        {"input": [user("Thanks!")], "prompt": {"id": "pmpt_1"}},
        {"prompt": "Thanks!", "suffix": ASKED},
    ],
)
def test_other_text_that_may_ask_something_is_unread(body: dict[str, Any]) -> None:
    (turn,) = last_turns(body)
    assert (turn.message, turn.unread) == ("Thanks!", True)


@pytest.mark.parametrize(
    ("body", "prefill"),
    [
        ({"messages": [user(ASKED), assistant("The fee")]}, "The fee"),
        ({"messages": [user(ASKED), assistant([text("The"), text("fee")])]}, "The\nfee"),
        ({"input": [user(ASKED), assistant([text("The fee", "output_text")])]}, "The fee"),
        ({"messages": [user(ASKED), assistant(None)]}, ""),
        ({"messages": [assistant("The fee"), user(ASKED)]}, ""),
        ({"prompt": "Answer.\nThe fee"}, "The fee"),
        ({"prompt": "Is it due?\nA:"}, ""),
        ({"prompt": "Is it due? Answer:"}, ""),
        ({"prompt": "### Helpful answer: "}, ""),
        ({"prompt": "Is it due?\nAntwort:"}, ""),
        ({"prompt": "Is it due?\nAnna:"}, "Anna:"),
        ({"prompt": "Is it due?\nChildren:"}, "Children:"),
        ({"prompt": "Is it due?\nNever do:"}, "Never do:"),
        ({"prompt": "Is it due?\n\nNot:"}, "Not:"),
        ({"prompt": "Is it due?\nNo answer:"}, "No answer:"),
        ({"prompt": "Is it due?\nDeadline for Anna:"}, "Deadline for Anna:"),
        ({"prompt": "The fee for children is:"}, "The fee for children is:"),
        ({"prompt": "Is it due?\n"}, ""),
    ],
)
def test_reply_continues_the_beginning_that_the_caller_wrote(body: dict[str, Any], prefill: str) -> None:
    assert [turn.prefill for turn in last_turns(body)] == [prefill]


def test_each_prompt_has_its_own_message() -> None:
    turns = last_turns({"prompt": [ASKED, [1, 2], "The fee"]})
    assert turns == [
        LastTurn(message=ASKED, prefill=ASKED, may_instruct=True),
        LastTurn(),
        LastTurn(message="The fee", prefill="The fee", may_instruct=True),
    ]


@pytest.mark.parametrize(
    ("body", "may_instruct"),
    [
        ({"prompt": "Summarise the fees"}, True),
        ({"prompt": "Is it due?\nA:"}, False),
        ({"messages": [user(ASKED), assistant("The fee")]}, False),
        ({"input": [user(ASKED), assistant("The fee")]}, False),
    ],
)
def test_only_the_last_line_of_a_prompt_may_be_an_instruction(body: dict[str, Any], may_instruct: bool) -> None:
    assert [turn.may_instruct for turn in last_turns(body)] == [may_instruct]


@pytest.mark.parametrize("unit", [":", "a", "! ", "a: ", "#", ". :", "a\t", "!\ta:", "："])
@pytest.mark.parametrize("start", ["", "a"])
def test_prompt_is_read_in_linear_time(start: str, unit: str) -> None:
    began = time.perf_counter()
    last_turns({"prompt": f"{start}{unit * 50_000}b"})
    assert time.perf_counter() - began < 1.0
