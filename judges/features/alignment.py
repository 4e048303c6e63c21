"""Aligns a sentence in the claim with a sentence in the evidence."""

from collections.abc import Container, Mapping, Sequence

from msgspec import Struct

from judges.features.parsed_text import ParsedSentence


class SentencePair(Struct, frozen=True):
    """Two aligned sentences, with how much of the claim is in the evidence."""

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
    """Align two sentences. ``frame`` has the weighted words that the claim is about; ``coverage`` is their share in the
    evidence."""
    full = [key in evidence.weights for key, weight in frame.items() if weight == 1.0]
    shared = sum(full)
    return SentencePair(target, evidence, coverage, len(full) - shared, shared, anchors_of(target.keys, evidence.keys))


def share_of(frame: Mapping[str, float], keys: Container[str]) -> float:
    """Return the share of the frame's weight that ``keys`` contains."""
    total = found = 0.0
    for key, weight in frame.items():
        total += weight
        if key in keys:
            found += weight
    return found / total if total else 0.0


def held(frame: Mapping[str, float], keys: Container[str]) -> float:
    """Return how much of the frame's weight ``keys`` contains."""
    return sum([weight for key, weight in frame.items() if key in keys])


def ramp(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


def anchors_of(claim: Sequence[str], evidence: Sequence[str]) -> list[tuple[int, int]]:
    """Return the longest common subsequence over the keys in both sentences."""
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
    """Return the stretch of the evidence between the anchors around a position in the claim."""
    low, high = 0, end
    for mine, theirs in anchors:
        if mine < place:
            low = theirs + 1
        else:
            high = theirs
            break
    return low, high
