"""Both sides of Groundlane's own protocol for a remote judge. This module does no I/O.

``POST /judge`` takes pairs and returns three probabilities for each; ``GET /info`` describes the judge, and ``GET
/tokenizer`` returns the tokenizer it counts by. A judge that fuses receives the windows of a claim separately and
scores each of them, as it does in process, so that verdicts are the same wherever it runs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from judges.cross_encoder.remote.response_parsing import SUM_TOLERANCE, list_of, number, objects, positive_integer
from judges.protocols import JudgeError, PairScorer
from judges.types import EvidenceWindows, Probabilities

PROTOCOL: Final = "groundlane-judge/1"

_MAX_PARTS = 256
"""Maximum number of windows that a claim may be judged against together."""
_NAMES: Final = ("entailed", "neutral", "contradicted")

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundlaneProtocol:
    """The gateway's side. ``tokenizer`` is the SHA-256 of the file that ``/tokenizer`` returns, or None if the server
    has none."""

    model: str
    max_tokens: int
    max_batch: int
    path: str = "/judge"
    languages: frozenset[str] | None = None
    fuses: bool = False
    tokenizer: str | None = None

    def request_body(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return {"pairs": [{"evidence": self._evidence(evidence), "claim": claim} for evidence, claim in pairs]}

    def _evidence(self, evidence: str) -> str | list[str]:
        return list(evidence.parts) if self.fuses and isinstance(evidence, EvidenceWindows) else evidence

    def parse(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        rows = objects(list_of(answer.get("scores") if isinstance(answer, dict) else None, len(pairs)))
        return [self._parse_row(row, evidence) for row, (evidence, _) in zip(rows, pairs, strict=True)]

    def _parse_row(self, row: Mapping[str, Any], evidence: str) -> Probabilities:
        if not self.fuses or not isinstance(evidence, EvidenceWindows) or len(evidence.parts) < 2:
            return _probabilities(row)
        parts = objects(list_of(row.get("parts"), len(evidence.parts)))
        return _probabilities(row, tuple(map(_probabilities, parts)))

    def model_changed(self, answer: Any) -> bool:
        """Whether ``answer`` comes from a different model."""
        model = answer.get("model") if isinstance(answer, dict) else None
        return model is not None and str(model) != self.model


def groundlane_protocol(info: Mapping[str, Any]) -> GroundlaneProtocol:
    """Build the protocol from the response to ``GET /info``. Raises JudgeUnavailableError if a field is missing."""
    languages, tokenizer = info.get("languages"), info.get("tokenizer")
    return GroundlaneProtocol(
        model=str(info.get("model")),
        max_tokens=positive_integer(info, "max_tokens"),
        max_batch=positive_integer(info, "max_batch"),
        languages=frozenset(map(str, languages)) if isinstance(languages, list) else None,
        fuses=info.get("fuses") is True,
        tokenizer=tokenizer if isinstance(tokenizer, str) else None,
    )


def affinity(pairs: Sequence[Pair]) -> str:
    """Compute a key that routes pairs with the same windows of evidence to the same replica, which has them cached.

    It is the smallest hash of all windows, so that claims that share most windows usually have the same key.
    """
    return min((_digest(part) for evidence, _ in pairs for part in _parts(evidence)), default="")


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _parts(evidence: str) -> Sequence[str]:
    return evidence.parts if isinstance(evidence, EvidenceWindows) else (evidence,)


def _probabilities(row: Mapping[str, Any], parts: tuple[Probabilities, ...] = ()) -> Probabilities:
    found = [number(row.get(name)) for name in _NAMES]
    if min(found) < 0.0 or abs(sum(found) - 1.0) > SUM_TOLERANCE:
        raise JudgeError("the probabilities of a pair do not sum to 1")
    return Probabilities(*found, parts=parts)


# The judge's side


def info_response(
    scorer: PairScorer, *, batch: int, languages: Collection[str] | None, tokenizer: str | None
) -> dict[str, Any]:
    """Build the response to ``GET /info``.

    Args:
        scorer: the judge, loaded.
        batch: maximum number of pairs per request.
        languages: the languages that the model knows; None for all.
        tokenizer: the SHA-256 of the tokenizer that it counts tokens with.
    """
    return {
        "protocol": PROTOCOL,
        "model": scorer.name,
        "max_tokens": scorer.max_tokens,
        "max_batch": batch,
        "languages": None if languages is None else sorted(languages),
        "fuses": bool(getattr(scorer, "fuses", False)),
        "tokenizer": tokenizer,
    }


def parse_judge_request(body: Any, *, batch: int) -> list[Pair]:
    """Parse the pairs in the body of ``POST /judge``. Raises ValueError, which names the field, for an invalid body."""
    rows = body.get("pairs") if isinstance(body, dict) else None
    if not isinstance(rows, list):
        raise ValueError("pairs: expected a list")
    if len(rows) > batch:
        raise ValueError(f"pairs: at most {batch} in one request, not {len(rows)}")
    return [_pair(row, f"pairs[{place}]") for place, row in enumerate(rows)]


def _pair(row: Any, where: str) -> Pair:
    if not isinstance(row, dict) or not isinstance(row.get("claim"), str):
        raise ValueError(f"{where}.claim: expected a string")
    evidence = row.get("evidence")
    if isinstance(evidence, str):
        return evidence, row["claim"]
    if not isinstance(evidence, list) or not all(isinstance(part, str) for part in evidence):
        raise ValueError(f"{where}.evidence: expected a string or a list of strings")
    if not 1 <= len(evidence) <= _MAX_PARTS:
        raise ValueError(f"{where}.evidence: expected 1 to {_MAX_PARTS} strings, not {len(evidence)}")
    return EvidenceWindows(evidence), row["claim"]


def judge_response(scores: Sequence[Probabilities], model: str) -> dict[str, Any]:
    """Build the response to ``POST /judge``."""
    return {"scores": [_row(score) for score in scores], "model": model}


def _row(score: Probabilities) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(score, name) for name in _NAMES}
    return row | ({"parts": [_row(part) for part in score.parts]} if score.parts else {})
