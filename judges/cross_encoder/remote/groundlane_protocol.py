"""Our own protocol for a judge that is served elsewhere, both sides of it. Nothing here is sent.

``POST /judge`` takes pairs and answers three probabilities each; ``GET /info`` tells what the judge is, and ``GET
/tokenizer`` how it counts. A judge that fuses takes the windows of a claim one by one, as it does in process, and says
what each of them holds: so that the verdicts are the same wherever it runs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from judges.cross_encoder.remote.response_parsing import SUM_TOLERANCE, items, number, objects, whole
from judges.protocols import JudgeError, PairScorer
from judges.types import Probabilities, Windows

PROTOCOL: Final = "groundlane-judge/1"

_MOST_PARTS = 256
"""Windows that a claim may be read against at once."""
_NAMES: Final = ("entailed", "neutral", "contradicted")

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The gateway's side. ``tokenizer``: SHA-256 of what ``/tokenizer`` answers; None where the server has none."""

    model: str
    room: int
    batch: int
    path: str = "/judge"
    languages: frozenset[str] | None = None
    fuses: bool = False
    tokenizer: str | None = None

    def ask(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return {"pairs": [{"evidence": self._evidence(evidence), "claim": claim} for evidence, claim in pairs]}

    def _evidence(self, evidence: str) -> str | list[str]:
        return list(evidence.parts) if self.fuses and isinstance(evidence, Windows) else evidence

    def read(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        rows = objects(items(answer.get("scores") if isinstance(answer, dict) else None, len(pairs)))
        return [self._read(row, evidence) for row, (evidence, _) in zip(rows, pairs, strict=True)]

    def _read(self, row: Mapping[str, Any], evidence: str) -> Probabilities:
        if not self.fuses or not isinstance(evidence, Windows) or len(evidence.parts) < 2:
            return _probabilities(row)
        parts = objects(items(row.get("parts"), len(evidence.parts)))
        return _probabilities(row, tuple(map(_probabilities, parts)))

    def is_another(self, answer: Any) -> bool:
        """Whether ``answer`` says that it comes of another model than this."""
        told = answer.get("model") if isinstance(answer, dict) else None
        return told is not None and str(told) != self.model


def plain(info: Mapping[str, Any]) -> Plain:
    """From the answer of ``GET /info``. Raises JudgeUnavailableError where it lacks something."""
    languages, tokenizer = info.get("languages"), info.get("tokenizer")
    return Plain(
        model=str(info.get("model")),
        room=whole(info, "max_tokens"),
        batch=whole(info, "max_batch"),
        languages=frozenset(map(str, languages)) if isinstance(languages, list) else None,
        fuses=info.get("fuses") is True,
        tokenizer=tokenizer if isinstance(tokenizer, str) else None,
    )


def affinity(pairs: Sequence[Pair]) -> str:
    """A text by which pairs with the same windows of evidence can be brought to the same replica, which has read them.

    It is the least hash of them all, so that two claims whose windows are mostly the same mostly have the same text.
    """
    return min((_digest(part) for evidence, _ in pairs for part in _parts(evidence)), default="")


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _parts(evidence: str) -> Sequence[str]:
    return evidence.parts if isinstance(evidence, Windows) else (evidence,)


def _probabilities(row: Mapping[str, Any], parts: tuple[Probabilities, ...] = ()) -> Probabilities:
    found = [number(row.get(name)) for name in _NAMES]
    if min(found) < 0.0 or abs(sum(found) - 1.0) > SUM_TOLERANCE:
        raise JudgeError("the probabilities of a pair do not add up to 1")
    return Probabilities(*found, parts=parts)


# The judge's side


def info_of(
    scorer: PairScorer, *, batch: int, languages: Collection[str] | None, tokenizer: str | None
) -> dict[str, Any]:
    """What ``GET /info`` answers for ``scorer``, which is loaded. ``batch``: most pairs in one request; ``languages``:
    those that the model knows, None for all; ``tokenizer``: SHA-256 of what it counts by."""
    return {
        "protocol": PROTOCOL,
        "model": scorer.name,
        "max_tokens": scorer.max_tokens,
        "max_batch": batch,
        "languages": None if languages is None else sorted(languages),
        "fuses": bool(getattr(scorer, "fuses", False)),
        "tokenizer": tokenizer,
    }


def pairs_of(body: Any, *, batch: int) -> list[Pair]:
    """The pairs that the body of ``POST /judge`` asks about. Raises ValueError, naming the field, for any other."""
    rows = body.get("pairs") if isinstance(body, dict) else None
    if not isinstance(rows, list):
        raise ValueError("pairs: expected a list")
    if len(rows) > batch:
        raise ValueError(f"pairs: at most {batch} in one request, not {len(rows)}")
    return [_pair(row, f"pairs[{place}]") for place, row in enumerate(rows)]


def _pair(row: Any, where: str) -> Pair:
    if not isinstance(row, dict) or not isinstance(row.get("claim"), str):
        raise ValueError(f"{where}.claim: expected a text")
    evidence = row.get("evidence")
    if isinstance(evidence, str):
        return evidence, row["claim"]
    if not isinstance(evidence, list) or not all(isinstance(part, str) for part in evidence):
        raise ValueError(f"{where}.evidence: expected a text or a list of texts")
    if not 1 <= len(evidence) <= _MOST_PARTS:
        raise ValueError(f"{where}.evidence: expected 1 to {_MOST_PARTS} texts, not {len(evidence)}")
    return Windows(evidence), row["claim"]


def answer_of(scores: Sequence[Probabilities], model: str) -> dict[str, Any]:
    """What ``POST /judge`` answers."""
    return {"scores": [_row(score) for score in scores], "model": model}


def _row(score: Probabilities) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(score, name) for name in _NAMES}
    return row | ({"parts": [_row(part) for part in score.parts]} if score.parts else {})
