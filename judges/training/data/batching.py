"""Groups of claims to batches of token ids: evidence in windows, and the claims about it behind them."""

import random
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from judges.features.words.lexicon import STOP
from judges.sentences.splitter import IncrementalSplitter
from judges.text.bm25 import substance, terms
from judges.training.data import augmentation as augment
from judges.training.data.datasets import SHARES, SNLI, WRITTEN, Group, Row, Target
from judges.training.encoder import bases as base

CLAIM_TOKENS: Final = 96
"""Positions kept for the claim, ``[CLS]`` and ``[SEP]`` included; evidence begins behind them."""
WINDOW_TOKENS: Final = 128
"""Most tokens of a window at run time, without ``[SEP]``."""
_TRAINED_WINDOWS: Final = (64, 128, 128, 192)
"""Of those seen in training, shorter and longer ones are among them."""
MOST_WINDOWS: Final = 6
_MOST_CLAIMS: Final = 8
_RARE: Final = 60
"""Premises that a term may stand in to lead from one to another: such terms name what both are about."""
_WITH_MADE: Final = 0.5
"""How often claims made by rule stand beside the written ones of a passage."""
_BESIDE: Final = 0.4
"""How often another passage stands beside the one that the claims are about."""
_ALIKE: Final = (0.15, 0.5)
"""Share of a claim's terms of substance that a passage on the same subject has without saying so: with more it may well
say so."""

_MARKS: Final = ".,;:!?'\"()-"
_PRIORS: Final = {
    "": (-1.7, -0.75, -0.5, -0.3, -0.4, 1.3),
    SNLI: (-0.7, -0.75, 0.0, 0.54, 0.34, 2.3),
    WRITTEN: (-0.2, -0.1, -0.1, 0.0, -0.3, 0.6),
}
"""By how many fifths of a claim's tokens stand in its evidence: the log-odds of its being entailed, less the mean.
Counted over 35,000 claims as they are drawn; "" are those of public sets and those made by rule."""

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Item:
    """Windows of evidence and the claims judged against them, as token ids without special tokens."""

    windows: tuple[Sequence[int], ...]
    claims: tuple[tuple[Sequence[int], Target], ...]
    priors: tuple[float, ...] = ()
    """For each claim, what the share of its words in the evidence tells of it, as log-odds against the mean."""

    @property
    def evidence_tokens(self) -> int:
        return sum(len(window) + 1 for window in self.windows)

    @property
    def tokens(self) -> int:
        """Of evidence and claims, special ones included."""
        return self.evidence_tokens + sum(len(claim) + 2 for claim, _ in self.claims)


@dataclass(frozen=True, slots=True)
class Spans:
    """Lengths in tokens of a group's windows and of its claims, special tokens included."""

    windows: tuple[int, ...]
    claims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens of groups one after another, without padding: of each its windows, then its claims.

    ``positions`` and ``kinds`` say of each token where it stands in its text and whether it is of evidence (1);
    ``starts`` and ``lengths`` say where each claim stands. ``targets`` and ``priors`` are by claim, see ``Item``.
    """

    ids: Ids
    positions: Ids
    kinds: Ids
    groups: tuple[Spans, ...]
    starts: Ids
    lengths: Ids
    targets: Ids
    priors: npt.NDArray[np.float32]

    def repeated(self, room: int) -> "Batch":
        """The same claims, each in a group of its own with up to ``room`` tokens of its evidence as one text, as a
        plain cross-encoder has them."""
        order: list[Ids] = []
        positions: list[Ids] = []
        groups: list[Spans] = []
        start = 0
        for group in self.groups:
            evidence = sum(group.windows)
            kept = np.arange(start, start + min(evidence, room))
            start += evidence
            for length in group.claims:
                order += [kept, np.arange(start, start + length)]
                positions += [CLAIM_TOKENS + np.arange(len(kept)), np.arange(length)]
                groups.append(Spans((len(kept),), (length,)))
                start += length
        places = np.concatenate(order)
        ends = np.cumsum([group.windows[0] + group.claims[0] for group in groups])
        return Batch(
            self.ids[places],
            np.concatenate(positions),
            self.kinds[places],
            tuple(groups),
            ends - self.lengths,
            self.lengths,
            self.targets,
            self.priors,
        )


class Encoder:
    """Texts to token ids of the base model, cut where a position would be lacking."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.cls, self.sep = (_special(tokenizer, token) for token in ("[CLS]", "[SEP]"))
        found = tokenizer.encode_batch([*STOP, *_MARKS], add_special_tokens=False)
        self.common = frozenset(one.ids[0] for one in found if len(one.ids) == 1)
        """Tokens that say nothing of what a text is about."""

    @classmethod
    def of(cls, file: Path) -> Self:
        """From a ``tokenizer.json``."""
        return cls(base.tokenizer(file))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def windows(self, premise: str, limit: int) -> list[list[int]]:
        """``premise`` in windows of whole sentences that have at most ``limit`` tokens each, one after another."""
        return pack(self.encode(split(premise)), limit)


def _substance(text: str) -> set[str]:
    """The terms that say what a text is about."""
    return {term for term in terms(text) if substance(term) == 1.0}


def _special(tokenizer: Tokenizer, token: str) -> int:
    place = tokenizer.token_to_id(token)
    if place is None:
        raise ValueError(f"the tokenizer has no {token}")
    return place


