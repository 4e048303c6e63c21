"""Reads a model's metadata: the languages that it supports, and whether it is an NLI model or a re-ranker."""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from judges.cross_encoder.label_mapping import means_entailment

log = logging.getLogger(__name__)

_CARD_CHARACTERS = 20_000
_RANKS = re.compile(r"re-?rank|ms-?marco|text-ranking", re.IGNORECASE)
_JUDGES = re.compile(r"\b[a-z]{0,2}nli\b|entail|hallucinat|factual|consistency|grounded|faithful", re.IGNORECASE)


def known_languages(config: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the ``languages`` (two-letter codes) in a model's config, or None (all languages) if it has no such
    list."""
    listed = config.get("languages")
    if not isinstance(listed, list) or not listed:
        return None
    return frozenset(str(code).casefold() for code in listed)


def folder_languages(folder: Path) -> frozenset[str] | None:
    """Return the languages in the ``config.json`` in ``folder``, or None if it cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return known_languages(config) if isinstance(config, dict) else None


def is_reranker(name: str, labels: Iterable[str], *, size: int, card: str = "") -> bool:
    """Return whether a model with ``size`` outputs seems to rank passages for a query rather than judge claims: it has
    a single output, and its label, name and card don't mention entailment."""
    if size != 1 or any(map(means_entailment, labels)):
        return False
    return bool(_RANKS.search(name)) or not (_JUDGES.search(name) or _JUDGES.search(card[:_CARD_CHARACTERS]))


def warn_if_reranker(name: str, labels: Iterable[str], *, size: int, folder: Path | None = None) -> None:
    """Log a warning if the model seems to be a re-ranker. ``folder`` may contain its card."""
    if is_reranker(name, labels, size=size, card=_card(folder)):
        log.warning(
            "%s looks like a re-ranker: it has a single output that is not labelled entailment. Such a model "
            "scores whether texts share a topic, so contradictions score as high as support; use a natural language "
            "inference model",
            name,
        )


def _card(folder: Path | None) -> str:
    if folder is None:
        return ""
    try:
        with (folder / "README.md").open(encoding="utf-8", errors="replace") as file:
            return file.read(_CARD_CHARACTERS)
    except OSError:
        return ""
