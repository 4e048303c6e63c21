"""Converts an event to rows that can be stored in tables or as a line of JSON."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from app.events.records import RequestEvent
from judges.concurrency import FreedInSteps
from judges.types import Label

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by table name, with parent tables first."""

_INT64 = 2**63


def event_rows(event: RequestEvent) -> Rows:
    """Build the rows of ``event``. Keys are derived from the request's id and the row's position, so the same event
    always has the same keys."""
    request = event.request
    row = _columns(request)
    request_id = row["request_id"]
    shared = {name: row[name] for name in ("request_id", "run_id", "agent", "model")}
    claims = FreedInSteps(
        _columns(claim) | {"request_id": request_id, "seq": seq, "ts": request.ts}
        for seq, claim in enumerate(event.claims)
    )
    documents = [_columns(document) | {"request_id": request_id, "ts": request.ts} for document in event.documents]
    return {
        "requests": [row | score_summary(claims, documents)],
        "decisions": [
            shared
            | {
                "id": f"{request_id}.{position:05d}",
                "position": position,
                "ts": request.ts,
                "policy_id": decision.policy_id,
                "policy_version": decision.policy_version,
                "policy_name": plain(decision.policy_name),
                "category": decision.category,
                "phase": decision.phase.value,
                "action": decision.action.value,
                "reason": plain(decision.reason),
                "reason_code": decision.reason_code,
                "metadata": plain(decision.metadata),
                "latency_ms": plain(decision.latency_ms),
                "shadow": position >= len(event.decisions),
            }
            for position, decision in enumerate((*event.decisions, *event.shadow))
        ],
        "claims": claims,
        "documents": documents,
    }


def score_summary(
    claims: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    """Return the lowest and the average score of a request's claims, and of the documents that were kept, as columns of
    ``requests``. A column is None if nothing has a score. Claims without a verdict don't count; the policies' score
    check ignores them too."""
    # Lines that earlier versions logged may lack a reason.
    judged = [row["score"] for row in claims if row["label"] != Label.NOT_A_CLAIM.value and row.get("reason") is None]
    relevance = [row["relevance_score"] for row in documents if row["kept"]]
    return {**_summary("claim", judged), **_summary("relevance", relevance)}


def _summary(of: str, scores: Sequence[float | None]) -> dict[str, float | None]:
    known = [score for score in scores if score is not None]
    return {
        f"lowest_{of}_score": min(known, default=None),
        f"average_{of}_score": fmean(known) if known else None,
    }


def _columns(row: Struct) -> dict[str, Any]:
    """Return the fields of a row, converted to plain JSON types except for its time."""
    found = asdict(row)
    for name, value in found.items():
        # Most values have one of these types. Checking for them here saves a call.
        if value is None or (kind := type(value)) is bool or (kind is str and value.isascii() and "\0" not in value):
            continue
        if not isinstance(value, datetime):
            found[name] = plain(value)
    return found


def plain(value: Any) -> Any:
    """Convert ``value`` to a form that every database accepts: no NUL or lone surrogate in strings, no NaN, only JSON
    types.

    An invalid character in a reply must not cause the loss of the event or of other events in the batch.
    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() and "\0" not in value else _text(value)
    if value is None or kind is bool or (kind is int and -_INT64 <= value < _INT64):
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    return value if kind is dict and _is_sound(value) else _plain(value)


def _is_sound(value: dict[str, Any]) -> bool:
    """Return whether ``value`` can be stored unchanged, judging by its JSON encoding. If the encoding contains
    ``null``, return False, because the encoder also writes NaN as ``null``."""
    try:
        encoded = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:
        return False
    return b"null" not in encoded and b"\\u0000" not in encoded


def _plain(value: Any) -> Any:
    match value:
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case str():
            return _text(str(value))
        case int():
            return int(value) if -_INT64 <= value < _INT64 else float(value) if abs(value) < 10**300 else None
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {_text(str(key)): plain(item) for key, item in value.items()}
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def dump(rows: Rows) -> bytes:
    """Serialize ``rows`` as one line of JSON."""
    return orjson.dumps(rows)


def load(line: bytes) -> Rows:
    """Read the rows that ``dump`` wrote."""
    rows: dict[str, list[dict[str, Any]]] = orjson.loads(line)
    # In lines from earlier versions, only requests and decisions have a time, so the request's time is set in every
    # row.
    ts = datetime.fromisoformat(rows["requests"][0]["ts"])
    for table in rows.values():
        for row in table:
            row["ts"] = ts
    for row in rows["requests"]:
        if "lowest_claim_score" not in row:  # Earlier versions didn't log the score summary.
            row |= score_summary(rows["claims"], rows["documents"])
    return rows
