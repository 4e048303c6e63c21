"""Converts a model's logits to probabilities, using the labels in its config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from judges.protocols import JudgeUnavailableError
from judges.types import Probabilities

_ENTAILED = frozenset({"entailment", "entailed", "entail", "entails", "supported", "supports", "support", "consistent"})
_CONTRADICTED = frozenset({"contradiction", "contradicted", "contradict", "contradictory", "refuted", "refutes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMapping:
    """The index of each label among a model's logits.

    ``contradicted`` is None for a model without this label, for which every claim that isn't entailed is neutral.
    ``size`` is the number of logits; a single logit is the log-odds of entailment.
    """

    size: int
    entailed: int = 0
    contradicted: int | None = None

    def probabilities(self, logits: npt.NDArray[np.floating]) -> list[Probabilities]:
        """Convert ``logits`` of shape (pairs, ``size``) to probabilities: sigmoid for a single logit, softmax for
        several."""
        rows = np.asarray(logits, dtype=np.float64).reshape(-1, self.size)
        if self.size == 1:
            return [Probabilities(p, 1.0 - p, 0.0) for p in (0.5 * (1.0 + np.tanh(0.5 * rows[:, 0]))).tolist()]
        powers = np.exp(rows - rows.max(axis=1, keepdims=True))
        return [self._read(row) for row in (powers / powers.sum(axis=1, keepdims=True)).tolist()]

    def _read(self, row: Sequence[float]) -> Probabilities:
        entailed = row[self.entailed]
        contradicted = 0.0 if self.contradicted is None else row[self.contradicted]
        return Probabilities(entailed, max(0.0, 1.0 - entailed - contradicted), contradicted)


def read_label_mapping(id2label: Mapping[str, str] | Mapping[int, str], *, size: int | None = None) -> LabelMapping:
    """Build the label mapping for a config's ``id2label``.

    ``size`` is the number of logits, if known. Raises JudgeUnavailableError if no label means entailment or if the
    labels do not match the model.
    """
    names = {int(key): _normal(value) for key, value in id2label.items()}
    if size is not None and names and len(names) != size:
        raise JudgeUnavailableError(f"the config names {len(names)} labels, but the model has {size}")
    if size == 1 or len(names) == 1:
        return LabelMapping(size=1)
    entailed = _find(names, _ENTAILED)
    if entailed is None or sorted(names) != list(range(len(names))):
        raise JudgeUnavailableError(
            f"expected one logit, or an id2label with 'entailment' and optionally 'contradiction'; found {names}; "
            "name the classes in the model's config.json, or use its preset (`groundlane judges`)"
        )
    return LabelMapping(
        size=len(names),
        entailed=entailed,
        contradicted=_find(names, _CONTRADICTED),
    )


def means_entailment(label: str) -> bool:
    """Return whether ``label`` is a common name for entailment."""
    return _normal(label) in _ENTAILED


def _normal(label: str) -> str:
    return label.strip().casefold().replace("-", "_").replace(" ", "_")


def _find(names: Mapping[int, str], wanted: frozenset[str]) -> int | None:
    return next((index for index, name in names.items() if name in wanted), None)
