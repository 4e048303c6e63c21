"""What the reader asks, which says what a short answer is about."""

from collections.abc import Mapping
from typing import Any, Final

from app.protocols.documents.content_blocks import parts_of, plain_text
from judges.claims.claim_context import last_question

_CONVERSATION: Final = 20_000
"""Characters of the user's messages that are kept to know what a reply may name."""
_LONGEST: Final = 200
"""Characters of a message without a question mark that is taken for a request as a whole."""
_ASIDE: Final = 3
"""Words behind a question that ask nothing: "Thanks!"."""
_PROMPTED: Final = 600
"""Characters from which a message is taken for a prompt that has more in it than a question: then the question stands
in its last paragraph, or in its first."""


def asked_in(body: Mapping[str, Any]) -> str:
    """The question of the last message of a user in a request to any of the APIs; "" where there is none."""
    texts = _user_texts(body)
    return question_of(texts[-1]) if texts else ""


def written_by_user(body: Mapping[str, Any], query: str | None = None) -> str:
    """All that the user wrote in a request to any of the APIs, ``query`` included; the last part of a long one."""
    texts = [*_user_texts(body), *([query] if query else [])]
    return "\n".join(texts)[-_CONVERSATION:]


def _user_texts(body: Mapping[str, Any]) -> list[str]:
    """The texts of the user's messages, in order. A message without one has the result of a tool."""
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
    """The question in a message of a user; all of one that is short and has none."""
    text = text.strip()
    if len(text) > _PROMPTED:
        paragraphs = text.split("\n\n")
        return last_question(paragraphs[-1][-_PROMPTED:]) or last_question(paragraphs[0][-_PROMPTED:])
    asked = last_question(text)
    behind = text.rpartition(asked)[2] if asked else text
    return text if len(text) <= _LONGEST and len(behind.split()) > _ASIDE else asked
