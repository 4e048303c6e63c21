"""Runs: records what an agent retrieves, reports and asks in several steps, and evaluates all of it together.

Each step is committed when the call returns. Policy versions are pinned at the start and apply to every step;
policies that are made or changed later apply beside them.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import orjson
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth import GatewayKey
from app.db.database import Database, DatabaseUnavailableError
from app.errors import InvalidRequestError, RunError
from app.events.recorder import RequestRecorder
from app.events.records import EventLog, RecordedRequest
from app.events.redaction import stored, stored_decisions
from app.events.request_record import RequestRecord, RetrievalOutcome
from app.runs import repository
from app.runs.decisions import StepOutcome, decide_completion, decide_document, decide_scores, decide_start
from app.runs.gateway_step import call_data
from app.runs.pinned_policies import PinnedPolicies, PolicyVersions
from app.runs.repository import COMPLETED, OPEN, RunRow
from app.runs.steps import RunRecord, RunStep, StepKind, document_json, texts_of, with_texts
from app.settings import Settings, StoreText
from judges.types import Chunk, Claim
from policies.engine import PolicyEngine, PolicySet, decision_to_dict
from policies.types import Decision, Policy

_log = structlog.stdlib.get_logger(__name__)

_PATIENCE_S = 5.0
"""Maximum time that a gateway request waits for the database to read or store its run."""
_RUN_ID = re.compile(r"run_[0-9a-f]{32}")
MOST_STEPS = 10_000
LARGEST_RUN = 4 * 1024 * 1024
"""The maximum total size of a run's steps, in bytes of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCaller:
    """The caller of the runs API: its gateway key and, in ``repeat``, its ``Idempotency-Key``. Repeating a call with
    the same idempotency key changes nothing."""

    key: GatewayKey | None = None
    repeat: str | None = None

    @property
    def prefix(self) -> str | None:
        return None if self.key is None else self.key.prefix


ANYONE = RunCaller()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with its policies and all steps."""

    run: RunRow
    policies: Sequence[Policy]
    steps: Sequence[RunStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of the step with number ``step``. ``request_id`` is the id of the step's event, or None if the call
    was a repetition."""

    run: RunRow
    policies: Sequence[Policy]
    outcome: StepOutcome
    step: int
    request_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepInput:
    """The input for a step: its data, the number of items it adds, and the function that decides on it."""

    data: Mapping[str, Any]
    decide: Callable[[PolicySet], StepOutcome]
    counts: Mapping[str, int] = field(default_factory=dict)
    document: Chunk | None = None


_ReadInput = Callable[[RunRow, Sequence[RunStep]], _StepInput]
"""Builds the input from the run so far and, for a completion, from all of its steps."""


