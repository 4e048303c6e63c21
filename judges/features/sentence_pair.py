"""Aligns a sentence in the claim with one in the evidence, and compares their words, their opposites, and the sides of
their comparisons."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from judges.features.numbers import agree
from judges.features.parsed_text import SEPARATOR, ParsedSentence
from judges.features.words.lexicon import OPPOSITES
from judges.features.words.stemming import lexeme


class SentencePair(Struct, frozen=True):
    """Two aligned sentences, and the share of the claim that the evidence contains."""

    claim: ParsedSentence
    evidence: ParsedSentence
    coverage: float
    lacking: int
    """The number of the claim's content words that the evidence sentence lacks."""
    shared: int
    """The number of the claim's content words that the evidence sentence contains."""
    anchors: list[tuple[int, int]]
    """The longest common subsequence of keys: (position in the claim, position in the evidence)."""


def pair_up(
    target: ParsedSentence, evidence: ParsedSentence, frame: Mapping[str, float], coverage: float
) -> SentencePair:
    """Align two sentences. ``frame`` holds the words that the claim is about, with their weights; ``coverage`` is the
    share of these words that the evidence contains."""
    full = [key in evidence.weights for key, weight in frame.items() if weight == 1.0]
    shared = sum(full)
    return SentencePair(target, evidence, coverage, len(full) - shared, shared, anchors_of(target.keys, evidence.keys))


def share_of(frame: Mapping[str, float], keys: Collection[str]) -> float:
    """Return the weighted share of the frame's words that are in ``keys``."""
    total = sum(frame.values())
    return held(frame, keys) / total if total else 0.0


def held(frame: Mapping[str, float], keys: Collection[str]) -> float:
    """Return the total weight of the frame's words that are in ``keys``."""
    if frame.keys().isdisjoint(keys):
        return 0.0
    return sum([weight for key, weight in frame.items() if key in keys])


def ramp(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


def anchors_of(claim: Sequence[str], evidence: Sequence[str]) -> list[tuple[int, int]]:
    """Return the longest common subsequence of the keys in both sentences."""
    common = set(claim) & set(evidence)
    rows = [place for place, key in enumerate(claim) if key in common]
    columns = [place for place, key in enumerate(evidence) if key in common]
    if [claim[place] for place in rows] == [evidence[place] for place in columns]:
        return list(zip(rows, columns, strict=True))
    width = len(columns)
    table = [[0] * (width + 1) for _ in range(len(rows) + 1)]
    for row in range(len(rows) - 1, -1, -1):
        key, line, below = claim[rows[row]], table[row], table[row + 1]
        for column in range(width - 1, -1, -1):
            if evidence[columns[column]] == key:
                line[column] = below[column + 1] + 1
            else:
                line[column] = below[column] if below[column] >= line[column + 1] else line[column + 1]
    anchors: list[tuple[int, int]] = []
    row = column = 0
    while row < len(rows) and column < width:
        if claim[rows[row]] == evidence[columns[column]] and table[row][column] == table[row + 1][column + 1] + 1:
            anchors.append((rows[row], columns[column]))
            row, column = row + 1, column + 1
        elif table[row + 1][column] >= table[row][column + 1]:
            row += 1
        else:
            column += 1
    return anchors


def touched(evidence: ParsedSentence, anchors: Sequence[tuple[int, int]]) -> set[int]:
    """Return the clauses in the evidence that match the claim."""
    return {evidence.clauses[place] for _, place in anchors}


def gap(anchors: Sequence[tuple[int, int]], place: int, end: int) -> tuple[int, int]:
    """Return the part of the evidence that corresponds to a position in the claim: the part between the two nearest
    anchors."""
    low, high = 0, end
    for mine, theirs in anchors:
        if mine < place:
            low = theirs + 1
        else:
            high = theirs
            break
    return low, high


ALIKE: Final = 0.75
ANOTHER: Final = 0.4
"""The strength of a difference that may exist only because the two sentences are about different things. By itself, it
is too low to make a claim contradicted."""
_MOST_WORDS: Final = 300
"""Higher than the number of words in any real sentence."""


def words_of(sentence: ParsedSentence) -> list[str]:
    """Return the sentence's words, with keys for quantities and an empty word at each end."""
    return sentence.run.split(SEPARATOR, _MOST_WORDS)


def has_word(sentence: ParsedSentence, words: Iterable[str]) -> bool:
    return any(f"{SEPARATOR}{word}{SEPARATOR}" in sentence.run for word in words)


def has_content(word: str) -> bool:
    return not word.startswith("#") and lexeme(word).weight == 1.0


def quantities_agree(pair: SentencePair) -> bool:
    return all(
        any(agree(quantity, other) for _, other in pair.evidence.quantities) for _, quantity in pair.claim.quantities
    )


@lru_cache(maxsize=512)
def _with_opposites(run: str) -> tuple[tuple[int, str], ...]:
    """Return the words in a claim that have opposites, with their positions. The result is cached, because a claim is
    compared with many sentences."""
    words = run.split(SEPARATOR, _MOST_WORDS)
    return tuple((place, words[place]) for place in range(1, len(words) - 1) if words[place] in OPPOSITES)


def opposites(pair: SentencePair) -> list[tuple[str, str, int]]:
    """Return the words in the claim that the evidence replaces with their opposites, together with the opposites and
    the positions."""
    placed = _with_opposites(pair.claim.run)
    if not placed:
        return []
    mine, theirs = words_of(pair.claim), words_of(pair.evidence)
    known = set(theirs)
    found: list[tuple[str, str, int]] = []
    for place, word in placed:
        if word not in known and not OPPOSITES[word].isdisjoint(known):
            between = mine[place - 1], mine[place + 1]
            for other in range(1, len(theirs) - 1):
                if theirs[other] in OPPOSITES[word] and (theirs[other - 1], theirs[other + 1]) == between:
                    found.append((word, theirs[other], place))
                    break
    return found


def crosswise(pair: SentencePair) -> bool:
    """Return whether the two sides of a comparison are swapped."""
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return False
    before, after = sides(claim, claim.relation[2])
    first, second = sides(evidence, evidence.relation[2])
    return bool(before & second and after & first and not after & second)


def sides(sentence: ParsedSentence, place: int) -> tuple[set[str], set[str]]:
    left, right = set(sentence.keys[:place]), set(sentence.keys[place:])
    return left - right, right - left
