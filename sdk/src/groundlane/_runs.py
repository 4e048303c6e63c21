"""Agent runs as context managers. The gateway applies its policies to everything that a run records."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, SupportsFloat

import anyio

from groundlane._errors import GroundlaneError
from groundlane._recording import Recording, document_fields
from groundlane._session import AsyncSession, Session
from groundlane._transport import Call
from groundlane._types import Decision


class Run(Recording):
    """A synchronous run, created by ``Groundlane.run``.

    Each ``record_...`` method sends a record and returns the decisions about it. Leaving the ``with`` block completes
    the run. Both raise GroundlaneError if the gateway is unreachable or rejects the request, and PolicyViolationError
    if a policy blocks, unless ``enforce_policy`` is False.
    """

    def __init__(
        self, agent_name: str, *, session: Session, model: str | None = None, enforce_policy: bool = True
    ) -> None:
        super().__init__(agent_name, model=model, enforce_policy=enforce_policy)
        self._session = session

    def record_retrieval_result(
        self,
        relevance_score: SupportsFloat | None = None,
        source: str | None = None,
        collection: str | None = None,
        age_days: SupportsFloat | None = None,
        *,
        id: str | None = None,
        text: str | None = None,
        title: str | None = None,
        url: str | None = None,
        updated_at: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> tuple[Decision, ...]:
        """Record one retrieved document. ``relevance_score`` is from 0 to 1. Pass the document's age as ``age_days``,
        or the time of its last update as ``updated_at`` (RFC 3339)."""
        others = {"id": id, "text": text, "title": title, "url": url, "updated_at": updated_at, "metadata": metadata}
        fields = document_fields(
            relevance_score=relevance_score, source=source, collection=collection, age_days=age_days, **others
        )
        return self._send(self._retrieval(fields))

    def record_grounding(
        self,
        grounding_scores: Iterable[SupportsFloat] | None = None,
        citations: Iterable[str] | None = None,
        unsupported_claims: Iterable[str] | None = None,
        output_confidence: SupportsFloat | None = None,
    ) -> tuple[Decision, ...]:
        """Record how well the output is grounded: a score for each claim, the cited sources, the unsupported claims,
        and the confidence in the whole output. Scores are from 0 to 1. Repeated calls add to what was recorded
        before."""
        return self._send(self._grounding(grounding_scores, citations, unsupported_claims, output_confidence))

    def __enter__(self) -> Self:
        self._started(self._session.send(self._opening()))
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if error is None:
            self._send(self._completion())
        elif isinstance(error, Exception):
            with suppress(GroundlaneError):  # The original error matters more.
                self._session.send(self._completion())

    def _send(self, call: Call) -> tuple[Decision, ...]:
        return self._decided(self._session.send(call))


class Recorded:
    """A pending record. Awaiting it returns the decisions about it."""

    def __init__(self, run: "AsyncRun", call: Call) -> None:
        self._run = run
        self.call = call
        self.decisions: tuple[Decision, ...] | None = None

    def __await__(self) -> Generator[Any, Any, tuple[Decision, ...]]:
        return self._run._deliver(self).__await__()


class AsyncRun(Recording):
    """An asynchronous run, created by ``AsyncGroundlane.run``.

    Awaiting a record sends it at once and returns its decisions or raises PolicyViolationError. A record that is not
    awaited is sent before the next awaited record, or when the ``async with`` block ends. Any error is raised then.
    """

    def __init__(
        self, agent_name: str, *, session: AsyncSession, model: str | None = None, enforce_policy: bool = True
    ) -> None:
        super().__init__(agent_name, model=model, enforce_policy=enforce_policy)
        self._session = session
        self._pending: list[Recorded] = []
        self._sending = anyio.Lock()

    def record_retrieval_result(
        self,
        relevance_score: SupportsFloat | None = None,
        source: str | None = None,
        collection: str | None = None,
        age_days: SupportsFloat | None = None,
        *,
        id: str | None = None,
        text: str | None = None,
        title: str | None = None,
        url: str | None = None,
        updated_at: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Recorded:
        """See ``Run.record_retrieval_result``."""
        others = {"id": id, "text": text, "title": title, "url": url, "updated_at": updated_at, "metadata": metadata}
        fields = document_fields(
            relevance_score=relevance_score, source=source, collection=collection, age_days=age_days, **others
        )
        return self._record(self._retrieval(fields))

    def record_grounding(
        self,
        grounding_scores: Iterable[SupportsFloat] | None = None,
        citations: Iterable[str] | None = None,
        unsupported_claims: Iterable[str] | None = None,
        output_confidence: SupportsFloat | None = None,
    ) -> Recorded:
        """See ``Run.record_grounding``."""
        return self._record(self._grounding(grounding_scores, citations, unsupported_claims, output_confidence))

    async def __aenter__(self) -> Self:
        self._started(await self._session.send(self._opening()))
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if error is None:
            try:
                await self._deliver(None)
            except GroundlaneError:
                await self._give_up()
                raise
            await self._send(self._completion())
        elif isinstance(error, Exception):
            await self._give_up()

    async def _give_up(self) -> None:
        """End the run after an error, without raising another error in its place."""
        with suppress(GroundlaneError):
            await self._deliver(None)
        with suppress(GroundlaneError):
            await self._session.send(self._completion())

    def _record(self, call: Call) -> Recorded:
        recorded = Recorded(self, call)
        self._pending.append(recorded)
        return recorded

    async def _deliver(self, last: Recorded | None) -> tuple[Decision, ...]:
        """Send the pending records in order, up to and including ``last``, or all of them if it is None."""
        async with self._sending:
            while self._pending and (last is None or last.decisions is None):
                recorded = self._pending.pop(0)
                recorded.decisions = ()
                recorded.decisions = await self._send(recorded.call)
        return last.decisions or () if last is not None else ()

    async def _send(self, call: Call) -> tuple[Decision, ...]:
        return self._decided(await self._session.send(call))
