"""Patterns of link definitions (``[label]: target "title"``) and of destinations (``(target "title")``)."""

import re
from typing import Final

_SPACE = r"[ \t]*+(?:(?:\r\n?|\n)[ \t>]*+)?"
"""White space in a link or definition: at most one line end, and the block quote marks (``>``) of the line after it."""
_CONTAINERS = r"(?:[ \t]++|[>\-*+•◦‣▪–—]|\(?(?:\d{1,9}|[A-Za-z])(?:[.)]|\Z)|\(\Z)*+"
_ANGLED = r"<(?:[^<>\\\r\n]++|\\.?)*+"
_QUOTED = [rf"{mark}(?:[^{mark}\\\n]++|\\[\s\S]?|\n(?![ \t>]*+\n))*+" for mark in "\"'"]
_IN_PARENTHESES = r"\((?:[^()\\\n]++|\\[\s\S]?|\n(?![ \t>]*+\n))*+"
_TITLE = rf"(?:{_QUOTED[0]}(?:\"|\Z)|{_QUOTED[1]}(?:'|\Z)|{_IN_PARENTHESES}(?:\)|\Z))"
_LABEL = r"(?:[^\[\]\\\n]++|\\[\s\S]?|\n(?![ \t>]*+\n))++"
_DEFINED = (
    rf"(?P<label>\[?{_LABEL}\]):{_SPACE}(?P<target>{_ANGLED}>|(?!<)[^ \t\r\n]++)"
    rf"(?P<title>{_SPACE}{_TITLE}(?=[ \t]*(?:[\r\n]|\Z)))?[ \t]*(?:\r\n?|\n|\Z)"
)
LINK_DEFINITIONS: Final = re.compile(rf"(?:(?:^|(?<=\r)){_CONTAINERS}(?=\[)|\A){_DEFINED}", re.MULTILINE)
"""Matches each link definition (``[label]: target "title"``) on lines of its own, and the end of a definition that
begins in another sentence. Browsers don't show the text of a definition."""
LINK_DEFINITION: Final = re.compile(rf"{_CONTAINERS}(?=\[){_DEFINED}")
OPEN_LINK_DEFINITION: Final = re.compile(
    rf"{_CONTAINERS}(?:\[(?:{_LABEL}(?:\](?::{_SPACE}(?:(?:{_ANGLED}>?|(?!<)[^ \t\r\n]++)"
    rf"(?:{_SPACE}(?:(?:{_QUOTED[0]}\"?|{_QUOTED[1]}'?|{_IN_PARENTHESES}\)?)[ \t]*+)?)?)?)?)?)?)?"
)
"""Matches as much of a text as may be the beginning of a link definition."""
FOOTNOTE: Final = re.compile(r"\s{0,20}\[\^[^\[\]\n]{1,60}\]:[ \t]{0,20}[^\s./:#<>]{1,200}\s*\Z")
"""A one-word footnote, which is read like any other text."""

_NESTED = r"(?:[^() \t\r\n\\]++|\\\S?)"
for _ in range(3):
    _NESTED = rf"(?:[^() \t\r\n\\]++|\\\S?|\({_NESTED}*+\))"
DESTINATION: Final = re.compile(
    rf"\({_SPACE}(?P<target>{_ANGLED}>|(?!<){_NESTED}*+)(?P<title>{_SPACE}{_TITLE})?{_SPACE}(?:\)|\Z)"
)
REFERENCE: Final = re.compile(r"\[[^\[\]]{0,1000}\]")
DEEP_DESTINATION: Final = re.compile(r"\(\s*+(?:[^\s()]*+[()]){4}")
"""A target that may be valid even though ``DESTINATION`` doesn't match it."""
