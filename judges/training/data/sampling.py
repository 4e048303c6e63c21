"""Samples training items: chooses claims about passages, other passages to add, and the order."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from judges.text.bm25 import substance, terms
from judges.training.data import augmentation as augment
from judges.training.data.batching import (
    CLAIM_TOKENS,
    MOST_WINDOWS,
    Encoder,
    Item,
    fifths,
    nearest,
    pack,
    split,
)
from judges.training.data.datasets import SHARES, SNLI, WRITTEN, Group, Row, Target

_TRAINED_WINDOWS: Final = (64, 128, 128, 192)
"""Maximum window sizes in training, in tokens. One is chosen at random for each item."""
_MOST_CLAIMS: Final = 8
_RARE: Final = 60
"""Two premises count as related if they share a term that occurs in at most this many premises. Such rare terms usually
name the subject."""
_WITH_MADE: Final = 0.5
"""The probability that rule-generated claims are added to the handwritten claims about a passage."""
_BESIDE: Final = 0.4
"""The probability that another passage is added to the passage that the claims are about."""
_ALIKE: Final = (0.15, 0.5)
"""Some passages are used as evidence that is about a claim's subject but doesn't support the claim. Such a passage
contains a share of the claim's content terms between these two. With a larger share, it might support the claim."""

_PRIORS: Final = {
    "": (-1.7, -0.75, -0.5, -0.3, -0.4, 1.3),
    SNLI: (-0.7, -0.75, 0.0, 0.54, 0.34, 2.3),
    WRITTEN: (-0.2, -0.1, -0.1, 0.0, -0.3, 0.6),
}
"""For each source, the log-odds of "entailed", relative to the mean, for claims with 0, 1, 2, 3, 4 or 5 fifths of their
tokens in the evidence. Measured on 35,000 sampled claims. The key "" represents public data sets and rule-generated
claims."""


