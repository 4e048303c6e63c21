"""Encodes pairs of texts as model inputs. A text that occurs in several pairs is tokenized only once."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

Ids = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.int32]

_DEFAULT_LIMIT = 512
_UNLIMITED = 1_000_000
"""If the maximum length in a tokenizer's config is larger than this, the tokenizer has no real limit."""


class PairEncoder:
    """Builds batches of ``input_ids``, ``attention_mask`` and ``token_type_ids``, each of shape (pairs, tokens).

    The special tokens before, between and after the two texts come from the tokenizer's template.

    Args:
        tokenizer: the model's tokenizer.
        limit: maximum input length in tokens, including special tokens.
        pad_id: the id of the padding token.
        cache_size: number of texts whose tokens are cached.
    """

    def __init__(self, tokenizer: Tokenizer, *, limit: int, pad_id: int = 0, cache_size: int = 4096) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._pad_id = pad_id
        self._template = _Template.of(tokenizer)
        self.limit = limit
        self.max_tokens = limit - self._template.specials
        """Maximum number of tokens in the two texts together."""
        self._encode = lru_cache(maxsize=cache_size)(self._encode_now)

    def count(self, text: str) -> int:
        return len(self._encode(text))

    def fits(self, evidence: str, claim: str) -> bool:
        return self.count(evidence) + self.count(claim) <= self.max_tokens

    def batch(self, pairs: Sequence[tuple[str, str]]) -> dict[str, Ids]:
        """Encode ``pairs``, padded to the longest one. A pair that does not fit is truncated: first the end of the
        claim, down to half of ``max_tokens``, then the end of the evidence."""
        rows = [self._template.join(*self._cut(self._encode(one), self._encode(other))) for one, other in pairs]
        shape = (len(rows), max((len(ids) for ids, _ in rows), default=0))
        inputs = {
            "input_ids": np.full(shape, self._pad_id, dtype=np.int64),
            "attention_mask": np.zeros(shape, dtype=np.int64),
            "token_type_ids": np.zeros(shape, dtype=np.int64),
        }
        for row, (ids, types) in enumerate(rows):
            inputs["input_ids"][row, : len(ids)] = ids
            inputs["attention_mask"][row, : len(ids)] = 1
            inputs["token_type_ids"][row, : len(ids)] = types
        return inputs

    def _encode_now(self, text: str) -> Tokens:
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def _cut(self, evidence: Tokens, claim: Tokens) -> tuple[Tokens, Tokens]:
        claim = claim[: max(self.max_tokens - len(evidence), self.max_tokens // 2)]
        return evidence[: self.max_tokens - len(claim)], claim


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """How a tokenizer joins a pair: the special tokens before, between and after the texts, and the type of each."""

    before: Ids
    between: Ids
    after: Ids
    before_types: Ids
    between_types: Ids
    after_types: Ids
    evidence_type: int
    claim_type: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        probe = tokenizer.encode("a", "b")
        ids, types, owners = np.array(probe.ids), np.array(probe.type_ids), list(probe.sequence_ids)
        first, second = owners.index(0), owners.index(1)
        middle, end = first + owners.count(0), second + owners.count(1)
        return cls(
            before=ids[:first],
            between=ids[middle:second],
            after=ids[end:],
            before_types=types[:first],
            between_types=types[middle:second],
            after_types=types[end:],
            evidence_type=int(types[first]),
            claim_type=int(types[second]),
        )

    @property
    def specials(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    def join(self, evidence: Tokens, claim: Tokens) -> tuple[Ids, Ids]:
        """Return the token ids of a pair, and their types."""
        evidence_types = np.full(len(evidence), self.evidence_type)
        claim_types = np.full(len(claim), self.claim_type)
        return (
            np.concatenate((self.before, evidence, self.between, claim, self.after)),
            np.concatenate((self.before_types, evidence_types, self.between_types, claim_types, self.after_types)),
        )


def read_limit(folder: Path, tokenizer: Tokenizer, config: dict[str, Any]) -> int:
    """Return the maximum input length in tokens: the tokenizer's truncation length, or else the limit in its config, or
    else the model's limit."""
    if tokenizer.truncation is not None:
        return int(tokenizer.truncation["max_length"])
    file = folder / "tokenizer_config.json"
    stated = json.loads(file.read_text(encoding="utf-8")).get("model_max_length") if file.is_file() else None
    if isinstance(stated, int) and stated < _UNLIMITED:
        return stated
    return int(config.get("max_position_embeddings", _DEFAULT_LIMIT))
