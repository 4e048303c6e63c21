"""Prints verdicts as plain lines, with colours if stdout is a terminal."""

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import typer

_MARKS = {
    "supported": ("✓", "green"),
    "contradicted": ("✗", "red"),
    "unverifiable": ("?", "yellow"),
    "not_a_claim": ("·", "bright_black"),
}
_ACTIONS = {"allow": "green", "warn": "yellow", "drop": "yellow", "block": "red"}
_INDENT = 16


class Screen:
    """Writes to stdout. Colours are off if stdout is not a terminal or ``NO_COLOR`` is set."""

    def __init__(self) -> None:
        self._color = None if not os.environ.get("NO_COLOR") else False
        self._width = min(shutil.get_terminal_size((100, 24)).columns, 100)
        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
        self._ascii = not encoding.startswith("utf")

    def title(self, text: str) -> None:
        self.line()
        self._echo(typer.style(text, bold=True))

    def paragraph(self, text: str) -> None:
        self._echo(textwrap.fill(text, self._width))

    def line(self, text: str = "") -> None:
        self._echo(text)

    def field(self, name: str, text: str, *, color: str | None = None) -> None:
        """Print ``name`` on the left, and ``text`` wrapped to the right of it."""
        wrapped = textwrap.wrap(text, self._width - _INDENT) or [""]
        label = typer.style(f"  {name:<{_INDENT - 2}}", dim=True)
        self._echo(label + typer.style(wrapped[0], fg=color))
        for line in wrapped[1:]:
            self._echo(" " * _INDENT + typer.style(line, fg=color))

    def command(self, text: str) -> None:
        """Print a command without wrapping it, so that it can be copied."""
        self._echo(f"  {'try it':<{_INDENT - 2}}" + typer.style(text, fg="cyan"))

    def claim(self, claim: Mapping[str, Any]) -> None:
        """Print a claim's verdict and the evidence for it."""
        verdict = str(claim.get("verdict"))
        mark, color = _MARKS.get(verdict, ("-", "white"))
        parts = [f"{mark} {verdict}"]
        if isinstance(confidence := claim.get("confidence"), int | float):
            parts.append(f"{confidence:.2f}")
        if reason := claim.get("reason"):
            parts.append(f"({reason})")
        self.field("", " ".join(parts), color=color)
        if verdict != "unverifiable" and isinstance(source := claim.get("best_source"), Mapping):
            name = source.get("source") or source.get("document_id") or source.get("chunk_id")
            self.field("", f'{name}: "{_squeeze(source)}"')

    def verdict(self, action: str, text: str) -> None:
        self.field("verdict", text, color=_ACTIONS.get(action))

    def _echo(self, text: str) -> None:
        if self._ascii:
            text = text.encode("ascii", "replace").decode()
        typer.echo(text, color=self._color)
        sys.stdout.flush()


def _squeeze(source: Mapping[str, Any], limit: int = 150) -> str:
    return textwrap.shorten(str(source.get("content", "")), limit, placeholder=" …")
