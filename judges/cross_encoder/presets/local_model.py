"""The interface of a loaded model for every kind of preset, and the code that all kinds share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from judges.cross_encoder.presets.input_text import PairInputs, TextInputs
from judges.types import Probabilities


class LocalModel(Protocol):
    """A model with its tokenizer and input format."""

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer that counts tokens."""
        ...

    @property
    def revision(self) -> str | None:
        """The revision on the Hub that was loaded; None for a folder."""
        ...

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens for evidence and claim together."""
        ...

    @property
    def pairs_cut(self) -> int:
        """The number of pairs shortened so far."""
        ...

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        """Score ``pairs`` in one batch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedModel:
    """The part of a ``LocalModel`` that depends only on its tokenizer and input format."""

    tokenizer: Any
    inputs: TextInputs | PairInputs
    revision: str | None

    @property
    def max_tokens(self) -> int:
        return self.inputs.max_tokens

    @property
    def pairs_cut(self) -> int:
        return self.inputs.pairs_cut
