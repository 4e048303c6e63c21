"""Detects that a claim has a different name or word from an otherwise similar sentence."""

from collections.abc import Container
from difflib import SequenceMatcher
from typing import Final

from judges.features.alignment import SentencePair
from judges.features.sentence_pair import ALIKE, ANOTHER, has_content, has_word, words_of
from judges.features.words.lexicon import ROLES
from judges.features.words.stemming import lexeme

_REPLACED_IN: Final = 0.6
"""The minimum share of the claim that a sentence must contain apart from the replaced word."""


def name_differs(pair: SentencePair) -> tuple[float, str | None]:
    """Detect that the last word is a different letter or name after the same words: gate C instead of gate B."""
    claim, evidence = pair.claim, pair.evidence
    if len(claim.keys) < 3 or len(pair.anchors) != len(claim.keys) - 1 or pair.anchors[-1][0] != len(claim.keys) - 2:
        return 0.0, None
    mine, place = claim.keys[-1], pair.anchors[-1][1] + 1
    if place >= len(evidence.keys):
        return 0.0, None
    theirs = evidence.keys[place]
    if mine[0] == "#" or theirs[0] == "#" or theirs in claim.weights:
        return 0.0, None
    letters = mine.endswith(".") and theirs.endswith(".")
    named = mine in claim.names and theirs in evidence.names and len(evidence.keys) == len(claim.keys)
    if not letters and not named:
        return 0.0, None
    written = claim.names.get(mine, mine), evidence.names.get(theirs, theirs)
    return (1.0 if letters else 0.5), f"{written[0]} where the source says {written[1]}"


def replaced(pair: SentencePair) -> tuple[str, str] | None:
    """Return the only content word in the claim that differs from the evidence between the same neighbours, with the
    word in the evidence; None if there is no such word."""
    if pair.lacking != 1 or pair.coverage < _REPLACED_IN:
        return None
    mine, theirs = words_of(pair.claim), words_of(pair.evidence)
    for place in range(1, len(mine) - 1):
        word = mine[place]
        if word in theirs or not has_content(word):
            continue
        for other in range(1, len(theirs) - 1):
            same_place = theirs[other - 1] == mine[place - 1] and theirs[other + 1] == mine[place + 1]
            if same_place and theirs[other] not in mine and has_content(theirs[other]):
                return word, theirs[other]
    return None


def name_replaced(pair: SentencePair, words: tuple[str, str], known: Container[str]) -> tuple[float, str | None]:
    """Detect a replaced name. The strength is full if the claim's name is not among the ``known`` words in the
    evidence. A different spelling or an abbreviation doesn't count as a different name."""
    mine, theirs = (lexeme(word).key for word in words)
    if mine not in pair.claim.names or theirs not in pair.evidence.names or _spelled_alike(*words):
        return 0.0, None
    written = pair.claim.names[mine], pair.evidence.names[theirs]
    return (
        ANOTHER if mine in known or has_word(pair.claim, ("also",)) or ROLES.issuperset(words) else 1.0
    ), f"{written[0]} where the source says {written[1]}"


def _spelled_alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    abbreviated = (len(short) <= 3 and short[0] == long[0]) or long.startswith(short)
    return abbreviated or SequenceMatcher(None, one, other, autojunk=False).ratio() > ALIKE
