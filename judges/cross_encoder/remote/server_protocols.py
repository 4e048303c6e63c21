"""What judges served over HTTP speak: how pairs are asked about, and how the answer is read. Nothing here is sent.

Our own protocol, both sides of it, is in ``plain``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from judges.cross_encoder.labels import Labels, read_labels
from judges.cross_encoder.remote.response_parsing import SUM_TOLERANCE, items, number, objects, whole
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import Probabilities

Pair = tuple[str, str]

SPECIAL_TOKENS = 4
"""Most tokens that a tokenizer puts round a pair."""
_PLACES = re.compile(r"(\{evidence\}|\{claim\})")


class Server(Protocol):
    """One protocol, spoken by one server with one model."""

    @property
    def model(self) -> str:
        """Name, and version where the server tells one."""
        ...

    @property
    def path(self) -> str:
        """What is asked, from the server's base URL on."""
        ...

    @property
    def room(self) -> int:
        """Most tokens that evidence and claim may have together."""
        ...

    @property
    def batch(self) -> int:
        """Most pairs in one request."""
        ...

    @property
    def languages(self) -> frozenset[str] | None: ...

    def ask(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """The body of the request."""
        ...

    @property
    def fuses(self) -> bool:
        """Whether it takes ``Windows`` part by part, and says what each holds."""
        ...

    def read(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        """The results of ``answer``, in the order of the pairs asked about. Raises JudgeError for any other answer."""
        ...


# Text Embeddings Inference


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEmbeddingsInference:
    """``POST /predict``: each label by name with its logit, best first."""

    model: str
    names: tuple[str, ...]
    labels: Labels
    room: int
    batch: int
    path: str = "/predict"
    languages: frozenset[str] | None = None
    fuses: bool = False

    def ask(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return {"inputs": [list(pair) for pair in pairs], "raw_scores": True, "truncate": True}

    def read(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        rows = [self._logits(row) for row in items(answer, len(pairs))]
        return self.labels.probabilities(np.array(rows))

    def _logits(self, row: Any) -> list[float]:
        by_name = {one.get("label"): one.get("score") for one in objects(row)}
        if by_name.keys() != set(self.names):
            raise JudgeError(f"the answer has the labels {sorted(map(str, by_name))}, not {sorted(self.names)}")
        return [number(by_name[name]) for name in self.names]


def text_embeddings_inference(info: Mapping[str, Any]) -> TextEmbeddingsInference:
    """From the answer of ``GET /info``. Raises JudgeUnavailableError for a model that does not classify."""
    kinds = info.get("model_type")
    kind = kinds.get("classifier") or kinds.get("reranker") if isinstance(kinds, dict) else None
    if not isinstance(kind, dict) or not isinstance(kind.get("id2label"), dict):
        raise JudgeUnavailableError(f"{info.get('model_id')} does not classify; its type is {kinds}")
    names = {int(place): str(name) for place, name in kind["id2label"].items()}
    labels = read_labels(names)
    if len(set(names.values())) < len(names):
        raise JudgeUnavailableError(f"two labels of {info.get('model_id')} have one name: {names}")
    version = info.get("model_sha")
    return TextEmbeddingsInference(
        model=str(info.get("model_id")) + (f"@{str(version)[:8]}" if version else ""),
        names=tuple(names[place] for place in sorted(names)),
        labels=labels,
        room=max(2, whole(info, "max_input_length") - SPECIAL_TOKENS),
        batch=whole(info, "max_client_batch_size"),
    )


# vLLM


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmScore:
    """``POST /score``: one number a pair. ``is_logit``: the server applies no sigmoid to it."""

    model: str
    room: int
    is_logit: bool = False
    batch: int = 64
    path: str = "/score"
    languages: frozenset[str] | None = None
    fuses: bool = False

    def ask(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return {
            "model": self.model,
            "text_1": [evidence for evidence, _ in pairs],
            "text_2": [claim for _, claim in pairs],
            "truncate_prompt_tokens": -1,
        }

    def read(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        scores = self.scores(answer, len(pairs))
        if self.is_logit:
            return Labels(size=1).probabilities(np.array(scores))
        if not all(0.0 <= score <= 1.0 for score in scores):
            raise JudgeError(f"{self.model} answered with a score outside 0 to 1")
        return [Probabilities(score, 1.0 - score, 0.0) for score in scores]

    def scores(self, answer: Any, count: int) -> list[float]:
        """The numbers as they are."""
        values = [row.get("score") for row in _data(answer, count)]
        return [number(value[0] if isinstance(value, list) and len(value) == 1 else value) for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmClassify:
    """``POST /classify``: the probabilities of one text, and the name of the highest. ``template`` makes one text of a
    pair; ``names`` has the labels in the order of the probabilities, and each answer is held against it."""

    model: str
    template: str
    names: tuple[str, ...]
    labels: Labels
    room: int
    batch: int = 64
    path: str = "/classify"
    languages: frozenset[str] | None = None
    fuses: bool = False

    def ask(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return classify_body(self.model, self.template, pairs)

    def read(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        rows = classified(answer, len(pairs))
        for row in rows:
            if len(row.probabilities) != len(self.names) or not _is(row.label, self.names[row.highest]):
                raise JudgeError(f"{self.model} answered with labels in another order than {', '.join(self.names)}")
        return [self._probabilities(row.probabilities) for row in rows]

    def _probabilities(self, row: Sequence[float]) -> Probabilities:
        entailed = row[self.labels.entailed]
        contradicted = 0.0 if self.labels.contradicted is None else row[self.labels.contradicted]
        return Probabilities(entailed, max(0.0, 1.0 - entailed - contradicted), contradicted)


@dataclass(frozen=True, slots=True)
class Classified:
    """One row of an answer of ``/classify``."""

    label: str | None
    probabilities: Sequence[float]

    @property
    def highest(self) -> int:
        return max(range(len(self.probabilities)), key=lambda place: self.probabilities[place])


def classify_body(model: str, template: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    """The request for ``/classify``. What evidence or claim hold of the template's own words is put in as it is."""
    parts = _PLACES.split(template)
    texts = ["".join({"{evidence}": e, "{claim}": c}.get(part, part) for part in parts) for e, c in pairs]
    return {"model": model, "input": texts, "truncate_prompt_tokens": -1}


def check_template(template: str) -> None:
    """Raises ValueError for a template that does not name evidence and claim once each."""
    if sorted(part for part in _PLACES.split(template) if part in ("{evidence}", "{claim}")) != [
        "{claim}",
        "{evidence}",
    ]:
        raise ValueError(f"template {template!r}: it names {{evidence}} and {{claim}}, once each")


def classified(answer: Any, count: int) -> list[Classified]:
    """The rows of an answer of ``/classify``. Raises JudgeError for any other."""
    rows = []
    for row in _data(answer, count):
        probabilities = row.get("probs")
        if not isinstance(probabilities, list) or not probabilities:
            raise JudgeError("the answer has a row without probabilities")
        numbers = [number(one) for one in probabilities]
        if len(numbers) > 1 and abs(sum(numbers) - 1.0) > SUM_TOLERANCE:
            raise JudgeError("the probabilities of a row do not add up to 1")
        label = row.get("label")
        rows.append(Classified(label if isinstance(label, str) else None, numbers))
    return rows


# Reading


@dataclass(slots=True)
class SeenLabels:
    """Learns which probability has which name from answers that name the highest only."""

    names: dict[int, str] = field(default_factory=dict)
    size: int = 0

    def note(self, rows: Sequence[Classified]) -> None:
        for row in rows:
            self.size = len(row.probabilities)
            if row.label is not None:
                self.names[row.highest] = row.label

    def order(self) -> tuple[str, ...] | None:
        """The names in order; None while more than one has not been seen. The last one of three is called ``other``."""
        missing = set(range(self.size)) - self.names.keys()
        if len(missing) > 1 or self.size < 2:
            return None
        return tuple(self.names.get(place, "other") for place in range(self.size))


def _data(answer: Any, count: int) -> list[Mapping[str, Any]]:
    rows = objects(items(answer.get("data") if isinstance(answer, dict) else None, count))
    return sorted(rows, key=lambda row: number(row.get("index")))


def _is(given: str | None, expected: str) -> bool:
    return given is None or expected == "other" or given.casefold() == expected.casefold()