def split(passage: str) -> list[str]:
    """The sentences of ``passage`` as they stand there."""
    splitter = IncrementalSplitter()
    found = (sentence.text.strip() for sentence in [*splitter.push(passage), *splitter.flush()])
    return [text for text in found if text]


def pack(sentences: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
    """Sentences one after another into windows; one longer than a window is cut into several."""
    windows: list[list[int]] = []
    for sentence in sentences:
        if windows and len(windows[-1]) + len(sentence) <= limit:
            windows[-1].extend(sentence)
        else:
            windows.extend(list(sentence[start : start + limit]) for start in range(0, len(sentence), limit))
    return windows


def nearest(windows: Sequence[Sequence[int]], claims: Sequence[Sequence[int]], most: int) -> list[Sequence[int]]:
    """The ``most`` windows that share most tokens with any of ``claims``, in their order; rare tokens count more."""
    if len(windows) <= most:
        return list(windows)
    seen: dict[int, int] = {}
    for window in windows:
        for token in set(window):
            seen[token] = seen.get(token, 0) + 1
    scores = [[sum(1 / seen[token] for token in set(claim) & set(window)) for window in windows] for claim in claims]
    best = [max(column) for column in zip(*scores, strict=True)]
    for row in scores:
        best[row.index(max(row))] += 100.0
    kept = sorted(sorted(range(len(windows)), key=lambda place: -best[place])[:most])
    return [windows[place] for place in kept]


def fifths(claim: Sequence[int], known: Container[int], common: Container[int]) -> int:
    """How many fifths of a claim's tokens that mean something are ``known``, rounded down; most, where it has none."""
    telling = [token for token in claim if token not in common]
    return int(5 * sum(token in known for token in telling) / len(telling)) if telling else 4


class Sampler:
    """Endless training items, in an order given by ``seed`` and the epoch alone."""

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
        """Each group once, or as often as its source's share says."""
        rng = random.Random(f"{self._seed}/{number}")
        order: list[int] = []
        for place, group in enumerate(self._groups):
            share = SHARES.get(group.source, 1.0)
            order.extend([place] * (int(share) + (rng.random() < share % 1)))
        rng.shuffle(order)
        for place in order:
            yield from self._items(self._groups[place], rng)

    def _neighbour(self, group: Group, rng: random.Random) -> Group:
        """Another group of the same source, of a few tried the one that has most words in common."""
        places = self._by_source[group.source]
        tried = [self._groups[rng.choice(places)] for _ in range(4)]
        words = set(terms(group.premise[:600]))
        others = [one for one in tried if one.premise != group.premise] or tried
        return max(others, key=lambda one: len(words & set(terms(one.premise[:600]))))

    def _near(self, group: Group, usable: Sequence[str], rng: random.Random) -> Row | None:
        """A claim from another premise on the same subject, which this one has some words of and does not support."""
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
        """Written claims, half the time beside made ones, which share a passage's words where they are true."""
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
        """At most one item that is put together from the passage itself."""
        kind = rng.random()
        if kind < 0.4:
            yield self._made(passage, usable, others, rng)
        elif kind < 0.65:
            yield self._cited(usable, others, rng)

    def _made(self, passage: list[str], usable: list[str], others: list[str], rng: random.Random) -> Item:
        """A passage that lacks one of its sentences: what that one said has become unsupported."""
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
        """One to three sentences of a passage, as answers cite them; what the rest of it says is not in them."""
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


def batches(items: Iterator[Item], encoder: Encoder, *, claims: int, tokens: int) -> Iterator[Batch]:
    """Items as they come, up to ``claims`` claims and up to ``tokens`` tokens a batch; one item at least."""
    batch: list[Item] = []
    held = size = 0
    for item in items:
        if not item.windows or not item.claims:
            continue
        if batch and (held + len(item.claims) > claims or size + item.tokens > tokens):
            yield collate(batch, encoder)
            batch, held, size = [], 0, 0
        batch.append(item)
        held += len(item.claims)
        size += item.tokens
    if batch:
        yield collate(batch, encoder)


def collate(items: Sequence[Item], encoder: Encoder) -> Batch:
    """The tokens of ``items`` in arrays."""
    ids: list[int] = []
    positions: list[int] = []
    kinds: list[int] = []
    groups: list[Spans] = []
    starts: list[int] = []
    for item in items:
        windows = [[*window, encoder.sep] for window in item.windows]
        claims = [[encoder.cls, *claim, encoder.sep] for claim, _ in item.claims]
        for kind, first, texts in ((1, CLAIM_TOKENS, windows), (0, 0, claims)):
            for text in texts:
                if not kind:
                    starts.append(len(ids))
                ids.extend(text)
                positions.extend(range(first, first + len(text)))
                kinds.extend([kind] * len(text))
        groups.append(Spans(tuple(map(len, windows)), tuple(map(len, claims))))
    return Batch(
        np.array(ids),
        np.array(positions),
        np.array(kinds),
        tuple(groups),
        np.array(starts),
        np.array([length for group in groups for length in group.claims]),
        np.array([int(target) for item in items for _, target in item.claims]),
        np.array([prior for item in items for prior in item.priors or [0.0] * len(item.claims)], dtype=np.float32),
    )