@dataclass(slots=True, kw_only=True)
class RunService:
    """The runs in one database. ``engine`` returns the policies in force; ``observers`` receive every event.

    All methods raise DatabaseUnavailableError, and RunError if the run does not exist (or belongs to another key), is
    complete, or is full.
    """

    database: Database
    settings: Settings
    engine: Callable[[], PolicyEngine]
    events: EventLog
    observers: Sequence[Callable[[RecordedRequest], None]] = ()
    _versions: PolicyVersions = field(default_factory=PolicyVersions)

    async def start(self, *, agent: str | None, model: str | None = None, caller: RunCaller = ANYONE) -> StepResult:
        """Start a run of ``agent``. With ``model``, policies scoped to that model also apply to the run's records."""
        now = datetime.now(UTC)
        names = None if caller.key is None else caller.key.names
        pinned = PinnedPolicies.at_start(self.engine().enabled, agent=agent, key=names)
        run = RunRow(
            run_id=f"run_{uuid4().hex}",
            agent=agent,
            model=model,
            key=names,
            key_prefix=caller.prefix,
            status=OPEN,
            version=0,
            policies=[(policy.id, policy.version) for policy in pinned.policies],
            size=0,
            counts=RunRecord().counts,
            created_at=now,
            updated_at=now,
        )
        recorder = self._recorder(run, StepKind.START, now)
        policies = pinned.in_scope(run)
        outcome = decide_start(policies)
        first = RunStep(seq=0, ts=now, kind=StepKind.START, decisions=_redacted_json(recorder, outcome.made))
        async with self.database.write() as connection:
            await repository.create(connection, run, first)
        await self._log(recorder, outcome, decide_start(PolicySet(policies.shadow)))
        return StepResult(run=run, policies=pinned.policies, outcome=outcome, step=0, request_id=recorder.request_id)

    async def record_document(self, run_id: str, chunk: Chunk, *, caller: RunCaller = ANYONE) -> StepResult:
        """Record a retrieved document, regardless of what the policies decide on it."""

        def read(run: RunRow, _steps: Sequence[RunStep]) -> _StepInput:
            number = run.counts["documents"] + 1
            named = chunk if chunk.id else replace(chunk, id=f"document-{number}")
            return _StepInput(
                data={"document": document_json(named, run_id)},
                decide=lambda policies: decide_document(policies, named, number),
                counts={"documents": 1},
                document=named,
            )

        return await self._add_step(run_id, StepKind.RETRIEVAL, read, caller)

    async def record_grounding(
        self, run_id: str, reported: Mapping[str, Any], *, caller: RunCaller = ANYONE
    ) -> StepResult:
        """Record reported scores, citations, unsupported claims and confidence."""

        def read(_run: RunRow, _steps: Sequence[RunStep]) -> _StepInput:
            return _StepInput(
                data=reported,
                decide=lambda policies: decide_scores(policies, reported["grounding_scores"]),
                counts={name: len(reported[name]) for name in ("grounding_scores", "citations", "unsupported_claims")},
            )

        return await self._add_step(run_id, StepKind.GROUNDING, read, caller)

    async def complete(self, run_id: str, result: Any, *, caller: RunCaller = ANYONE) -> StepResult:
        """Complete the run, and make the decisions that need the complete run."""
        text = None if result is None else orjson.dumps(result, option=orjson.OPT_SORT_KEYS).decode()
        kept = result if self.settings.store_text is StoreText.FULL else stored(text, self.settings.store_text)

        def read(_run: RunRow, steps: Sequence[RunStep]) -> _StepInput:
            record = RunRecord.of(steps)
            return _StepInput(data={"result": kept}, decide=lambda policies: decide_completion(policies, record))

        return await self._add_step(run_id, StepKind.COMPLETE, read, caller)

    async def get(self, run_id: str, *, caller: RunCaller = ANYONE) -> RunView:
        """Return a run with everything recorded in it."""
        async with self.database.read() as connection:
            run = await _found(connection, run_id, caller)
            steps = await repository.steps(connection, run_id)
            pinned = await self._versions.of(connection, run)
        return RunView(run=run, policies=pinned.policies, steps=steps)

    async def join(self, run_id: str | None, *, agent: str | None, key: GatewayKey | None) -> "JoinedRun | None":
        """Return the run that a request by ``agent`` belongs to.

        Return None, so that the policies in force apply to the request, if ``run_id`` is the caller's own id, which is
        only logged, or while the database is unavailable. Raises RunError, and InvalidRequestError if the run belongs
        to another agent.
        """
        if run_id is None or _RUN_ID.fullmatch(run_id) is None:
            return None
        try:
            async with asyncio.timeout(_PATIENCE_S), self.database.read() as connection:
                run = await _found(connection, run_id, RunCaller(key=key), param="grounding.run_id")
                _check_open(run, param="grounding.run_id")
                pinned = (await self._versions.of(connection, run)).joined(
                    self.engine().enabled, agent=run.agent, key=run.key
                )
        except (DatabaseUnavailableError, TimeoutError) as error:
            _log.warning("run_unavailable", run_id=run_id, error=str(error) or "no answer in time")
            return None
        if agent is not None and agent != run.agent:
            owner = "no agent" if run.agent is None else f"the agent {run.agent!r}"
            raise InvalidRequestError(f"grounding.agent: the run belongs to {owner}.", param="grounding.agent")
        return JoinedRun(runs=self, run_id=run_id, agent=run.agent, engine=pinned.engine)

    async def add_call(self, run_id: str, record: RequestRecord) -> None:
        """Record a finished gateway request that joined the run."""
        data = call_data(record, run_id)
        decisions = [decision_to_dict(decision) for decision in record.stored(record.decisions)]
        async with self.database.write() as connection:
            run = await repository.find(connection, run_id, lock=True)
            if run is None or run.status != OPEN:
                raise RunError(f"The run {run_id} is complete.", code="run_completed", status=HTTPStatus.CONFLICT)
            step = RunStep(seq=run.version + 1, ts=record.info.ts, kind=StepKind.CALL, data=data, decisions=decisions)
            # Which of the request's documents the run already has depends on all of its steps.
            run_record = RunRecord.of([*await repository.steps(connection, run_id), step])
            await repository.append(connection, run, step, size=_size(step), counts=run_record.counts)

    # Common to all calls.

    async def _add_step(self, run_id: str, kind: StepKind, read: _ReadInput, caller: RunCaller) -> StepResult:
        now = datetime.now(UTC)
        ends = kind is StepKind.COMPLETE
        async with self.database.write() as connection:
            run = await _found(connection, run_id, caller, lock=True)
            pinned = await self._versions.of(connection, run)
            joined = pinned.joined(self.engine().enabled, agent=run.agent, key=run.key)
            if (earlier := await _repeated_step(connection, run, kind, caller.repeat)) is not None:
                outcome = StepOutcome.of(earlier.decisions, joined.policies)
                return StepResult(run=run, policies=pinned.policies, outcome=outcome, step=earlier.seq, request_id=None)
            self._check_accepts(run, kind)
            steps = await repository.steps(connection, run_id) if ends else ()
            given = read(run, steps)
            policies = joined.in_scope(run)
            outcome, shadow = given.decide(policies), given.decide(PolicySet(policies.shadow))
            recorder = self._recorder(run, kind, now)
            made = _redacted_json(recorder, outcome.made)
            step = RunStep(seq=run.version + 1, ts=now, kind=kind, data=given.data, decisions=made, key=caller.repeat)
            counts = {name: count + given.counts.get(name, 0) for name, count in run.counts.items()}
            status = COMPLETED if ends else OPEN
            run = await repository.append(connection, run, step, size=_size(step), counts=counts, status=status)
            await self._forget_texts(connection, run_id, steps)
        await self._log(recorder, outcome, shadow, documents=() if given.document is None else (given.document,))
        return StepResult(
            run=run, policies=pinned.policies, outcome=outcome, step=step.seq, request_id=recorder.request_id
        )

    def _check_accepts(self, run: RunRow, kind: StepKind) -> None:
        """Check that ``run`` accepts another step; a full run can still be completed. Raises RunError."""
        _check_open(run, may_be_full=kind is StepKind.COMPLETE)
        if kind is StepKind.RETRIEVAL and run.counts["documents"] >= self.settings.max_documents:
            raise RunError(
                f"The run {run.run_id} is full: the maximum is {self.settings.max_documents} documents.",
                code="run_full",
                status=HTTPStatus.BAD_REQUEST,
            )

    async def _forget_texts(self, connection: AsyncConnection, run_id: str, steps: Sequence[RunStep]) -> None:
        """Remove texts that the settings don't allow to be stored from ``steps``, once all decisions are made."""
        if self.settings.store_text is StoreText.FULL:
            return
        for step in steps:
            if texts_of(step.data):
                less = with_texts(step.data, lambda text: stored(text, self.settings.store_text))
                await repository.replace_data(connection, run_id, replace(step, data=less))

    def _recorder(self, run: RunRow, kind: StepKind, now: datetime) -> RequestRecorder:
        return RequestRecorder(
            api=f"runs.{kind}",
            store_text=self.settings.store_text,
            ts=now,
            model=run.model,
            agent=run.agent,
            run_id=run.run_id,
            key_prefix=run.key_prefix,
        )

    async def _log(
        self, recorder: RequestRecorder, outcome: StepOutcome, shadow: StepOutcome, *, documents: Sequence[Chunk] = ()
    ) -> None:
        """Log the step's event. ``shadow`` holds the decisions of shadow policies."""
        recorder.retrieval = RetrievalOutcome(chunks=documents, decisions=outcome.made)
        if outcome.blocked_by is not None:
            recorder.block()
        record = recorder.record()
        event = replace(record.event(), shadow=record.stored(shadow.made))
        await self.events.append(event)
        for observer in self.observers:
            observer(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRun:
    """The run that a gateway request belongs to. ``engine`` holds the policies that the run started with."""

    runs: RunService
    run_id: str
    agent: str | None
    engine: PolicyEngine

    async def claims(self) -> Sequence[Claim]:
        """Return the claims in the run's replies so far, in order; empty while the database is unavailable."""
        try:
            async with self.runs.database.read() as connection:
                steps = await repository.steps(connection, self.run_id)
        except DatabaseUnavailableError as error:
            _log.warning("run_unavailable", run_id=self.run_id, error=str(error))
            return ()
        return [verdict.claim for verdict in RunRecord.of(steps).claims]

    async def add(self, record: RequestRecord) -> None:
        """Record the request. Its reply has been sent already, so this never raises."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.runs.add_call(self.run_id, record)
        except (DatabaseUnavailableError, RunError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            _log.error("run_call_lost", run_id=self.run_id, request_id=record.info.request_id, error=reason)


async def _found(
    connection: AsyncConnection, run_id: str, caller: RunCaller, *, lock: bool = False, param: str = "run_id"
) -> RunRow:
    run = await repository.find(connection, run_id, lock=lock) if _RUN_ID.fullmatch(run_id) else None
    if run is None or run.key_prefix != caller.prefix:
        raise RunError(
            f"The run {run_id!r:.100} does not exist.", code="run_not_found", status=HTTPStatus.NOT_FOUND, param=param
        )
    return run


def _check_open(run: RunRow, *, may_be_full: bool = False, param: str = "run_id") -> None:
    """Check that ``run`` accepts another step. Raises RunError."""
    if run.status == COMPLETED:
        raise RunError(
            f"The run {run.run_id} is complete.", code="run_completed", status=HTTPStatus.CONFLICT, param=param
        )
    if not may_be_full and (run.version >= MOST_STEPS or run.size >= LARGEST_RUN):
        raise RunError(
            f"The run {run.run_id} is full: the maximum is {MOST_STEPS} calls and {LARGEST_RUN} bytes.",
            code="run_full",
            status=HTTPStatus.BAD_REQUEST,
            param=param,
        )


async def _repeated_step(
    connection: AsyncConnection, run: RunRow, kind: StepKind, repeat: str | None
) -> RunStep | None:
    found = None if repeat is None else await repository.step_with_key(connection, run.run_id, repeat)
    if found is not None and found.kind != kind:
        raise InvalidRequestError(
            f"Idempotency-Key: {repeat!r:.100} was already used for another call of this run.",
            param="Idempotency-Key",
            status=HTTPStatus.CONFLICT,
        )
    return found


def _redacted_json(recorder: RequestRecorder, decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    return [decision_to_dict(each) for each in stored_decisions(decisions, recorder.store_text)]


def _size(step: RunStep) -> int:
    return len(orjson.dumps([step.data, step.decisions]))
