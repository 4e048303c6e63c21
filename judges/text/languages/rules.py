"""Loads the rules for each language from its table (``<language>.toml``) and merges them. Replies mix languages without
declaring them, so the tables are used together.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final

LANGUAGES = ("en", "de", "fr", "es")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """Words that decide whether a full stop ends a sentence. They are case-folded, and their last full stop is removed.

    ``en.toml`` explains each list.
    """

    titles: frozenset[str]
    numbered: frozenset[str]
    ending: frozenset[str]
    loose: frozenset[str]
    starters: frozenset[str]
    calendar: frozenset[str]
    initial_before: frozenset[str]
    ordinal_before: frozenset[str]
    ordinal_after: frozenset[str]
    dangling: frozenset[str]
    lead_ins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """Patterns that match at the start of a lower-case sentence, unless a field says otherwise."""

    meta: re.Pattern[str]
    labels: re.Pattern[str]
    headings: re.Pattern[str]
    """Generic headings, which don't describe the text below them."""
    refusals: re.Pattern[str]
    """Matches a refusal. The groups match the words that vary."""
    fillers: re.Pattern[str]
    pronouns: re.Pattern[str]
    connectives: re.Pattern[str]
    contrasts: re.Pattern[str]
    """Matches the text between two clauses: a comma or semicolon, and the word that contrasts the second clause with
    the first."""
    attributions: re.Pattern[str]
    """A prefix that names no specific source: "According to the document, ", "The policy says that "."""
    trailing: re.Pattern[str]
    """A phrase that names no specific source, at the end of a sentence: before the end mark, after a comma or in
    brackets."""
    openers: re.Pattern[str]
    """A prefix without content, such as "Note: " or "The answer to your question is: ", including a repeated
    question."""


_ASKED: Final = r"""(?:,? ["“«„'][^"”»“]{1,300}["”»“']| [^:"“«„]{1,200}?)?"""
"""A question that an answer repeats: ``<asked>`` in the tables."""


_SPELT_OUT: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_OPEN_WORDS: Final = re.compile(r"\(\?:(?:\\w\+ | \\w\+)\)(?:\{\d,\d\}|\?)|\[\^[^\]]*\]\{\d+,\d+\}")
_ESCAPE: Final = re.compile(r"\\\w|\{[^}]*\}|\(\?P<\w+>")


def words_in(pattern: str) -> frozenset[str]:
    """Return the words that a pattern contains literally."""
    return frozenset(_SPELT_OUT.findall(_ESCAPE.sub(" ", pattern)))


@lru_cache(maxsize=8)
def split_rules(languages: Sequence[str] = LANGUAGES) -> SplitRules:
    """Return the merged tables of ``languages`` (a tuple of codes). Raises ValueError for a language without a
    table."""
    tables = [_table(language)["split"] for language in languages]
    words = {
        name: frozenset(word for table in tables for word in table[name])
        for name in SplitRules.__dataclass_fields__
        if name != "lead_ins"
    }
    return SplitRules(**words, lead_ins=tuple(opening for table in tables for opening in table["lead_ins"]))


@lru_cache(maxsize=8)
def claim_rules(languages: Sequence[str] = LANGUAGES) -> ClaimRules:
    """Return the merged patterns of ``languages`` (a tuple of codes). Raises ValueError for a language without a
    table."""
    tables = [_table(language) for language in languages]

    def any_of(name: str) -> str:
        return _alternatives(_expand(entry, table["words"]) for table in tables for entry in table["claims"][name])

    def opening(name: str) -> re.Pattern[str]:
        return re.compile(rf"\W*{any_of(name)}(?!\w)")

    return ClaimRules(
        meta=opening("meta"),
        labels=opening("labels"),
        headings=re.compile(rf"\W*{any_of('headings')}\W*\Z"),
        refusals=re.compile(rf"\W*+{_OPEN_WORDS.sub(_grouped, any_of('refusals'))}(?!\w)"),
        fillers=re.compile(rf"\W*{any_of('fillers')}\b,? *"),
        pronouns=opening("pronouns"),
        connectives=opening("connectives"),
        contrasts=re.compile(rf"[,;] {any_of('contrasts')}\b,? *"),
        attributions=re.compile(
            rf"{any_of('attributions')} {any_of('sources')}(?:,|:) +|{any_of('sources')} {any_of('reports')} *"
        ),
        trailing=re.compile(rf"(?:, | \(){any_of('behind')} {any_of('sources')}\)?(?=[.!。]*\Z)"),
        openers=re.compile(rf"\W*{any_of('openers')} *"),
    )


def _expand(entry: str, words: Mapping[str, str]) -> str:
    for name, pattern in (*words.items(), ("asked", _ASKED)):
        entry = entry.replace(f"<{name}>", pattern)
    return entry


def _grouped(found: re.Match[str]) -> str:
    return f"({found[0]})"


def _alternatives(entries: Iterable[str]) -> str:
    return "(?:" + "|".join(sorted(set(entries), key=len, reverse=True)) + ")"


def _table(language: str) -> dict[str, Any]:
    source = resources.files(__package__) / f"{language}.toml"
    if not source.is_file():
        raise ValueError(f"languages: no table for {language!r}")
    return tomllib.loads(source.read_text(encoding="utf-8"))
