"""Stores replay data in the event log, and reads it back. With this data, the decisions on a request can be replayed.

``GROUNDLANE_STORE_TEXT`` decides whether text is stored. If it isn't, each text is replaced with an ellipsis, as in
logged decisions.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, is_dataclass, replace
from dataclasses import fields as dataclass_fields
from enum import Enum
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from app.events.redaction import redact_consistency, redact_inputs
from app.settings import StoreText
from judges.types import Chunk, Claim, ClaimVerdict, Consistency, Span
from policies.base import JudgeOptions
from policies.reason_texts import ELLIPSIS
from policies.replay import ChoiceLog, RequestLog
from policies.types import PolicyInputs

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredChoice:
    record: PolicyInputs
    ready: bool = True
    complete: bool = True
    skipped: int = 0
    documents: int = 0
    cited_support: tuple[tuple[int, int, int, float], ...] = ()
    """``PolicyInputs.cited_support`` as tuples (start of the claim, end of the claim, document, score). It can't be
    stored as a mapping, because its keys aren't strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredRequest:
    """The content of ``requests.extra``. ``v`` is 0 in rows from old versions, which stored no replay data."""

    v: int = 0
    late: int = 0
    injectable: bool = False
    tools: bool | None = None
    conflicts: Consistency | None = None
    judging: JudgeOptions | None = None
    choices: tuple[_StoredChoice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredClaim:
    """The content of ``claims.extra``."""

    verdict: ClaimVerdict | None = None


_REQUEST = TypeAdapter(_StoredRequest)
_CLAIMS = TypeAdapter(list[_StoredClaim])
_ELSEWHERE: Mapping[Any, Set[str]] = {
    Claim: {"question", "context", "parts"},
    PolicyInputs: {"chunks", "claims", "cited_support"},
    ChoiceLog: {"inputs", "positions", "delivered"},
    RequestLog: {"chunks", "dropped", "stream", "blocked", "choices"},
}
"""Fields that are stored in separate rows or columns, or not at all, such as the user's question."""
_CLAIM_FIELDS = frozenset({"span", "sentence_index", "question_known", "correctable", "stands_alone"})
_VERDICT_FIELDS = frozenset(
    {
        "label",
        "entailed",
        "contradicted",
        "best_source",
        "contradicting_source",
        "corrected",
        "escalated",
        "reason",
        "judge_score",
        "support",
        "spans",
    }
)
"""The fields that contain no text of the reply. If text isn't stored, no other fields are."""


def request_extra(log: RequestLog, how: StoreText) -> dict[str, Any]:
    """Build ``requests.extra``, which holds the data that the document and claim rows of the request don't contain."""
    if how is not StoreText.FULL and log.conflicts is not None:
        log = replace(log, conflicts=redact_consistency(log.conflicts))
    found: dict[str, Any] = {"v": _VERSION, **_to_json(log)}
    if log.choices:
        found["choices"] = [_choice(choice, how) for choice in log.choices]
    return found


def _choice(choice: ChoiceLog, how: StoreText) -> dict[str, Any]:
    record = choice.inputs if how is StoreText.FULL else redact_inputs(choice.inputs)
    found: dict[str, Any] = {"record": _to_json(record), **_to_json(choice)}
    if choice.positions:
        found["documents"] = len(choice.positions)
    if support := choice.inputs.cited_support:
        found["cited_support"] = [(span.start, span.end, place, score) for (span, place), score in support.items()]
    return found


def claim_extra(verdict: ClaimVerdict, how: StoreText) -> dict[str, Any]:
    """Build ``claims.extra``, which holds the whole verdict except the text of its evidence. That text has a separate
    column."""
    stored: dict[str, Any] = _to_json(verdict)
    for name in ("best_source", "contradicting_source"):
        if name in stored:
            stored[name]["content"] = ""
    if verdict.corrected:
        stored["corrected"] = [_to_json(_scores_of(each)) for each in verdict.corrected]
    if how is not StoreText.FULL:
        claim = {name: value for name, value in stored["claim"].items() if name in _CLAIM_FIELDS}
        stored = {name: value for name, value in stored.items() if name in _VERDICT_FIELDS}
        stored["claim"] = {"text": ELLIPSIS, **claim}
        if verdict.correction is not None:
            stored["correction"] = ELLIPSIS
    return {"verdict": stored}


def _scores_of(verdict: ClaimVerdict) -> ClaimVerdict:
    """Return the parts of a corrected sentence's verdict that policies need. The log stores the text elsewhere."""
    return ClaimVerdict(
        claim=replace(verdict.claim, text=ELLIPSIS),
        label=verdict.label,
        entailed=verdict.entailed,
        contradicted=verdict.contradicted,
        escalated=verdict.escalated,
    )


def _to_json(value: Any) -> Any:
    """Convert ``value`` to JSON that ``TypeAdapter`` can read, without default values. This function runs for every
    request and claim. It takes a tenth of the time that ``TypeAdapter`` takes."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if (fields := _fields(kind)) is not None:
        return {
            name: own if type(own) in _PLAIN else _to_json(own)
            for name, default in fields
            if (own := getattr(value, name)) is not default and own != default
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _to_json(inner) for name, inner in value.items()}
    return [_to_json(inner) for inner in value]


_PLAIN = frozenset({str, int, float, bool, type(None)})


@cache
def _fields(kind: Any) -> Sequence[tuple[str, Any]] | None:
    """Return the fields to store with their defaults, or None if ``kind`` is not a dataclass."""
    if not is_dataclass(kind):
        return None
    left_out = _ELSEWHERE.get(kind, frozenset())
    if unknown := left_out - {each.name for each in dataclass_fields(kind)}:
        raise TypeError(f"_ELSEWHERE lists unknown fields of {kind}: {sorted(unknown)}")  # a field was renamed
    return [
        (each.name, each.default if each.default_factory is MISSING else each.default_factory())
        for each in dataclass_fields(kind)
        if each.name not in left_out
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRows:
    """The parts of a request's rows that determine the decisions on it. ``extra`` and ``claims`` are JSON text, and
    each claim comes with its choice. ``documents`` says whether each document was kept."""

    extra: str
    stream: bool
    blocked: bool
    claims: Sequence[tuple[int, str]] = ()
    documents: Sequence[tuple[Chunk, bool]] = field(default_factory=tuple)


def read_log(rows: LoggedRows) -> RequestLog | None:
    """Read the log of a request. Return None if its rows were written by a version that stored no replay data."""
    stored = _REQUEST.validate_json(rows.extra)
    if stored.v != _VERSION:
        return None
    kept = [position for position, (_, was_kept) in enumerate(rows.documents) if was_kept]
    claims = _claims_by_choice(rows.claims)
    return RequestLog(
        chunks=[chunk for chunk, _ in rows.documents],
        late=stored.late,
        dropped=frozenset(range(len(rows.documents))).difference(kept),
        injectable=stored.injectable,
        tools=stored.tools,
        conflicts=stored.conflicts,
        stream=rows.stream,
        blocked=rows.blocked,
        judging=stored.judging,
        choices=[
            ChoiceLog(
                inputs=replace(
                    choice.record,
                    claims=claims.get(number, ()),
                    cited_support={
                        (Span(start, end), document): score for start, end, document, score in choice.cited_support
                    },
                ),
                positions=tuple(kept[: choice.documents]),
                ready=choice.ready,
                complete=choice.complete,
                skipped=choice.skipped,
            )
            for number, choice in enumerate(stored.choices)
        ],
    )


def _claims_by_choice(rows: Sequence[tuple[int, str]]) -> Mapping[int, Sequence[ClaimVerdict]]:
    stored = _CLAIMS.validate_json(f"[{','.join(extra for _, extra in rows)}]")
    found: dict[int, list[ClaimVerdict]] = {}
    for (choice, _), claim in zip(rows, stored, strict=True):
        if claim.verdict is not None:
            found.setdefault(choice, []).append(claim.verdict)
    return found
