"""Recognises the names of sources, in lists such as "Sources: faq.pdf, 2"."""

import re

from judges.claims.harmless import HarmlessText
from judges.claims.known_text import fold
from judges.text.fragments import Resolves
from judges.text.languages.rules import ClaimRules

_SEPARATORS = re.compile(r"[,;|\n•]|\s(?:and|und|et|y)\s")
"""Separates the sources in a list."""
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_AROUND = " -+>\t\r\n.:：*_`\"'“”()[]"


class SourceNames:
    """Recognises the names of one request's documents.

    Args:
        harmless: recognises titles made of known words.
        rules: the patterns of claims.
        resolves: recognises citation markers, as in the extractor.
    """

    def __init__(self, harmless: HarmlessText, rules: ClaimRules, resolves: Resolves | None) -> None:
        self._harmless = harmless
        self._rules = rules
        self._resolves = resolves

    def is_title(self, text: str) -> bool:
        """Return whether ``text`` is the title of a list of sources ("Sources")."""
        titled = f"{fold(text).rstrip(':： ')}:"
        found = self._rules.labels.match(titled)
        return found is not None and not any(map(str.isalnum, titled[found.end() :]))

    def names(self, text: str, *, numbers: bool = True) -> bool:
        """Return whether ``text`` only names sources: documents, locations in them, or titles made of known words. With
        ``numbers``, a document's number counts as its name."""
        parts = [part for found in _SEPARATORS.split(text) if (part := found.strip(_AROUND))]
        return self._is_source(text.strip(_AROUND), numbers=numbers) or all(
            self._is_source(part, numbers=numbers)
            or self._harmless.is_label(_YEAR.sub("", part) if self._harmless.knows_numbers(part) else part)
            for part in parts
        )

    def are_listed(self, text: str, line: str, *, numbers: bool = True) -> bool:
        """Return whether ``text`` is an item of a list of sources, because the ``line`` above it introduces one.
        Without ``numbers``, a document's number doesn't count as its name."""
        return self._rules.labels.match(fold(line)) is not None and self.names(text, numbers=numbers)

    def _is_source(self, text: str, *, numbers: bool) -> bool:
        """Return whether ``text`` is the name of a document, with or without a location in it, or its number."""
        known = self._resolves is not None and (numbers or any(map(str.isalpha, text))) and self._resolves(f"[{text}]")
        return known or self._harmless.is_name(text)
