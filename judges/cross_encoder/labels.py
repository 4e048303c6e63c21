"""From a model's logits to probabilities, by the labels that its own config names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from judges.protocols import JudgeUnavailableError
from judges.types import Probabilities

_ENTAILED = frozenset({"entailment", "entailed", "entail", "entails", "supported", "supports", "support", "consistent"})
_CONTRADICTED = frozenset({"contradiction", "contradicted", "contradict", "contradictory", "refuted", "refutes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Which logit means what. ``contradicted`` is None where the model knows no contradiction; what is not entailed is
    neutral then. ``size`` 1: a single logit, the log-odds of entailment."""

    size: int
    entailed: int = 0
    contradicted: int | None = None

    def probabilities(self, logits: npt.NDArray[np.floating]) -> list[Probabilities]:
        """Sigmoid of one logit, softmax of several; one row of ``logits`` (rows by ``size``) a pair."""
        rows = np.asarray(logits, dtype=np.float64).reshape(-1, self.size)
        if self.size == 1:
            return [Probabilities(p, 1.0 - p, 0.0) for p in (0.5 * (1.0 + np.tanh(0.5 * rows[:, 0]))).tolist()]
        powers = np.exp(rows - rows.max(axis=1, keepdims=True))
        return [self._read(row) for row in (powers / powers.sum(axis=1, keepdims=True)).tolist()]

    def _read(self, row: Sequence[float]) -> Probabilities:
        entailed = row[self.entailed]
        contradicted = 0.0 if self.contradicted is None else row[self.contradicted]
        return Probabilities(entailed, max(0.0, 1.0 - entailed - contradicted), contradicted)


def read_labels(id2label: Mapping[str, str] | Mapping[int, str], *, size: int | None = None) -> Labels:
    """Find the meaning of each logit in a config's ``id2label``.

    ``size``: how many logits the model has, where known. Raises JudgeUnavailableError when the labels name no
    entailment, or do not match the model.
    """
    names = {int(key): _normal(value) for key, value in id2label.items()}
    if size is not None and names and len(names) != size:
        raise JudgeUnavailableError(f"the config names {len(names)} labels, the model has {size}")
    if size == 1 or len(names) == 1:
        return Labels(size=1)
    entailed = _find(names, _ENTAILED)
    if entailed is None or sorted(names) != list(range(len(names))):
        raise JudgeUnavailableError(
            f"expected one logit, or an id2label with 'entailment' ('neutral', 'contradiction'); found {names}"
        )
    return Labels(
        size=len(names),
        entailed=entailed,
        contradicted=_find(names, _CONTRADICTED),
    )


def means_entailment(label: str) -> bool:
    """Whether ``label`` is one of the names in use for entailment."""
    return _normal(label) in _ENTAILED


def _normal(label: str) -> str:
    return label.strip().casefold().replace("-", "_").replace(" ", "_")


def _find(names: Mapping[int, str], wanted: frozenset[str]) -> int | None:
    return next((index for index, name in names.items() if name in wanted), None)
