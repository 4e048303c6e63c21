"""Converts Markdown to the plain text that a judge reads."""

from collections.abc import Sequence

from judges.text.fragments import (
    CITATION,
    HEADING,
    ITEM,
    ROW,
    cell_fragments,
    code_fragments,
    fragments,
    spoken,
)

__all__ = ["CITATION", "HEADING", "ITEM", "ROW", "cells", "plain", "plain_code", "verbalise_row"]


def plain(text: str) -> str:
    """A sentence or block of Markdown as it would be read aloud: without markup and citations, with link texts and
    code, white space collapsed. "" if nothing is left (a rule, a marker alone)."""
    if ROW.match(text):
        return ", ".join(cell for cell in cells(text) if cell)
    return spoken(fragments(text))


def plain_code(text: str) -> str:
    """The code of a fenced block without its fences, white space collapsed."""
    return spoken(code_fragments(text, info=False))


def cells(row: str) -> list[str]:
    """The plain texts of a table row's cells; empty for the delimiter row below a header."""
    row = row.strip()
    found = [spoken(cell) for cell in cell_fragments(row, fragments(row))][1:]
    if found and not found[-1] and row.endswith("|"):
        found.pop()
    return found if any(found) else []


def verbalise_row(header: Sequence[str], values: Sequence[str]) -> str:
    """A table row in words: each cell after its column's name, if there is a name for each."""
    names = header if len(header) == len(values) else [""] * len(values)
    return "; ".join(f"{name}: {value}" if name else value for name, value in zip(names, values, strict=True) if value)
