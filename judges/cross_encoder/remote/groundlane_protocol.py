"""Implements both sides of Groundlane's own protocol for remote judges. This module does no I/O.

``POST /judge`` takes pairs and returns three probabilities for each. ``GET /info`` describes the judge. ``GET
/tokenizer`` returns the tokenizer that the judge counts tokens with. A judge that fuses windows (reads a claim's
windows in one pass) receives them as separate texts and scores each of them, as it does in process, so verdicts are the
same wherever the judge runs. A cascade reports which of its judges gave a score, a judge with two encoders reports the
probabilities of both, and a judge that calls a service reports the cost of the calls.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec

from judges.cross_encoder.remote.response_parsing import (
    distribution,
    list_of,
    objects,
    positive_integer,
    probability,
)
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, JudgeUnavailableError, PairScorer
from judges.types import EvidenceWindows, Probabilities, UnsupportedSpan, Windowing

PROTOCOL: Final = "groundlane-judge/1"

_MAX_PARTS = 256
"""Maximum number of windows that a claim may be judged against at once."""
_MAX_USAGE: Final = 10**9
"""Maximum number of tokens, milliseconds or dollars for one call; a judge that reports more is wrong."""
_NAMES: Final = ("entailed", "neutral", "contradicted")

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundlaneProtocol:
    """The gateway's side of the protocol. ``tokenizer`` is the SHA-256 of the file that ``/tokenizer`` returns, or None
    if the server has none."""

    model: str
    max_tokens: int
    max_batch: int
    path: str = "/judge"
    languages: frozenset[str] | None = None
    fuses: bool = False
    tokenizer: str | None = None
    threshold: float | None = None
    stage_thresholds: tuple[float | None, ...] = ()
    paid: bool = False
    windowing: Windowing | None = None

    def request_body(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return {"pairs": [{"evidence": self._evidence(evidence), "claim": claim} for evidence, claim in pairs]}

    def _evidence(self, evidence: str) -> str | list[str]:
        return list(evidence.parts) if self.fuses and isinstance(evidence, EvidenceWindows) else evidence

    def parse(self, answer: Any, pairs: Sequence[Pair]) -> list[Probabilities]:
        rows = objects(list_of(answer.get("scores") if isinstance(answer, dict) else None, len(pairs)))
        return [self._parse_row(row, evidence) for row, (evidence, _) in zip(rows, pairs, strict=True)]

    def _parse_row(self, row: Mapping[str, Any], evidence: str) -> Probabilities:
        if not self.fuses or not isinstance(evidence, EvidenceWindows) or len(evidence.parts) < 2:
            return self._probabilities(row)
        parts = objects(list_of(row.get("parts"), len(evidence.parts)))
        return self._probabilities(row, tuple(map(self._probabilities, parts)))

    def _probabilities(self, row: Mapping[str, Any], parts: tuple[Probabilities, ...] = ()) -> Probabilities:
        entailed, neutral, contradicted = distribution([row.get(name) for name in _NAMES])
        stage = row.get("stage", 0)
        if not isinstance(stage, int) or not 0 <= stage < max(1, len(self.stage_thresholds)):
            raise JudgeError("the stage of a score must be the position of a judge in the cascade")
        second = row.get("second")
        if isinstance(second, dict) and second.get("second") is not None:
            raise JudgeError("a judge has at most two encoders")
        return Probabilities(
            entailed=entailed,
            neutral=neutral,
            contradicted=contradicted,
            parts=parts,
            spans=_spans(row.get("spans", ())),
            stage=stage,
            provisional=row.get("provisional") is True,
            second=None if second is None else self._probabilities(objects([second])[0]),
        )

    def calls(self, answer: Any) -> list[LlmCall]:
        """Return the calls to services that the judge made for ``answer``. Raises JudgeError if they can't be
        parsed."""
        rows = answer.get("calls") if isinstance(answer, dict) else None
        try:
            calls = [] if rows is None else msgspec.convert(rows, list[LlmCall])
        except msgspec.ValidationError:
            calls = None
        if calls is None or not all(map(_is_plausible, calls)):
            raise JudgeError("calls: expected a list of LLM calls")
        return calls

    def model_changed(self, answer: Any) -> bool:
        """Return whether ``answer`` comes from a different model."""
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
        threshold=_threshold(info.get("threshold")),
        stage_thresholds=_stage_thresholds(info.get("stage_thresholds")),
        paid=info.get("paid") is True,
        windowing=_windowing(info.get("windows")),
    )


def _is_plausible(call: LlmCall) -> bool:
    numbers = (call.prompt_tokens, call.completion_tokens, call.latency_ms, call.cost_usd or 0.0)
    return all(0 <= value <= _MAX_USAGE for value in numbers)


def _threshold(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or not 0.0 < value < 1.0:
        raise JudgeUnavailableError(f"/info: threshold: expected a number between 0 and 1, not {value!r}")
    return float(value)


def _stage_thresholds(value: Any) -> tuple[float | None, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise JudgeUnavailableError("/info: stage_thresholds: expected a list")
    return tuple(map(_threshold, value))


def _windowing(value: Any) -> Windowing | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise JudgeUnavailableError("/info: windows: expected an object")
    tokens, sentences = positive_integer(value, "tokens"), positive_integer(value, "sentences")
    return Windowing(tokens=tokens, sentences=sentences)


def affinity(pairs: Sequence[Pair]) -> str:
    """Compute a key that routes pairs with the same evidence windows to the same replica, which has them cached. The
    key is the smallest hash of all windows, so claims that share most windows usually have the same key.
    """
    return min((_digest(part) for evidence, _ in pairs for part in _parts(evidence)), default="")


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _parts(evidence: str) -> Sequence[str]:
    return evidence.parts if isinstance(evidence, EvidenceWindows) else (evidence,)


def _spans(rows: Any) -> tuple[UnsupportedSpan, ...]:
    if not rows:
        return ()
    found = []
    for row in objects(rows):
        start, end = row.get("start"), row.get("end")
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end:
            raise JudgeError("a span must have integers as start and end, with 0 <= start < end")
        found.append(UnsupportedSpan(start, end, probability(row.get("score"))))
    return tuple(found)


# The judge's side


def info_response(
    scorer: PairScorer, *, batch: int, languages: Collection[str] | None, tokenizer: str | None
) -> dict[str, Any]:
    """Build the response to ``GET /info``.

    Args:
        scorer: the loaded judge.
        batch: maximum number of pairs per request.
        languages: the languages that the model supports; None means all.
        tokenizer: the SHA-256 of the tokenizer that it counts tokens with.
    """
    threshold: float | None = getattr(scorer, "threshold", None)
    windowing: Windowing | None = getattr(scorer, "windowing", None)
    optional = {
        "threshold": threshold,
        "stage_thresholds": list(getattr(scorer, "stage_thresholds", ())) or None,
        "paid": getattr(scorer, "paid", False) or None,
        "windows": windowing and {"tokens": windowing.tokens, "sentences": windowing.sentences},
    }
    return {
        "protocol": PROTOCOL,
        "model": scorer.name,
        "max_tokens": scorer.max_tokens,
        "max_batch": batch,
        "languages": None if languages is None else sorted(languages),
        "fuses": bool(getattr(scorer, "fuses", False)),
        "tokenizer": tokenizer,
    } | {name: value for name, value in optional.items() if value is not None}


def parse_judge_request(body: Any, *, batch: int) -> list[Pair]:
    """Parse the pairs in the body of ``POST /judge``. If the body is invalid, raise a ValueError that names the
    field."""
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


def judge_response(scores: Sequence[Probabilities], model: str, calls: Sequence[LlmCall] = ()) -> dict[str, Any]:
    """Build the response to ``POST /judge``. ``calls`` are the calls to services that the judge made for these
    scores."""
    response = {"scores": [_row(score) for score in scores], "model": model}
    return response | {"calls": [asdict(call) for call in calls]} if calls else response


def _row(score: Probabilities) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(score, name) for name in _NAMES}
    if score.stage:
        row["stage"] = score.stage
    if score.provisional:
        row["provisional"] = True
    if score.second is not None:
        row["second"] = _row(score.second)
    if score.parts:
        row["parts"] = [_row(part) for part in score.parts]
    if score.spans:
        row["spans"] = [{"start": span.start, "end": span.end, "score": span.score} for span in score.spans]
    return row
