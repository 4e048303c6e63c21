"""Finds out which protocol a judge server speaks, and what its model is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from judges.cross_encoder.labels import Labels, read_labels
from judges.cross_encoder.remote.groundlane_protocol import PROTOCOL, plain
from judges.cross_encoder.remote.json_client import JsonClient, StatusError
from judges.cross_encoder.remote.server_protocols import (
    SPECIAL_TOKENS,
    SeenLabels,
    Server,
    VllmClassify,
    VllmScore,
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
"""Entailed, contradicted and unrelated claims, in turn: what a server says of them shows how its answers are to be
read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a judge is to be found, and what is known of it beforehand. ``kind`` and ``path`` are empty where they are
    to be found out."""

    base: str
    kind: str = ""
    path: str = ""
    model: str | None = None
    template: str | None = None
    labels: tuple[str, ...] = ()
    max_tokens: int | None = None
    languages: frozenset[str] | None = None


async def connect(client: JsonClient, target: Target) -> Server:
    """Ask the server what it is. Raises JudgeUnreachableError where it does not say, which may pass, and
    JudgeUnavailableError where it cannot judge."""
    kind = target.kind or _BY_PATH.get(target.path, "")
    try:
        info = None if kind == "vllm" else await _info(client, required=bool(kind))
        if info is None:
            return await _vllm(client, target)
        if kind == "groundlane" or (not kind and info.get("protocol") == PROTOCOL):
            return plain(info)
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
        raise JudgeUnavailableError("/info has another form than expected")
    return info


async def _vllm(client: JsonClient, target: Target) -> Server:
    model, longest = _served(await client.get("/v1/models"), target.model)
    room = (target.max_tokens or longest or _DEFAULT_TOKENS) - SPECIAL_TOKENS
    if target.path != "/score" and (target.path or target.template or await _classifies(client, model)):
        return await _classify(client, target, model, room)
    return await _score(client, model, room)


def _served(models: Any, wanted: str | None) -> tuple[str, int | None]:
    rows = models.get("data") if isinstance(models, dict) else None
    known = {row["id"]: row for row in rows or () if isinstance(row, dict) and isinstance(row.get("id"), str)}
    name = wanted or next(iter(known), None)
    if name is None or name not in known:
        raise JudgeUnavailableError(f"it serves {sorted(known) or 'no model'}, not {wanted!r}")
    longest = known[name].get("max_model_len")
    return name, longest if isinstance(longest, int) and longest > 2 * SPECIAL_TOKENS else None


async def _classifies(client: JsonClient, model: str) -> bool:
    """Whether the model has several classes. One that has a single class is asked for scores; one that has none, an
    embedding model, would answer there too, with a similarity that says nothing of entailment."""
    try:
        answer = await client.post("/classify", {"model": model, "input": ["a"]})
    except StatusError as error:
        raise JudgeUnavailableError(f"{model} does not classify ({error})") from error
    return len(classified(answer, 1)[0].probabilities) > 1


async def _score(client: JsonClient, model: str, room: int) -> VllmScore:
    """Models whose config has no activation answer with logits; nothing but the range of their answers tells."""
    asked = VllmScore(model=model, room=room)
    scores = asked.scores(await client.post(asked.path, asked.ask(_EXAMPLES)), len(_EXAMPLES))
    return VllmScore(model=model, room=room, is_logit=not all(0.0 <= score <= 1.0 for score in scores))


async def _classify(client: JsonClient, target: Target, model: str, room: int) -> VllmClassify:
    if target.template is None:
        raise JudgeUnavailableError(
            "vLLM's /classify takes one text: say how evidence and claim make one, "
            "e.g. ?template={evidence}[SEP]{claim}"
        )
    answer = await client.post("/classify", classify_body(model, target.template, _EXAMPLES))
    seen = SeenLabels()
    seen.note(classified(answer, len(_EXAMPLES)))
    names = target.labels or seen.order()
    labels = read_labels(dict(enumerate(names)), size=seen.size) if names else Labels(size=0)
    if names is None or (seen.size > 2 and labels.contradicted is None):
        told = ", ".join(f"{place}: {name}" for place, name in sorted(seen.names.items()))
        raise JudgeUnavailableError(
            f"the answers to examples name too few of {seen.size} labels ({told}); say all, in order: ?labels=..."
        )
    return VllmClassify(
        model=model,
        template=target.template,
        names=tuple(names),
        labels=labels,
        room=max(SPECIAL_TOKENS, room - estimate_tokens(target.template)),
    )
