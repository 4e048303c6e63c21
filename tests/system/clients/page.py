"""The examples of ``docs/clients/libraries.md``: the code, and the output that it shows."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "clients" / "libraries.md"
_SECTION = re.compile(r"^## (?P<title>.+)$(?P<body>(?:\n(?!## ).*)*)", re.MULTILINE)
_EXAMPLE = re.compile(
    r"<!-- replies: (?P<replies>[a-z ]+) -->\n```(?P<language>\w+)\n(?P<code>.*?)```\n\n```text\n(?P<printed>.*?)```",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example of the page. ``replies``: of each request it sends, whether the reply is streamed."""

    title: str
    language: str
    code: str
    printed: str
    replies: tuple[bool, ...]


def examples() -> list[Example]:
    """All of them, in order; every section has one."""
    found = []
    for section in _SECTION.finditer(PAGE.read_text("utf-8")):
        example = _EXAMPLE.search(section["body"])
        if example is None:
            raise AssertionError(f"no example in section {section['title']!r}")
        replies = tuple(reply == "streamed" for reply in example["replies"].split())
        fields = {name: example[name] for name in ("language", "code", "printed")}
        found.append(Example(title=section["title"], replies=replies, **fields))
    return found
