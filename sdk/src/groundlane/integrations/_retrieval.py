"""Applies retrieval policies to documents before a model sees them, by recording a run on the gateway."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from groundlane._client import AsyncGroundlane, Groundlane
from groundlane._errors import PolicyViolationError
from groundlane._types import Decision


def blocked_documents(
    client: Groundlane, agent: str, documents: Sequence[Mapping[str, Any]]
) -> dict[int, PolicyViolationError]:
    """Return the policy violations, keyed by document index. A violation that concerns all documents, for example
    because there are too few, is listed for each of them. Raises GroundlaneError."""
    refused: dict[int, PolicyViolationError] = {}
    with client.run(agent, enforce_policy=False) as run:
        for index, document in enumerate(documents):
            _note(refused, index, run.record_retrieval_result(**document))
    return refused or _together(len(documents), run.decisions)


async def ablocked_documents(
    client: AsyncGroundlane, agent: str, documents: Sequence[Mapping[str, Any]]
) -> dict[int, PolicyViolationError]:
    """Like ``blocked_documents``, for asynchronous code."""
    refused: dict[int, PolicyViolationError] = {}
    async with client.run(agent, enforce_policy=False) as run:
        for index, document in enumerate(documents):
            _note(refused, index, await run.record_retrieval_result(**document))
    return refused or _together(len(documents), run.decisions)


def _note(refused: dict[int, PolicyViolationError], index: int, decisions: Iterable[Decision]) -> None:
    if (error := _violation(decisions, f"documents[{index}]")) is not None:
        refused[index] = error


def _together(count: int, decisions: Iterable[Decision]) -> dict[int, PolicyViolationError]:
    error = _violation(decisions, "documents")
    return {} if error is None else dict.fromkeys(range(count), error)


def _violation(decisions: Iterable[Decision], param: str) -> PolicyViolationError | None:
    """Return the retrieval violation for ``param``. Other policy categories don't apply yet, because there is no
    answer."""
    blocking = [decision for decision in decisions if decision.blocks and decision.category == "retrieval"]
    if not blocking:
        return None
    message = "; ".join(decision.reason for decision in blocking)
    return PolicyViolationError(message, decisions=blocking, code=blocking[0].reason_code, param=param)
