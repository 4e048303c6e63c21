"""Builds the requests and parses the responses of judge servers. This module does no I/O.

Groundlane's own protocol is in ``groundlane_protocol``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from judges.cross_encoder.label_mapping import LabelMapping, read_label_mapping
from judges.cross_encoder.remote.response_parsing import (
    distribution,
    list_of,
    number,
    objects,
    positive_integer,
    probability,
)
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import Probabilities

Pair = tuple[str, str]

SPECIAL_TOKENS = 4
"""Maximum number of special tokens that a tokenizer adds to a pair."""
_PLACES = re.compile(r"(\{evidence\}|\{claim\})")


class JudgeServerProtocol(Protocol):
    """The protocol of one server with one model."""

    @property
    def model(self) -> str:
        """The model's name, with its version if the server reports one."""
        ...

    @property
    def path(self) -> str:
        """The path of requests, relative to the server's base URL."""
        ...

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens in evidence and claim together."""
        ...

    @property
    def max_batch(self) -> int:
        """Maximum number of pairs per request."""
        ...

    @property
    def languages(self) -> frozenset[str] | None: ...

    def request_body(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Build the request body for ``pairs``."""
        ...

    @property
    def fuses(self) -> bool:
        """Whether the server accepts the parts of ``EvidenceWindows`` separately and scores each of them."""
        ...

    def parse(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        """Parse the results in ``answer``, one for each of ``pairs``, in order. Raises JudgeError for an invalid
        response."""
        ...


# Text Embeddings Inference


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEmbeddingsInferenceProtocol:
    """Text Embeddings Inference, ``POST /predict``: returns all label names with their logits, highest first."""

    model: str
    names: tuple[str, ...]
    labels: LabelMapping
    max_tokens: int
    max_batch: int
    path: str = "/predict"
    languages: frozenset[str] | None = None
    fuses: bool = False

    def request_body(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return {"inputs": [list(pair) for pair in pairs], "raw_scores": True, "truncate": True}

    def parse(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        rows = [self._logits(row) for row in list_of(answer, len(pairs))]
        return self.labels.probabilities(np.array(rows))

    def _logits(self, row: Any) -> list[float]:
        by_name = {str(one.get("label")): one.get("score") for one in objects(row)}
        if len(row) != len(self.names) or by_name.keys() != set(self.names):
            raise JudgeError(f"unexpected labels in the response: {sorted(by_name)}; expected {sorted(self.names)}")
        return [number(by_name[name]) for name in self.names]


def text_embeddings_inference(info: Mapping[str, Any]) -> TextEmbeddingsInferenceProtocol:
    """Build the protocol from the response to ``GET /info``. Raises JudgeUnavailableError if the model is not a
    classifier."""
    kinds = info.get("model_type")
    kind = kinds.get("classifier") or kinds.get("reranker") if isinstance(kinds, dict) else None
    if not isinstance(kind, dict) or not isinstance(kind.get("id2label"), dict):
        raise JudgeUnavailableError(f"{info.get('model_id')} is not a classifier; its type is {kinds}")
    names = {int(place): str(name) for place, name in kind["id2label"].items()}
    labels = read_label_mapping(names)
    if len(set(names.values())) < len(names):
        raise JudgeUnavailableError(f"two labels of {info.get('model_id')} have the same name: {names}")
    version = info.get("model_sha")
    return TextEmbeddingsInferenceProtocol(
        model=str(info.get("model_id")) + (f"@{str(version)[:8]}" if version else ""),
        names=tuple(names[place] for place in sorted(names)),
        labels=labels,
        max_tokens=max(2, positive_integer(info, "max_input_length") - SPECIAL_TOKENS),
        max_batch=positive_integer(info, "max_client_batch_size"),
    )


# vLLM


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmScoreProtocol:
    """vLLM, ``POST /score``: returns one number per pair. ``is_logit`` means that the server does not apply a sigmoid
    to it."""

    model: str
    max_tokens: int
    is_logit: bool = False
    max_batch: int = 64
    path: str = "/score"
    languages: frozenset[str] | None = None
    fuses: bool = False

    def request_body(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return {
            "model": self.model,
            "text_1": [evidence for evidence, _ in pairs],
            "text_2": [claim for _, claim in pairs],
            "truncate_prompt_tokens": -1,
        }

    def parse(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        scores = self.scores(answer, len(pairs))
        if self.is_logit:
            return LabelMapping(size=1).probabilities(np.array(scores))
        return [Probabilities(score, 1.0 - score, 0.0) for score in map(probability, scores)]

    def scores(self, answer: Any, count: int) -> list[float]:
        """Return the numbers in ``answer``, unchanged."""
        values = [row.get("score") for row in _data(answer, count)]
        return [number(value[0] if isinstance(value, list) and len(value) == 1 else value) for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmClassifyProtocol:
    """vLLM, ``POST /classify``: returns the probabilities for one text, and the name of the most probable label.
    ``template`` turns a pair into one text. ``names`` are the labels in the order of the probabilities; the label in
    each answer must be consistent with them."""

    model: str
    template: str
    names: tuple[str, ...]
    labels: LabelMapping
    max_tokens: int
    max_batch: int = 64
    path: str = "/classify"
    languages: frozenset[str] | None = None
    fuses: bool = False

    def request_body(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return classify_body(self.model, self.template, pairs)

    def parse(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        rows = classified(answer, len(pairs))
        for row in rows:
            if len(row.probabilities) != len(self.names) or not _is(row.label, self.names[row.highest]):
                raise JudgeError(f"{self.model} returned its labels in a different order from {', '.join(self.names)}")
        return [self._probabilities(row.probabilities) for row in rows]

    def _probabilities(self, row: Sequence[float]) -> Probabilities:
        entailed = probability(row[self.labels.entailed])
        contradicted = 0.0 if self.labels.contradicted is None else row[self.labels.contradicted]
        return Probabilities(entailed, max(0.0, 1.0 - entailed - contradicted), contradicted)


@dataclass(frozen=True, slots=True)
class Classified:
    """One row in a response from ``/classify``."""

    label: str | None
    probabilities: Sequence[float]

    @property
    def highest(self) -> int:
        return max(range(len(self.probabilities)), key=lambda place: self.probabilities[place])


def classify_body(model: str, template: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Build the request body for ``/classify``. Placeholders inside evidence or claim are not replaced."""
    parts = _PLACES.split(template)
    texts = ["".join({"{evidence}": e, "{claim}": c}.get(part, part) for part in parts) for e, c in pairs]
    return {"model": model, "input": texts, "truncate_prompt_tokens": -1}


def check_template(template: str) -> None:
    """Check that ``template`` contains ``{evidence}`` and ``{claim}`` once each. Raises ValueError."""
    if sorted(part for part in _PLACES.split(template) if part in ("{evidence}", "{claim}")) != [
        "{claim}",
        "{evidence}",
    ]:
        raise ValueError(f"template {template!r}: expected {{evidence}} and {{claim}}, once each")


def classified(answer: Any, count: int) -> list[Classified]:
    """Parse the rows in a response from ``/classify``. Raises JudgeError for an invalid response."""
    rows = []
    for row in _data(answer, count):
        probabilities = row.get("probs")
        if not isinstance(probabilities, list) or not probabilities:
            raise JudgeError("a row in the response has no probabilities")
        # A model with a single class may return a logit.
        numbers = distribution(probabilities) if len(probabilities) > 1 else [number(probabilities[0])]
        label = row.get("label")
        rows.append(Classified(label if isinstance(label, str) else None, numbers))
    return rows


# Parsing


@dataclass(slots=True)
class LabelsSeen:
    """Infers the label of each probability from responses that name only the most probable label."""

    names: dict[int, str] = field(default_factory=dict)
    size: int = 0

    def note(self, rows: Sequence[Classified]) -> None:
        for row in rows:
            self.size = len(row.probabilities)
            if row.label is not None:
                self.names[row.highest] = row.label

    def order(self) -> tuple[str, ...] | None:
        """Return the label names in order, or None while more than one is unknown. If only one is unknown, it is called
        ``other``."""
        missing = set(range(self.size)) - self.names.keys()
        if len(missing) > 1 or self.size < 2:
            return None
        return tuple(self.names.get(place, "other") for place in range(self.size))


def _data(answer: Any, count: int) -> list[Mapping[str, Any]]:
    rows = objects(list_of(answer.get("data") if isinstance(answer, dict) else None, count))
    rows = sorted(rows, key=lambda row: number(row.get("index")))
    if [row["index"] for row in rows] != list(range(count)):
        raise JudgeError(f"the results do not have the indexes 0 to {count - 1}")
    return rows


def _is(given: str | None, expected: str) -> bool:
    return given is None or expected == "other" or given.casefold() == expected.casefold()
