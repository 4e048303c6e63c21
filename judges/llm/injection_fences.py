"""Marks round everything that a user, a model or a document wrote, so that a judge can tell it from its instructions.

The marks hold a nonce that is new for each call, so that no text can be written to close them; what looks like one of
them, or like the control tokens of a chat template, is made to look like it no more.
"""

import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
"""Control characters, directional marks and tags: text that people do not see and models read all the same."""

_MARK = re.compile(r"[<＜﹤〈⟨](?=\s*[/／∕]?\s*d\W?a\W?t\W?a\b)", re.IGNORECASE)
_TEMPLATE = re.compile(
    r"<(?=\|)|(?<=\|)>|<(?=/?(?:s|bos|eos|think|start_of_turn|end_of_turn|user|assistant|system)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS)\])|<(?=</?SYS>>)",
    re.IGNORECASE,
)
"""What servers that turn chats into text may take for the end of a turn."""


class Fence:
    """The marks of one call. ``nonce`` must be new and not to be guessed."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce

    def wrap(self, kind: str, text: str) -> str:
        """``text`` between marks that name it a ``kind``, which is ours and not text of others."""
        return f"<data-{self.nonce} {kind}>\n{self.defuse(text)}\n</data-{self.nonce}>"

    def defuse(self, text: str) -> str:
        """``text`` without what is unseen, and with what reads like a mark or a control token no longer one."""
        text = _INVISIBLE.sub("", text).replace(self.nonce, "…")
        return _TEMPLATE.sub(_softer, _MARK.sub("‹", text))


def _softer(found: re.Match[str]) -> str:
    return {"<": "‹", ">": "›", "[": "("}[found[0]]
