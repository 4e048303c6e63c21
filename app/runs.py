"""Runs: what a multi-step agent retrieves, reports and asks, judged as one by the policies in force when it began.

Whatever a run is told is committed when the call returns. Its policies are bound at its start, by version, so that no
run is judged by a mix of two.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app import policy_rows, run_store
from app.db import Database
from app.errors import InvalidRequestError, RunError
from app.events.records import EventLog, RequestEvent
from app.run_ruling import Outcome, completed, document_recorded, grounding_recorded, started
from app.run_steps import Recorded, Step, StepKind, document_json, texts_of, with_texts
from app.run_store import COMPLETED, OPEN, RunRow
from app.settings import Settings, StoreText
from app.trace import Trace, redact_decision, stored
from judges.types import Chunk
from policies.base import RulesError
from policies.engine import PolicyEngine, PolicySet, decision_to_dict
from policies.types import Decision, Policy

_log = structlog.stdlib.get_logger(__name__)

_RUN_ID = re.compile(r"run_[0-9a-f]{32}")
_CONFLICT, _NOT_FOUND = 409, 404
MOST_STEPS = 10_000
LARGEST_RUN = 4 * 1024 * 1024
"""Bytes of all that a run is told, as JSON."""
_MOST_CACHED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with its policies and all that it was told."""

    run: RunRow
    policies: Sequence[Policy]
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of something that a run was told. ``request_id`` is that of its event."""

    run: RunRow
    policies: Sequence[Policy]
    recorded: Recorded
    outcome: Outcome
    request_id: str | None


@dataclass(frozen=True, slots=True)
class _Bound:
    """The policies that a run was begun under."""

    policies: tuple[Policy, ...]
    engine: PolicyEngine


_Rule = Callable[[PolicySet, Recorded], Outcome]


@dataclass(slots=True, kw_only=True)
class Runs:
    """The runs of one database. ``engine`` gives the policies in force; ``observers`` are told of every event.

    All methods raise DatabaseUnavailableError, and RunError for a run that is not there, is complete or is full.
    """

    database: Database
    settings: Settings
    engine: Callable[[], PolicyEngine]
    events: EventLog
    observers: Sequence[Callable[[RequestEvent], None]] = ()
    _cache: dict[tuple[str, int], Policy] = field(default_factory=dict)

    async def start(
        self,
        *,
        agent: str | None,
        model: str | None = None,
        key: tuple[str, ...] | None = None,
        key_prefix: str | None = None,
    ) -> Taken:
        """Begin a run of ``agent``; with ``model``, the policies scoped to that model rule what it records too.

        ``key`` is what the gateway key goes by, ``key_prefix`` what may be shown of it.
        """
        now = datetime.now(UTC)
        bound = _bind(self.engine().enabled, agent, key)
        run = RunRow(
            run_id=f"run_{uuid4().hex}",
            agent=agent,
            model=model,
            key=key,
            key_prefix=key_prefix,
            status=OPEN,
            version=0,
            policies=[(policy.id, policy.version) for policy in bound.policies],
            size=0,
            created_at=now,
            updated_at=now,
        )
        trace = self._trace(run, StepKind.START, now)
        outcome = started(_in_scope(bound, run))
        first = Step(seq=0, ts=now, kind=StepKind.START, decisions=_kept(trace, outcome.made))
        async with self.database.write() as connection:
            await run_store.create(connection, run, first)
        await self._log(trace, outcome)
        return _taken(run, bound, Recorded(), outcome, trace)

    async def record_document(self, run_id: str, chunk: Chunk, *, key: str | None = None) -> Taken:
        """A document was retrieved. It is recorded whatever the policies say of it. ``key``: by which the same call is
        known when it is sent again, and then changes nothing."""
        data = {"document": document_json(chunk, run_id)}
        return await self._take(run_id, StepKind.RETRIEVAL, data, document_recorded, key=key)

    async def record_grounding(self, run_id: str, reported: Mapping[str, Any], *, key: str | None = None) -> Taken:
        """Scores, citations, unsupported claims and a confidence were found out. ``key`` as above."""

        def rule(policies: PolicySet, _recorded: Recorded) -> Outcome:
            return grounding_recorded(policies, reported["grounding_scores"])

        return await self._take(run_id, StepKind.GROUNDING, reported, rule, key=key)

    async def complete(self, run_id: str, result: Any, *, key: str | None = None) -> Taken:
        """The run is over: decide what needed all of it. ``key`` as above."""
        text = None if result is None else orjson.dumps(result, option=orjson.OPT_SORT_KEYS).decode()
        kept = result if self.settings.store_text is StoreText.FULL else stored(text, self.settings.store_text)
        return await self._take(run_id, StepKind.COMPLETE, {"result": kept}, completed, key=key)

    async def get(self, run_id: str) -> RunView:
        """What is known of a run."""
        async with self.database.read() as connection:
            run = await _found(connection, run_id)
            steps = await run_store.steps(connection, run_id)
            bound = await self._bound(connection, run)
        return RunView(run=run, policies=bound.policies, steps=steps)

    # What all calls have in common.

    async def _take(
        self, run_id: str, kind: StepKind, data: Mapping[str, Any], rule: _Rule, *, key: str | None
    ) -> Taken:
        now = datetime.now(UTC)
        async with self.database.write() as connection:
            run = await _found(connection, run_id, lock=True)
            steps = await run_store.steps(connection, run_id)
            bound = await self._bound(connection, run)
            if (sent := _sent_before(steps, kind, key)) is not None:
                return _again(run, bound, steps, sent)
            _open(run)
            step = Step(seq=run.version + 1, ts=now, kind=kind, data=data, key=key)
            recorded = Recorded.of([*steps, step])
            self._check_documents(recorded)
            outcome = rule(_in_scope(bound, run), recorded)
            trace = self._trace(run, kind, now)
            trace.withheld = [text for told in (*steps, step) for text in texts_of(told.data)]
            step = replace(step, decisions=_kept(trace, outcome.made))
            status = COMPLETED if kind is StepKind.COMPLETE else OPEN
            run = await run_store.append(connection, run, step, size=_size(step), status=status)
            if status == COMPLETED:
                await self._forget_texts(connection, run_id, steps)
        if kind is StepKind.RETRIEVAL:
            trace.keep_documents(recorded.chunks[-1:], {})
        await self._log(trace, outcome)
        return _taken(run, bound, recorded, outcome, trace)

    async def _bound(self, connection: AsyncConnection, run: RunRow) -> _Bound:
        missing = [policy for policy in run.policies if policy not in self._cache]
        for found in await run_store.policies(connection, missing) if missing else ():
            if len(self._cache) >= _MOST_CACHED:
                self._cache.pop(next(iter(self._cache)))
            try:
                self._cache[found.id, found.version] = policy_rows.as_policy(found)
            except RulesError as error:
                _log.error("policy_unreadable", policy_id=found.id, version=found.version, error=str(error))
        policies = [self._cache.get(policy) for policy in run.policies]
        known = tuple(policy for policy in policies if policy is not None)
        if len(known) < len(policies):
            raise RunError(
                f"The run {run.run_id} was begun under a policy that can no longer be read; begin a new one.",
                code="run_unreadable",
                status=_CONFLICT,
            )
        return _Bound(known, PolicyEngine(known))

    def _check_documents(self, recorded: Recorded) -> None:
        if len(recorded.chunks) > self.settings.max_documents:
            raise RunError(
                f"The run has {self.settings.max_documents} documents, and more are not taken.",
                code="run_full",
                status=InvalidRequestError.status,
            )

    async def _forget_texts(self, connection: AsyncConnection, run_id: str, steps: Sequence[Step]) -> None:
        """What was needed to decide is kept no longer than the settings say."""
        if self.settings.store_text is StoreText.FULL:
            return
        for step in steps:
            if texts_of(step.data):
                less = with_texts(step.data, lambda text: stored(text, self.settings.store_text))
                await run_store.replace_data(connection, run_id, replace(step, data=less))

    def _trace(self, run: RunRow, kind: StepKind, now: datetime) -> Trace:
        trace = Trace(api=f"runs.{kind}", stream=False, store_text=self.settings.store_text, ts=now)
        trace.run_id, trace.agent, trace.model = run.run_id, run.agent, run.model
        return trace

    async def _log(self, trace: Trace, outcome: Outcome) -> None:
        trace.decisions.extend(outcome.made)
        if outcome.blocked_by is not None:
            trace.block()
        event = trace.event()
        await self.events.append(event)
        for observer in self.observers:
            observer(event)


def _bind(enabled: Sequence[Policy], agent: str | None, key: tuple[str, ...] | None) -> _Bound:
    """The policies for ``agent``, whatever the model: which one answers is known only when it is asked."""
    policies = tuple(
        policy for policy in enabled if replace(policy.scope, models=()).covers(agent=agent, model=None, key=key)
    )
    return _Bound(policies, PolicyEngine(policies))


def _in_scope(bound: _Bound, run: RunRow) -> PolicySet:
    return bound.engine.in_scope(agent=run.agent, model=run.model, key=run.key, unit=run.run_id)


async def _found(connection: AsyncConnection, run_id: str, *, lock: bool = False) -> RunRow:
    run = await run_store.find(connection, run_id, lock=lock) if _RUN_ID.fullmatch(run_id) else None
    if run is None:
        raise RunError(f"There is no run {run_id!r:.100}.", code="run_not_found", status=_NOT_FOUND)
    return run


def _open(run: RunRow, *, full: bool = True) -> RunRow:
    """``run``, if it takes more. ``full``: what it holds may be too much."""
    if run.status == COMPLETED:
        raise RunError(f"The run {run.run_id} is complete.", code="run_completed", status=_CONFLICT)
    if full and (run.version >= MOST_STEPS or run.size >= LARGEST_RUN):
        raise RunError(
            f"The run {run.run_id} is full: it takes {MOST_STEPS} calls and {LARGEST_RUN} bytes at most.",
            code="run_full",
            status=InvalidRequestError.status,
        )
    return run


def _sent_before(steps: Sequence[Step], kind: StepKind, key: str | None) -> Step | None:
    found = None if key is None else next((step for step in steps if step.key == key), None)
    if found is not None and found.kind != kind:
        raise InvalidRequestError(
            f"Idempotency-Key: {key!r:.100} was used for another call of this run.",
            param="Idempotency-Key",
            status=_CONFLICT,
        )
    return found


def _again(run: RunRow, bound: _Bound, steps: Sequence[Step], sent: Step) -> Taken:
    """The answer to a call that was sent before, as it was then."""
    recorded = Recorded.of(step for step in steps if step.seq <= sent.seq)
    outcome = Outcome.of(sent.decisions, bound.policies)
    then = replace(run, version=sent.seq, status=COMPLETED if sent.kind == StepKind.COMPLETE else OPEN)
    return Taken(run=then, policies=bound.policies, recorded=recorded, outcome=outcome, request_id=None)


def _taken(run: RunRow, bound: _Bound, recorded: Recorded, outcome: Outcome, trace: Trace) -> Taken:
    return Taken(run=run, policies=bound.policies, recorded=recorded, outcome=outcome, request_id=trace.request_id)


def _kept(trace: Trace, decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """Decisions as a run keeps them: like the event log, without the texts that they quote unless those are stored."""
    full = trace.store_text is StoreText.FULL
    return [decision_to_dict(made if full else redact_decision(made, trace.withheld)) for made in decisions]


def _size(step: Step) -> int:
    return len(orjson.dumps([step.data, step.decisions]))
