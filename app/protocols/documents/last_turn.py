"""Reads what comes right before a reply: the message that a "yes" in the reply would answer, and the text that the
reply continues.

Anything that isn't known to be read in full counts as unread: other kinds of content, and turns that aren't the user's.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from app.protocols.documents.document_extraction import EVIDENCE, TOOL_RESULT, parts_of, plain_text, text_of_block

_TEXTS: Final = ("text", "input_text", "output_text")
_HISTORY: Final = ("previous_response_id", "conversation", "prompt")
"""Responses API fields that refer to text outside the request."""
_ANSWER: Final = "a|ai|answer|assistant|bot|output|reply|response|antwort|antwoord|réponse|respuesta|resposta|risposta"
_LABEL: Final = re.compile(
    r"(?:\A|[.!?？]\s)[^\w.!?？]*+(?:(?:final|helpful|the|your)[ \t])?"
    rf"(?:{_ANSWER}|回答|答案|答)(?=[^\w.!?？]*[:：])\W*+\Z",
    re.IGNORECASE,
)
"""The end of a prompt that only introduces the answer ("A:", "### Helpful answer:"). Takes linear time."""


class LastTurn(Struct, frozen=True, kw_only=True):
    """What comes right before a reply. ``message`` contains the user's latest messages, or None if part of them can't
    be read. ``unread`` means that a "yes" could also answer something other than these messages. ``prefill`` is the
    text that the reply continues. ``may_instruct`` means that ``prefill`` may also be an instruction that the reply
    follows."""

    message: str | None = None
    unread: bool = False
    prefill: str = ""
    may_instruct: bool = False


UNKNOWN: Final = LastTurn()


def last_turns(body: Mapping[str, Any], *, evidence: Sequence[str] = ()) -> Sequence[LastTurn]:
    """Return the last turn of a request to any of the APIs. For plain completions, return one for each prompt.

    ``evidence`` contains the texts of the documents. A text part that is one of them isn't part of the message.
    """
    if isinstance(turns := body.get("messages"), list):
        return (_last_of(turns, frozenset(evidence)),)
    if (given := body.get("input")) is not None:
        unread = any(body.get(name) is not None for name in _HISTORY)
        if isinstance(given, str):
            return (LastTurn(message=given, unread=unread),)
        last = _last_of(given, frozenset(evidence)) if isinstance(given, list) else UNKNOWN
        return (replace(last, unread=last.unread or unread),)
    prompts = body.get("prompt")
    unread = bool(body.get("suffix"))
    given = prompts if isinstance(prompts, list) and prompts else [prompts]
    return [_of_prompt(prompt, unread) for prompt in given]


def _of_prompt(prompt: Any, unread: bool) -> LastTurn:
    if not isinstance(prompt, str):
        return UNKNOWN
    line = prompt.rpartition("\n")[2]
    prefill = "" if _LABEL.search(line) else line
    return LastTurn(message=prompt, unread=unread, prefill=prefill, may_instruct=prefill != "")


def _last_of(turns: Sequence[Any], evidence: frozenset[str]) -> LastTurn:
    """Return the last turn of a conversation: the user's messages after the assistant's last one. Later turns that
    aren't the user's count as unread, except for the beginning of the reply."""
    prefill, unread = "", False
    messages: list[str] = []
    for place in range(len(turns) - 1, -1, -1):
        turn = turns[place] if isinstance(turns[place], dict) else {}
        if turn.get("role") != "user":
            if messages:
                break
            if place == len(turns) - 1 and turn.get("role") == "assistant":
                prefill = plain_text(turn.get("content"), types=_TEXTS)
            else:
                unread = True
            continue
        content = turn.get("content")
        text = content if isinstance(content, str) else _text_of(content, evidence)
        if text is None:
            return LastTurn(unread=unread, prefill=prefill)
        unread = unread or (text is not content and _has_results(content))
        if text.strip():
            messages.append(text)
    return LastTurn(message="\n\n".join(reversed(messages)) if messages else None, unread=unread, prefill=prefill)


def _text_of(content: Any, evidence: frozenset[str]) -> str | None:
    """Return the text of a user's message that is a list of parts, without documents and tool results. Return None if
    it has other content."""
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _TEXTS and isinstance(part.get("text"), str):
            texts += [part["text"]] if part["text"] not in evidence else []
        elif kind != TOOL_RESULT and not (kind in EVIDENCE and _is_readable(part)):
            return None
    return "\n".join(texts)


def _has_results(content: Any) -> bool:
    return any(part.get("type") == TOOL_RESULT for part, _ in parts_of(content, ""))


def _is_readable(block: Mapping[str, Any]) -> bool:
    """Return whether a document block contains text, which then counts as evidence."""
    return isinstance(block.get("document"), dict) or bool(text_of_block(block).strip())
