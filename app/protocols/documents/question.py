"""The user's question, which shows what a short answer is about."""

from collections.abc import Mapping
from typing import Any, Final

from app.protocols.documents.content_blocks import parts_of, plain_text
from judges.claims.claim_context import last_question

_CONVERSATION: Final = 20_000
"""Characters of the user's messages that are kept to know which names a reply may use."""
_LONGEST: Final = 200
"""Up to this many characters, a message without a question mark is a request as a whole."""
_ASIDE: Final = 3
"""Words after a question that ask nothing: "Thanks!"."""
_PROMPTED: Final = 600
"""From this many characters on, a message is a prompt that holds more than a question; the question is in its last
paragraph or in its first."""


def asked_in(body: Mapping[str, Any]) -> str:
    """The question in the user's last message, in a request to any of the APIs; "" if there is none."""
    texts = _user_texts(body)
    return question_of(texts[-1]) if texts else ""


def written_by_user(body: Mapping[str, Any], query: str | None = None) -> str:
    """Everything that the user wrote in a request to any of the APIs, including ``query``; the end of it, if it is
    long."""
    texts = [*_user_texts(body), *([query] if query else [])]
    return "\n".join(texts)[-_CONVERSATION:]


def _user_texts(body: Mapping[str, Any]) -> list[str]:
    """The texts of the user's messages, in order. A message without text has a tool result."""
    turns = next((body[name] for name in ("messages", "input", "prompt") if body.get(name) is not None), None)
    if isinstance(turns, list) and len(turns) == 1 and isinstance(turns[0], str):
        turns = turns[0]
    if isinstance(turns, str):
        return [turns]
    found = [
        _text(turn.get("content"))
        for turn in (turns if isinstance(turns, list) else ())
        if isinstance(turn, dict) and turn.get("role") == "user"
    ]
    return [text for text in found if text.strip()]


def _text(content: Any) -> str:
    if not isinstance(content, list):
        return plain_text(content)
    texts = (part.get("text") for part, _ in parts_of(content, "") if part.get("type") in ("text", "input_text"))
    return "\n".join(text for text in texts if isinstance(text, str))


def question_of(text: str) -> str:
    """The question in a user's message; the whole message if it is short and has none."""
    text = text.strip()
    if len(text) > _PROMPTED:
        paragraphs = text.split("\n\n")
        return last_question(paragraphs[-1][-_PROMPTED:]) or last_question(paragraphs[0][-_PROMPTED:])
    asked = last_question(text)
    behind = text.rpartition(asked)[2] if asked else text
    return text if len(text) <= _LONGEST and len(behind.split()) > _ASIDE else asked
