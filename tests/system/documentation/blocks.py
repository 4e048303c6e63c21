"""The fenced code blocks of the documentation, and the comments that say how to test them.

A comment is on the line before its block and isn't shown on the page: ``<!-- not run: needs Docker -->``.
CONTRIBUTING.md, "Code in the documentation", lists the comments for authors.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("sdk*/*.md")])

SHELL = frozenset({"sh", "bash"})

ELSEWHERE: Mapping[str, frozenset[str]] = {
    "docs/clients/libraries.md": frozenset({"python", "js", "sh", "text"}),
    "docs/clients/integrations.md": frozenset({"python", "text"}),
    "docs/clients/javascript.md": frozenset({"ts", "text"}),
    "docs/clients/sdk.md": frozenset({"python", "text"}),
    "sdk-js/README.md": frozenset({"ts", "text"}),
    "sdk/README.md": frozenset({"python", "text"}),
}
"""Pages whose examples have separate tests that cover every block: tests/system/clients/test_page.py and
javascript, tests/system/integrations/test_page.py, sdk/tests/test_sdk_pages.py."""

COMMENTS = {
    "not run": "why it can't be run here; its syntax, commands and settings are checked",
    "parsed": "whose format it is; it is only parsed",
    "drawing": "not code: a drawing made of characters",
    "file": "the name under which it is saved for the blocks after it",
    "prints": "the output of the last block, as JSON",
    "given": "`NAME: TEXT`, a file that readers are assumed to have",
    "says": "the model's answer to the requests of this block",
    "exits": "the expected exit code of the block",
    "status": "the expected HTTP status of its requests",
    "replace": "`this => that`: replaces a placeholder for something that readers have",
    "demo": "the policies of the demo are in force on the rest of the page",
    # on pages with separate tests
    "policy": "a policy in force for the block",
    "label": "the judge's verdict on a text",
    "replies": "whether the replies to its requests are streamed",
    "proxy": "it calls the LiteLLM proxy",
    "beside": "the package groundlane is installed next to the library",
}

_OPEN = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_COMMENT = re.compile(r"^ *<!-- (?P<name>[a-z ]+?)(?:: (?P<value>.*?))? -->$")


class Use(Enum):
    """How a block is tested."""

    ELSEWHERE = "run by separate tests of the page"
    RUN = "run"
    CHECKED = "checked without being run"
    OUTPUT = "compared with the output of the block before it"
    DATA = "parsed and validated"
    NONE = "not code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block. ``where``: page and line of its fence. ``comments``: the comments before it. ``use``: None if it is
    unknown how to test it."""

    page: str
    line: int
    language: str
    code: str
    comments: Mapping[str, str]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def use(self) -> Use | None:
        if self.language in ELSEWHERE.get(self.page, ()):
            return Use.ELSEWHERE
        if "drawing" in self.comments:
            return Use.NONE
        if "not run" in self.comments:
            return Use.CHECKED if self.comments["not run"] else None
        return _USES.get(self.language)


_USES = {
    "python": Use.RUN,
    "sh": Use.RUN,
    "bash": Use.RUN,
    "text": Use.OUTPUT,
    "json": Use.DATA,
    "jsonl": Use.DATA,
    "toml": Use.DATA,
    "yaml": Use.DATA,
}


def read_blocks(text: str, page: str) -> list[Block]:
    """All blocks of a page's text. Raises ValueError for an unclosed fence."""
    found = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        opened = _OPEN.match(lines[number])
        if opened is None:
            number += 1
            continue
        end = next(
            (i for i in range(number + 1, len(lines)) if lines[i].strip() == opened["fence"]),
            None,
        )
        if end is None:
            raise ValueError(f"{page}:{number + 1}: the block isn't closed")
        found.append(
            Block(
                page=page,
                line=number + 1,
                language=opened["info"].split()[0] if opened["info"].strip() else "",
                code=dedent("\n".join(lines[number + 1 : end]) + "\n"),
                comments=_comments(lines, number),
            )
        )
        number = end + 1
    return found


def _comments(lines: list[str], number: int) -> dict[str, str]:
    found: dict[str, str] = {}
    while number and (comment := _COMMENT.match(lines[number - 1])):
        number -= 1
        known = [found[comment["name"]]] if comment["name"] in found else []
        found[comment["name"]] = "\n".join([comment["value"] or "", *known])
    return found


def blocks_of(page: Path) -> list[Block]:
    return read_blocks(page.read_text("utf-8"), str(page.relative_to(ROOT)))


ALL = [block for page in PAGES for block in blocks_of(page)]
