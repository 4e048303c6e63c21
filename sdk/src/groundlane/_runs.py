"""Runs of an agent, as context managers: what they record is decided upon by the gateway's policies."""

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
    """A run of synchronous code; made by ``Groundlane.run``.

    Each ``record_...`` sends what it is given and returns the decisions that it caused; the end of the ``with`` block
    completes the run. Where a policy blocks, either raises PolicyViolationError, unless ``enforce_policy`` is False.
    They raise GroundlaneError where the gateway cannot be reached or refuses.
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
        """Record one retrieved document. ``relevance_score`` is 0–1; ``age_days``, or ``updated_at`` in RFC 3339, says
        how old it is."""
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
        """Record how well the output is grounded: a score of 0–1 for each claim, the sources cited, the claims found
        in none, and the confidence in the whole, 0–1. What several calls record adds up."""
        return self._send(self._grounding(grounding_scores, citations, unsupported_claims, output_confidence))

    def __enter__(self) -> Self:
        self._begun(self._session.send(self._opening()))
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if error is None:
            self._send(self._completion())
        elif isinstance(error, Exception):
            with suppress(GroundlaneError):  # the error is the one to see
                self._session.send(self._completion())

    def _send(self, call: Call) -> tuple[Decision, ...]:
        return self._decided(self._session.send(call))


class Recorded:
    """A record on its way; await it for the decisions that it caused."""

    def __init__(self, run: "AsyncRun", call: Call) -> None:
        self._run = run
        self.call = call
        self.decisions: tuple[Decision, ...] | None = None

    def __await__(self) -> Generator[Any, Any, tuple[Decision, ...]]:
        return self._run._deliver(self).__await__()


class AsyncRun(Recording):
    """The same for asynchronous code; made by ``AsyncGroundlane.run``.

    ``await`` a record to have its decisions, and its PolicyViolationError, there and then. One that is not awaited is
    sent before the next that is, or else when the block ends, and raises there.
    """

    def __init__(
        self, agent_name: str, *, session: AsyncSession, model: str | None = None, enforce_policy: bool = True
    ) -> None:
        super().__init__(agent_name, model=model, enforce_policy=enforce_policy)
        self._session = session
        self._waiting: list[Recorded] = []
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
        self._begun(await self._session.send(self._opening()))
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
        """End the run after an error, which is the one to see."""
        with suppress(GroundlaneError):
            await self._deliver(None)
        with suppress(GroundlaneError):
            await self._session.send(self._completion())

    def _record(self, call: Call) -> Recorded:
        recorded = Recorded(self, call)
        self._waiting.append(recorded)
        return recorded

    async def _deliver(self, last: Recorded | None) -> tuple[Decision, ...]:
        """Send what waits, in order, as far as ``last`` (None: all of it)."""
        async with self._sending:
            while self._waiting and (last is None or last.decisions is None):
                recorded = self._waiting.pop(0)
                recorded.decisions = ()
                recorded.decisions = await self._send(recorded.call)
        return last.decisions or () if last is not None else ()

    async def _send(self, call: Call) -> tuple[Decision, ...]:
        return self._decided(await self._session.send(call))
