"""Finds the user's question in the messages of a request. A question that may not have been read in full counts as
unknown."""

from collections.abc import Mapping, Sequence
from typing import Any


def last_question(messages: Sequence[Any]) -> str | None:
    """Return the text of the user's messages at the end of ``messages``, which are in Chat Completions format.

    Return None if the question isn't known, because the last message isn't the user's (but, for example, a tool result
    or the beginning of the reply) or because one of the user's messages has a part that isn't text, such as an image.
    """
    found: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, Mapping) or message.get("role") != "user":
            break
        text = _text(message.get("content"))
        if text is None:
            return None
        found.append(text)
    return "\n\n".join(reversed(found)) if found else None


def _text(content: Any) -> str | None:
    """Return the text of a message's ``content`` (a string or a list of parts), or None if it contains anything but
    text."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part for part in parts]
    known = [text for text in texts if isinstance(text, str)]
    return "\n".join(known) if len(known) == len(texts) else None
