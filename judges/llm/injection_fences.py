"""Puts fences around all text from users, models and documents, so that the LLM can distinguish that text from its
instructions.

Each call's fences contain a new nonce, so no text can close them. Text that looks like a fence or like the control
tokens of a chat template is made harmless.
"""

import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
"""Control characters, directional marks and tags, which people can't see but models read."""

_MARK = re.compile(r"[<＜﹤〈⟨](?=\s*[/／∕]?\s*d\W?a\W?t\W?a\b)", re.IGNORECASE)
_TEMPLATE = re.compile(
    r"<(?=\|)|(?<=\|)>|<(?=/?(?:s|bos|eos|think|start_of_turn|end_of_turn|user|assistant|system)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS)\])|<(?=</?SYS>>)",
    re.IGNORECASE,
)
"""Text that a server may mistake for the end of a turn when it renders a chat with a template."""


class Fence:
    """The fence for one call. ``nonce`` must be fresh and unpredictable."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce

    def wrap(self, kind: str, text: str) -> str:
        """Enclose ``text`` in a fence labelled ``kind``, which must not come from untrusted input."""
        return f"<data-{self.nonce} {kind}>\n{self.defuse(text)}\n</data-{self.nonce}>"

    def defuse(self, text: str) -> str:
        """Remove invisible characters from ``text``, and make fences and control tokens harmless."""
        text = _INVISIBLE.sub("", text).replace(self.nonce, "…")
        return _TEMPLATE.sub(_softer, _MARK.sub("‹", text))


def _softer(found: re.Match[str]) -> str:
    return {"<": "‹", ">": "›", "[": "("}[found[0]]
