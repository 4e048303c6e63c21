"""The fenced code blocks of the documentation, and the comments that say what is to be made of them.

A comment stands on a line of its own right before its block, and shows on no page: ``<!-- not run: needs Docker -->``.
CONTRIBUTING.md, "Code in the documentation", lists them for those who write.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "sdk").glob("*.md")])

SHELL = frozenset({"sh", "bash"})

ELSEWHERE: Mapping[str, frozenset[str]] = {
    "docs/clients/libraries.md": frozenset({"python", "js", "sh", "text"}),
    "docs/clients/integrations.md": frozenset({"python", "text"}),
    "docs/clients/sdk.md": frozenset({"python", "text"}),
    "sdk/README.md": frozenset({"python", "text"}),
}
"""Pages whose examples have separate tests that cover every block: tests/system/clients/test_page.py,
tests/system/integrations/test_page.py, sdk/tests/test_sdk_pages.py."""

COMMENTS = {
    "not run": "why it cannot be run here; its syntax, and the commands and settings it names, are checked",
    "parsed": "whose format it is; it is parsed and nothing else",
    "drawing": "no code: a picture made of characters",
    "file": "the name under which the blocks after it find it in their folder",
    "prints": "what the last block printed, as JSON",
    "given": "`NAME: TEXT`, a file that readers have of their own",
    "says": "what the model answers to the requests of this block",
    "exits": "the exit code that the block ends with",
    "status": "the HTTP status that its requests are answered with",
    "replace": "`this => that`: what is to be put in the place of what a reader has of their own",
    "demo": "the policies of the demo are in force on the rest of the page",
    # of pages with tests of their own
    "policy": "a policy that is in force for the block",
    "label": "what the judge says of a text",
    "replies": "whether the replies to its requests are streamed",
    "proxy": "it calls LiteLLM's proxy",
    "beside": "the package groundlane is installed beside the library",
}

_OPEN = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_COMMENT = re.compile(r"^ *<!-- (?P<name>[a-z ]+?)(?:: (?P<value>.*?))? -->$")


class Use(Enum):
    """What becomes of a block."""

    ELSEWHERE = "run by tests of the page's own"
    RUN = "run"
    CHECKED = "checked without being run"
    OUTPUT = "compared with what the block before it prints"
    DATA = "parsed and validated"
    NONE = "no code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block. ``where`` is page and line of its fence; ``comments`` those before it; ``use`` is None if nobody
    knows what to make of it."""

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
    """All blocks of a page's text. Raises ValueError for a fence that is never closed."""
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
            raise ValueError(f"{page}:{number + 1}: the block is not closed")
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
