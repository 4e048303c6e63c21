"""Detects which protocol a judge server speaks, and which model it serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from judges.cross_encoder.label_mapping import LabelMapping, read_label_mapping
from judges.cross_encoder.remote.groundlane_protocol import PROTOCOL, groundlane_protocol
from judges.cross_encoder.remote.json_client import JsonClient, StatusError
from judges.cross_encoder.remote.server_protocols import (
    SPECIAL_TOKENS,
    JudgeServerProtocol,
    LabelsSeen,
    VllmClassifyProtocol,
    VllmScoreProtocol,
    classified,
    classify_body,
    text_embeddings_inference,
)
from judges.cross_encoder.remote.token_estimate import estimate_tokens
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, JudgeUnreachableError

KINDS = ("tei", "vllm", "groundlane")
_BY_PATH = {"/predict": "tei", "/classify": "vllm", "/score": "vllm", "/judge": "groundlane"}
_DEFAULT_TOKENS = 512

_EXAMPLES = (
    ("The bridge was opened in 1932 and is 503 metres long.", "The bridge was opened in 1932."),
    ("The bridge was opened in 1932 and is 503 metres long.", "The bridge was never opened."),
    ("The bridge was opened in 1932 and is 503 metres long.", "Tickets for the museum cost nine euros."),
    ("A cat is sleeping on the sofa.", "A cat is asleep."),
    ("A cat is sleeping on the sofa.", "No cat is sleeping."),
    ("A cat is sleeping on the sofa.", "The sofa was a present from her aunt."),
    ("All trains to the coast are cancelled today.", "No train runs to the coast today."),
    ("All trains to the coast are cancelled today.", "Trains to the coast run as usual today."),
    ("All trains to the coast are cancelled today.", "The driver of the bus is called Martin."),
)
"""Examples of an entailed, a contradicted and an unrelated claim, in that order. A server's scores for them show how to
interpret its scores in general."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeEndpoint:
    """The address of a judge server, and the properties that the user has configured. If ``kind`` or ``path`` is empty,
    it is detected."""

    base: str
    kind: str = ""
    path: str = ""
    model: str | None = None
    template: str | None = None
    labels: tuple[str, ...] = ()
    max_tokens: int | None = None
    languages: frozenset[str] | None = None


async def connect(client: JsonClient, target: JudgeEndpoint) -> JudgeServerProtocol:
    """Detect the protocol of the server at ``target``.

    Raises JudgeUnreachableError if the server does not respond, which may be temporary, and JudgeUnavailableError if it
    cannot judge.
    """
    kind = target.kind or _BY_PATH.get(target.path, "")
    try:
        info = None if kind == "vllm" else await _info(client, required=bool(kind))
        if info is None:
            return await _vllm(client, target)
        if kind == "groundlane" or (not kind and info.get("protocol") == PROTOCOL):
            return groundlane_protocol(info)
        return text_embeddings_inference(info)
    except JudgeUnavailableError as error:
        raise type(error)(f"judge at {target.base}: {error}") from error
    except JudgeOverloadedError as error:
        raise JudgeUnreachableError(f"judge at {target.base}: {error}") from error
    except JudgeError as error:
        raise JudgeUnavailableError(f"judge at {target.base}: {error}") from error


async def _info(client: JsonClient, *, required: bool) -> Mapping[str, Any] | None:
    try:
        info = await client.get("/info")
    except StatusError as error:
        if required or error.status != 404:
            raise
        return None
    if not isinstance(info, dict):
        raise JudgeUnavailableError("/info: expected a JSON object")
    return info


async def _vllm(client: JsonClient, target: JudgeEndpoint) -> JudgeServerProtocol:
    model, longest = _served(await client.get("/v1/models"), target.model)
    max_tokens = (target.max_tokens or longest or _DEFAULT_TOKENS) - SPECIAL_TOKENS
    if target.path != "/score" and (target.path or target.template or await _classifies(client, model)):
        return await _classify(client, target, model, max_tokens)
    return await _score(client, model, max_tokens)


def _served(models: Any, wanted: str | None) -> tuple[str, int | None]:
    rows = models.get("data") if isinstance(models, dict) else None
    known = {row["id"]: row for row in rows or () if isinstance(row, dict) and isinstance(row.get("id"), str)}
    name = wanted or next(iter(known), None)
    if name is None or name not in known:
        raise JudgeUnavailableError(f"the server has {sorted(known) or 'no model'}, not {wanted!r}")
    longest = known[name].get("max_model_len")
    return name, longest if isinstance(longest, int) and longest > 2 * SPECIAL_TOKENS else None


async def _classifies(client: JsonClient, model: str) -> bool:
    """Return whether the model has several classes. For a model with one class, ``/score`` is used instead. An
    embedding model has no classes and is rejected: its score would only be a similarity, which says nothing about
    entailment."""
    try:
        answer = await client.post("/classify", {"model": model, "input": ["a"]})
    except StatusError as error:
        raise JudgeUnavailableError(f"{model} is not a classifier ({error})") from error
    return len(classified(answer, 1)[0].probabilities) > 1


async def _score(client: JsonClient, model: str, max_tokens: int) -> VllmScoreProtocol:
    """Build the protocol for ``/score``. A model whose config has no activation returns logits, which can be recognised
    only by their range."""
    asked = VllmScoreProtocol(model=model, max_tokens=max_tokens)
    scores = asked.scores(await client.post(asked.path, asked.request_body(_EXAMPLES)), len(_EXAMPLES))
    return VllmScoreProtocol(
        model=model, max_tokens=max_tokens, is_logit=not all(0.0 <= score <= 1.0 for score in scores)
    )


async def _classify(client: JsonClient, target: JudgeEndpoint, model: str, max_tokens: int) -> VllmClassifyProtocol:
    if target.template is None:
        raise JudgeUnavailableError(
            "vLLM's /classify takes a single string: set how evidence and claim are joined, "
            "e.g. ?template={evidence}[SEP]{claim}"
        )
    answer = await client.post("/classify", classify_body(model, target.template, _EXAMPLES))
    seen = LabelsSeen()
    seen.note(classified(answer, len(_EXAMPLES)))
    names = target.labels or seen.order()
    labels = read_label_mapping(dict(enumerate(names)), size=seen.size) if names else LabelMapping(size=0)
    if names is None or (seen.size > 2 and labels.contradicted is None):
        known = ", ".join(f"{place}: {name}" for place, name in sorted(seen.names.items()))
        raise JudgeUnavailableError(
            f"cannot detect the order of {seen.size} labels from examples ({known}); set it: ?labels=..."
        )
    return VllmClassifyProtocol(
        model=model,
        template=target.template,
        names=tuple(names),
        labels=labels,
        max_tokens=max(SPECIAL_TOKENS, max_tokens - estimate_tokens(target.template)),
    )
