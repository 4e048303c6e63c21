"""Decides whether a courtesy ("Of course!") can be a "yes" to the text before it. It can, unless that text is known to
ask only open questions or nothing at all."""

import re
from collections.abc import Callable
from typing import Final

from judges.claims.claim_context import QUESTION
from judges.features.words.document_text import words_of
from judges.text.languages.rules import HarmlessRules

_PARTS: Final = re.compile(r"(?<=[.!?？;:,(])\s+|\n|\s[–—-]+\s")
"""The breaks between the clauses of a message."""
_CONJUNCTION: Final = re.compile(r"\s(?:and|or|but|so|und|oder|aber|et|ou|mais|y|o|pero)\s")
_CONDITION: Final = re.compile(r"\b(?:if|whether|ob|si)\b")
"""The beginning of an indirect yes-or-no question."""
_AROUND: Final = " ,:;.!"
_PLAIN_LETTERS: Final = str.maketrans("’ʼ", "''")


def asking_parts(asked: str, table: HarmlessRules, is_courtesy: Callable[[str], bool]) -> list[str]:
    """Return the clauses of ``asked``, in lower case, that may ask something."""
    folded = asked.translate(_PLAIN_LETTERS).lower()
    parts = [part.strip() for part in _PARTS.split(folded) if any(map(str.isalnum, part))]
    return [part for part in parts if not (is_courtesy(part) or table.told.fullmatch(part.strip(_AROUND)))]


def asks_no_yes_or_no(
    asked: str, pattern: re.Pattern[str], table: HarmlessRules, is_courtesy: Callable[[str], bool]
) -> bool:
    """Return whether ``asked`` is known to ask only open questions (its last question matches ``pattern``) or nothing
    at all. Users often leave out question marks, so if there are none, the last clause counts as a question."""
    asking = asking_parts(asked, table, is_courtesy)
    if not asking:
        return True
    last = [part for part in asking if QUESTION.search(part)] or asking
    return pattern.match(last[-1]) is not None and all(_asks_no_more(part, table) for part in asking)


def _asks_no_more(part: str, table: HarmlessRules) -> bool:
    """Return whether a clause is a statement, or a question or request that ``table`` lists as open."""
    first, *others = _CONJUNCTION.split(part)
    if any(map(table.closed.match, others)):
        return False
    if table.open.match(first):
        return True
    words = words_of(first)
    if part.endswith(":") and len(words) == 1:  # "Question: ..."
        return True
    return (
        bool(words)
        and words[0] in table.telling
        and not (_CONDITION.search(part) or QUESTION.search(part) or table.closed.match(first))
    )
