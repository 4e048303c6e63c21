"""Cases and the parser for case records. A case is an answer with the documents that should support it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.errors import InvalidRequestError
from app.protocols.documents.document_extraction import Documents, Limits
from app.protocols.documents.json_body import read_flag, read_string, refuse
from judges.types import Chunk

_LIMITS = Limits(documents=100_000, document_chars=100_000_000, total_chars=400_000_000)
"""Limits on the size of a case. They are far higher than the limits for a request, and only keep a corrupt file from
exhausting memory."""
_MOST_ID_CHARS = 500
_SCORING_OPTIONS = frozenset({"enabled", "scoring_mode", "include_reasoning"})


class CaseError(Exception):
    """A record is not a valid case. The message names the field."""


class ScoringMode(StrEnum):
    """With ``binary_yes_no``, a claim scores 0 or 1. With ``scale_1_5``, it scores 1 to 5, which is normalized to (raw
    - 1) / 4."""

    BINARY = "binary_yes_no"
    SCALE = "scale_1_5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How a case is scored. With ``include_reasoning``, the result includes the judge's reasoning."""

    mode: ScoringMode = ScoringMode.BINARY
    include_reasoning: bool = False
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case. ``output`` is judged against ``documents``. ``input`` is the question. The judge needs it to understand
    an output that begins with a short answer or a pronoun. ``reference`` is not used for judging. ``label`` is the
    human label of the output, as in the record. It is used only to compare judges."""

    case_id: str
    output: str
    documents: tuple[Chunk, ...] = ()
    input: str | None = None
    reference: str | None = None
    label: Any = None
    scoring: Scoring = Scoring()


def read_case(record: Mapping[str, Any], *, default_id: str = "case-1") -> Case:
    """Parse a record ``{case_id, input, output, context | documents, reference, label, grounding}``.

    ``context`` is a string or a list of strings. ``documents`` may have any form that a request accepts. A field that
    is None counts as missing, and unknown fields are ignored. Raises CaseError.
    """
    try:
        return Case(
            case_id=_identifier(record.get("case_id"), default_id),
            output=_output(record.get("output")),
            documents=_documents(record.get("context"), record.get("documents")),
            input=read_string(record.get("input"), "input"),
            reference=read_string(record.get("reference"), "reference"),
            label=record.get("label"),
            scoring=_scoring(record.get("grounding")),
        )
    except InvalidRequestError as error:
        raise CaseError(error.message) from None


def _identifier(value: Any, default: str) -> str:
    if value is None or value == "":
        return default
    if isinstance(value, bool) or not isinstance(value, str | int) or len(str(value)) > _MOST_ID_CHARS:
        refuse("case_id", f"a string of at most {_MOST_ID_CHARS} characters", value)
    return str(value)


def _output(value: Any) -> str:
    if not isinstance(value, str):
        refuse("output", "a string", value)
    return value


def _documents(context: Any, documents: Any) -> tuple[Chunk, ...]:
    if context is not None and documents is not None:
        raise InvalidRequestError("context: use either context or documents, not both.", param="context")
    if context is None:
        found = Documents(_LIMITS)
        found.take_all(documents)
        return tuple(found.chunks)
    texts = [context] if isinstance(context, str) else context
    if not isinstance(texts, list):
        refuse("context", "a string or a list of strings", context)
    found = Documents(_LIMITS, prefix="context")
    for index, text in enumerate(texts):
        path = "context" if isinstance(context, str) else f"context[{index}]"
        if not isinstance(text, str):
            refuse(path, "a string", text)
        if text.strip():
            found.take(text, path)
    return tuple(found.chunks)


def _scoring(value: Any) -> Scoring:
    if value is None:
        return Scoring()
    if isinstance(value, bool):
        return Scoring(enabled=value)
    if not isinstance(value, dict):
        refuse("grounding", "an object", value)
    for name in value:
        if name not in _SCORING_OPTIONS:
            raise InvalidRequestError(
                f"grounding: unknown option {str(name)[:60]!r}; expected one of {', '.join(sorted(_SCORING_OPTIONS))}.",
                param="grounding",
            )
    mode, enabled = value.get("scoring_mode"), value.get("enabled")
    if mode is not None and mode not in list(ScoringMode):
        refuse("grounding.scoring_mode", " or ".join(ScoringMode), mode)
    return Scoring(
        mode=ScoringMode.BINARY if mode is None else ScoringMode(mode),
        include_reasoning=read_flag(value.get("include_reasoning"), "grounding.include_reasoning"),
        enabled=enabled is None or read_flag(enabled, "grounding.enabled"),
    )
