"""The requests and responses of a run, shared by synchronous and asynchronous runs."""

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import Any, SupportsFloat
from uuid import uuid4

from groundlane._errors import PolicyViolationError, UnexpectedAnswerError
from groundlane._fields import Fields
from groundlane._transport import Call, segment
from groundlane._types import Decision

_UNSET: Any = object()


class Recording:
    """The state of a run. ``decisions`` contains all decisions so far."""

    _outer: "Token[Recording | None]"
    """The enclosing run. It is set when this run starts."""

    def __init__(self, agent_name: str, *, model: str | None, enforce_policy: bool) -> None:
        if not agent_name:
            raise ValueError("agent_name must not be empty")
        self.agent_name = agent_name
        self.model = model
        self.enforce_policy = enforce_policy
        self.decisions: tuple[Decision, ...] = ()
        self._run_id: str | None = None
        self._result: Any = _UNSET
        self._over = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._run_id or '(not started)'} of {self.agent_name!r}>"

    @property
    def run_id(self) -> str:
        """The id that the gateway assigned to the run. Raises RuntimeError before the run has started."""
        if self._run_id is None:
            raise RuntimeError("the run has not started: use it in a with statement")
        return self._run_id

    @property
    def has_result(self) -> bool:
        return self._result is not _UNSET

    def set_result(self, result: Any) -> None:
        """Set the result of the run to a JSON value, which is sent when the run ends. Raises TypeError for other
        values, and RuntimeError after the run has ended."""
        self._check_open()
        try:
            json.dumps(result, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"the result must be JSON: {error}") from None
        self._result = result

    # Start and end

    def _enter(self) -> None:
        self._outer = CURRENT.set(self)

    def _leave(self) -> None:
        self._over = True
        # A generator that contains the run may be closed in a different context from the one in which it started. The
        # variable is set only in the original context.
        with suppress(ValueError):
            CURRENT.reset(self._outer)

    def _check_open(self) -> None:
        if self._over:
            raise RuntimeError("the run has ended: call this inside its with statement")

    # Calls

    def _opening(self) -> Call:
        if self._run_id is not None:
            raise RuntimeError("the run has already started: create a new run for each with statement")
        named = {"agent": self.agent_name, "model": self.model}
        return Call(method="POST", path="/v1/runs", body=_given(named))

    def _retrieval(self, fields: Mapping[str, Any]) -> Call:
        self._check_open()
        return self._call("retrieval", fields)

    def _grounding(
        self,
        grounding_scores: Iterable[SupportsFloat] | None,
        citations: Iterable[str] | None,
        unsupported_claims: Iterable[str] | None,
        output_confidence: SupportsFloat | None,
    ) -> Call:
        self._check_open()
        for name, value in (("citations", citations), ("unsupported_claims", unsupported_claims)):
            if isinstance(value, str):
                raise TypeError(f"{name} must be a list of strings, not a single string")
        fields = {
            "grounding_scores": _numbers("grounding_scores", grounding_scores),
            "citations": None if citations is None else list(citations),
            "unsupported_claims": None if unsupported_claims is None else list(unsupported_claims),
            "output_confidence": _number("output_confidence", output_confidence),
        }
        return self._call("grounding", fields)

    def _completion(self) -> Call:
        return self._call("complete", {"result": self._result} if self.has_result else {})

    def _call(self, what: str, fields: Mapping[str, Any]) -> Call:
        return Call(method="POST", path=f"/v1/runs/{segment(self.run_id)}/{what}", body=_given(fields), key=uuid4().hex)

    # Answers

    def _started(self, answer: Mapping[str, Any]) -> None:
        self._run_id = Fields(answer).text("run_id")
        if self._run_id is None:
            raise UnexpectedAnswerError("The gateway's response has no run id.")
        self.decisions += Decision.each(answer.get("decisions"))

    def _decided(self, answer: Mapping[str, Any]) -> tuple[Decision, ...]:
        """Read the decisions in ``answer``. Raises PolicyViolationError if a decision blocks and policies are
        enforced."""
        decisions = Decision.each(answer.get("decisions"))
        self.decisions += decisions
        blocking = [decision for decision in decisions if decision.blocks]
        if blocking and self.enforce_policy:
            raise PolicyViolationError(
                "; ".join(decision.reason for decision in blocking),
                decisions=decisions,
                code=blocking[0].reason_code,
                abstention_response=Fields(answer).text("abstention_response"),
                request_id=Fields(answer).text("request_id"),
            )
        return decisions


def document_fields(
    *,
    relevance_score: SupportsFloat | None,
    source: str | None,
    collection: str | None,
    age_days: SupportsFloat | None,
    **others: Any,
) -> dict[str, Any]:
    """Build a document in the gateway's format. Scores may have any numeric type, including NumPy's."""
    return {
        "relevance_score": _number("relevance_score", relevance_score),
        "source": source,
        "collection": collection,
        "age_days": _number("age_days", age_days),
        **others,
    }


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _number(name: str, value: SupportsFloat | None) -> float | None:
    """Convert ``value`` to a float. Raises ValueError for NaN and infinity."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, not {number}")
    return number


def _numbers(name: str, values: Iterable[SupportsFloat] | None) -> list[float | None] | None:
    return None if values is None else [_number(name, value) for value in values]


CURRENT: ContextVar[Recording | None] = ContextVar("groundlane_run", default=None)
"""The current run."""