class Sampler:
    """An infinite stream of training items, in an order that depends only on ``seed`` and the epoch."""

    def __init__(self, groups: Sequence[Group], encoder: Encoder, *, seed: int) -> None:
        self._groups = groups
        self._encoder = encoder
        self._seed = seed
        self._by_source: dict[str, list[int]] = {}
        by_term: dict[str, list[int]] = {}
        for place, group in enumerate(groups):
            self._by_source.setdefault(group.source, []).append(place)
            if group.source != SNLI:
                for term in _substance(group.premise):
                    by_term.setdefault(term, []).append(place)
        self._by_term = {term: places for term, places in by_term.items() if 2 <= len(places) <= _RARE}

    def epoch(self, number: int) -> Iterator[Item]:
        """Yield each group once, or as often as the share of its source requires."""
        rng = random.Random(f"{self._seed}/{number}")
        order: list[int] = []
        for place, group in enumerate(self._groups):
            share = SHARES.get(group.source, 1.0)
            order.extend([place] * (int(share) + (rng.random() < share % 1)))
        rng.shuffle(order)
        for place in order:
            yield from self._items(self._groups[place], rng)

    def _neighbour(self, group: Group, rng: random.Random) -> Group:
        """Return another group from the same source: the one, of a few candidates, that has the most words in
        common."""
        places = self._by_source[group.source]
        tried = [self._groups[rng.choice(places)] for _ in range(4)]
        words = set(terms(group.premise[:600]))
        others = [one for one in tried if one.premise != group.premise] or tried
        return max(others, key=lambda one: len(words & set(terms(one.premise[:600]))))

    def _near(self, group: Group, usable: Sequence[str], rng: random.Random) -> Row | None:
        """Return a claim about another premise on the same subject. It shares some words with this premise, but isn't
        supported by it."""
        here = _substance(group.premise)
        about = sorted(_substance(rng.choice(usable)))
        shared = Counter(place for term in about for place in self._by_term.get(term, ()))
        for place, count in shared.most_common(3):
            other = self._groups[place]
            if other.premise == group.premise or count < 2:
                continue
            entailed = [row.claim for row in other.rows if row.target is Target.ENTAILED]
            said = augment.sentences(other.premise) + entailed
            rng.shuffle(said)
            for claim in said:
                asked = _substance(claim)
                if asked and _ALIKE[0] <= len(asked & here) / len(asked) <= _ALIKE[1]:
                    return Row(claim, Target.NEUTRAL, "near-elsewhere")
        return None

    def _items(self, group: Group, rng: random.Random) -> Iterator[Item]:
        if group.source == SNLI:
            yield self._item([split(group.premise)], list(group.rows[:_MOST_CLAIMS]), rng)
            return
        if group.source == WRITTEN:
            yield self._written(group, rng)
            return
        passage = split(group.premise)
        usable = augment.sentences(group.premise)
        other = self._neighbour(group, rng)
        rows = list(group.rows) if len(group.rows) <= _MOST_CLAIMS - 2 else rng.sample(group.rows, _MOST_CLAIMS - 2)
        others = augment.sentences(other.premise)
        if len(usable) >= 4:
            yield from self._assembled(passage, usable, others, rng)
        made = rng.randint(1, 3) if len(usable) >= 3 else rng.randint(0, 2)
        rows += augment.claims(usable, others, rng, count=made)
        if rng.random() < 0.25:
            rows.append(Row(rng.choice(other.rows).claim, Target.NEUTRAL, "elsewhere"))
        if usable and rng.random() < 0.8 and (near := self._near(group, usable, rng)) is not None:
            rows.append(near)
            half = augment.merge(rng.sample([rng.choice(usable), near.claim], 2), rng) if rng.random() < 0.3 else None
            rows += [Row(half, Target.NEUTRAL, "half-elsewhere")] if half else []
        if usable and others and rng.random() < 0.15:
            half = augment.merge(rng.sample([rng.choice(usable), rng.choice(others)], 2), rng)
            rows += [Row(half, Target.NEUTRAL, "half-elsewhere")] if half else []
        blocks = [passage]
        if rng.random() < _BESIDE:
            blocks.append(split(other.premise))
            if usable and others and rng.random() < 0.5:
                joined = augment.merge([rng.choice(usable), rng.choice(others)], rng)
                rows += [Row(joined, Target.ENTAILED, "both")] if joined else []
            rows = [row for row in rows if not row.source.endswith("elsewhere")]
            rng.shuffle(blocks)
        yield self._item(blocks, rows[:_MOST_CLAIMS], rng)

    def _written(self, group: Group, rng: random.Random) -> Item:
        """Return handwritten claims. Half of the time, rule-generated claims are added; the true ones use the passage's
        own words."""
        made = 3 if rng.random() < _WITH_MADE else 0
        rows = rng.sample(group.rows, min(_MOST_CLAIMS - made, len(group.rows)))
        other = self._neighbour(group, rng)
        if made:
            usable, others = augment.sentences(group.premise), augment.sentences(other.premise)
            rows += augment.claims(usable, others, rng, count=made)
        blocks = [split(group.premise)]
        if rng.random() < _BESIDE:
            blocks.append(split(other.premise))
        rng.shuffle(blocks)
        return self._item(blocks, rows, rng)

    def _assembled(
        self, passage: list[str], usable: list[str], others: list[str], rng: random.Random
    ) -> Iterator[Item]:
        """Yield at most one item that is constructed from the passage itself."""
        kind = rng.random()
        if kind < 0.4:
            yield self._made(passage, usable, others, rng)
        elif kind < 0.65:
            yield self._cited(usable, others, rng)

    def _made(self, passage: list[str], usable: list[str], others: list[str], rng: random.Random) -> Item:
        """Remove a sentence from a passage, so that it becomes an unsupported claim."""
        gone = rng.choice(usable)
        kept = [sentence for sentence in passage if gone not in sentence and sentence not in gone]
        remaining = [sentence for sentence in usable if sentence != gone]
        rows = augment.claims(remaining, others, rng, count=5)
        lost = gone if rng.random() < 0.5 else augment.shorten(gone, rng) or gone
        rows.append(Row(lost, Target.NEUTRAL, "lost"))
        half = augment.merge([rng.choice(remaining), gone], rng) if rng.random() < 0.5 else None
        rows += [Row(half, Target.NEUTRAL, "half-lost")] if half else []
        return self._item([kept], rows, rng)

    def _cited(self, usable: list[str], others: list[str], rng: random.Random) -> Item:
        """Reduce a passage to one to three sentences, as answers cite them. Claims about the rest of the passage become
        unsupported.
        """
        first, length = rng.randrange(len(usable) - 1), rng.choice((1, 1, 2, 3))
        kept = usable[first : first + length]
        lost = [sentence for sentence in usable if sentence not in kept]
        rows = augment.claims(kept, others, rng, count=3)
        if lost:
            rows.append(Row(rng.choice(lost), Target.NEUTRAL, "uncited"))
            half = augment.merge(rng.sample([rng.choice(kept), rng.choice(lost)], 2), rng)
            rows += [Row(half, Target.NEUTRAL, "half-cited")] if half else []
        return self._item([kept], rows, rng)

    def _item(self, blocks: Sequence[Sequence[str]], rows: Sequence[Row], rng: random.Random) -> Item:
        limit = rng.choice(_TRAINED_WINDOWS)
        claims = [ids[: CLAIM_TOKENS - 2] for ids in self._encoder.encode([row.claim for row in rows])]
        windows = [window for block in blocks for window in pack(self._encoder.encode(block), limit)]
        chosen = nearest(windows, claims, MOST_WINDOWS)
        known = {token for window in chosen for token in window}
        priors = tuple(
            _PRIORS.get(row.source, _PRIORS[""])[fifths(claim, known, self._encoder.common)]
            for row, claim in zip(rows, claims, strict=True)
        )
        return Item(tuple(chosen), tuple(zip(claims, (row.target for row in rows), strict=True)), priors)


def _substance(text: str) -> set[str]:
    """Return the terms that identify the subject of the text."""
    return {term for term in terms(text) if substance(term) == 1.0}
