"""Converts groups of claims to batches of token ids. For each group, a batch contains the windows of evidence, followed
by the claims about it."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from judges.features.words.lexicon import STOP
from judges.sentences.splitter import IncrementalSplitter
from judges.training.data.datasets import Target
from judges.training.encoder import bases as base

CLAIM_TOKENS: Final = 96
"""Positions reserved for the claim, including ``[CLS]`` and ``[SEP]``; evidence starts after them."""
WINDOW_TOKENS: Final = 128
"""Maximum number of tokens in a window at run time, without ``[SEP]``."""
MOST_WINDOWS: Final = 6
_MARKS: Final = ".,;:!?'\"()-"
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Item:
    """Windows of evidence and the claims judged against them, as token ids without special tokens."""

    windows: tuple[Sequence[int], ...]
    claims: tuple[tuple[Sequence[int], Target], ...]
    priors: tuple[float, ...] = ()
    """For each claim, the log-odds of "entailed" given its word overlap with the evidence, relative to the mean."""

    @property
    def evidence_tokens(self) -> int:
        return sum(len(window) + 1 for window in self.windows)

    @property
    def tokens(self) -> int:
        """The number of tokens of evidence and claims, including special tokens."""
        return self.evidence_tokens + sum(len(claim) + 2 for claim, _ in self.claims)


@dataclass(frozen=True, slots=True)
class Spans:
    """The lengths of a group's windows and claims in tokens, including special tokens."""

    windows: tuple[int, ...]
    claims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """The concatenated tokens of groups, without padding: for each group, its windows, then its claims. ``positions``
    has the position of each token in its text, and ``kinds`` is 1 for tokens of evidence. ``starts`` and ``lengths``
    locate the claims. ``targets`` and ``priors`` have one entry per claim (see ``Item``).
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
        """Return the same claims in the form that a plain cross-encoder reads: each in a group of its own, with up to
        ``room`` tokens of its evidence as one text."""
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
    """Converts texts to token ids of the base model, truncated to the available positions."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.cls, self.sep = (_special(tokenizer, token) for token in ("[CLS]", "[SEP]"))
        found = tokenizer.encode_batch([*STOP, *_MARKS], add_special_tokens=False)
        self.common = frozenset(one.ids[0] for one in found if len(one.ids) == 1)
        """Tokens that don't identify the subject of a text."""

    @classmethod
    def of(cls, file: Path) -> Self:
        """Load a ``tokenizer.json``."""
        return cls(base.tokenizer(file))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def windows(self, premise: str, limit: int) -> list[list[int]]:
        """Return ``premise`` split into consecutive windows of whole sentences, with at most ``limit`` tokens each."""
        return pack(self.encode(split(premise)), limit)


def _special(tokenizer: Tokenizer, token: str) -> int:
    place = tokenizer.token_to_id(token)
    if place is None:
        raise ValueError(f"the tokenizer has no {token}")
    return place


def split(passage: str) -> list[str]:
    """Return the sentences of ``passage`` unchanged."""
    splitter = IncrementalSplitter()
    found = (sentence.text.strip() for sentence in [*splitter.push(passage), *splitter.flush()])
    return [text for text in found if text]


def pack(sentences: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
    """Pack consecutive sentences into windows. A sentence longer than a window is split."""
    windows: list[list[int]] = []
    for sentence in sentences:
        if windows and len(windows[-1]) + len(sentence) <= limit:
            windows[-1].extend(sentence)
        else:
            windows.extend(list(sentence[start : start + limit]) for start in range(0, len(sentence), limit))
    return windows


def nearest(windows: Sequence[Sequence[int]], claims: Sequence[Sequence[int]], most: int) -> list[Sequence[int]]:
    """Return the ``most`` windows that share the most tokens with any of ``claims``, in their original order. Rare
    tokens have a higher weight.
    """
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
    """Return the share of a claim's content tokens that are ``known``, in fifths, rounded down. If the claim has no
    content tokens, return the maximum."""
    telling = [token for token in claim if token not in common]
    return int(5 * sum(token in known for token in telling) / len(telling)) if telling else 4


def batches(items: Iterator[Item], encoder: Encoder, *, claims: int, tokens: int) -> Iterator[Batch]:
    """Yield batches of consecutive items. Each has up to ``claims`` claims and ``tokens`` tokens, and at least one
    item."""
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
    """Return the tokens of ``items`` as arrays."""
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
