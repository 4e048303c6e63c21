"""Runs: what an agent of several steps retrieves, reports and asks, judged as one by the policies of its start.

Whatever a run is told is committed when the call returns. Its policies are bound at its start, by version, so that no
run is judged by a mix of two.
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
from app.runs.decisions import StepOutcome, completed, document_recorded, grounding_recorded, started
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
"""How long a governed request waits, at most, for a database that says nothing of the run it belongs to."""
_RUN_ID = re.compile(r"run_[0-9a-f]{32}")
MOST_STEPS = 10_000
LARGEST_RUN = 4 * 1024 * 1024
"""Bytes of all that a run is told, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCaller:
    """Who tells a run something: the gateway key that came along, and a name (``Idempotency-Key``) by which the same
    call is known when it is sent again; it then changes nothing."""

    key: GatewayKey | None = None
    repeat: str | None = None

    @property
    def prefix(self) -> str | None:
        return None if self.key is None else self.key.prefix


ANYONE = RunCaller()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with its policies and all that it was told."""

    run: RunRow
    policies: Sequence[Policy]
    steps: Sequence[RunStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What became of something that a run was told, as its step ``step``. ``request_id`` is that of its event; None
    where it was known already."""

    run: RunRow
    policies: Sequence[Policy]
    outcome: StepOutcome
    step: int
    request_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a run is told: what is kept of it, how much that is, and how policies look at it."""

    data: Mapping[str, Any]
    rule: Callable[[PolicySet], StepOutcome]
    counts: Mapping[str, int] = field(default_factory=dict)
    document: Chunk | None = None


_Tell = Callable[[RunRow, Sequence[RunStep]], _Told]
"""Given the run so far and, when it is to be completed, all of its steps."""


@dataclass(slots=True, kw_only=True)
class RunService:
    """The runs of one database. ``engine`` gives the policies in force; ``observers`` are told of every event.

    All methods raise DatabaseUnavailableError, and RunError for a run that is not there (one of another key is not
    there either), is complete or is full.
    """

    database: Database
    settings: Settings
    engine: Callable[[], PolicyEngine]
    events: EventLog
    observers: Sequence[Callable[[RecordedRequest], None]] = ()
    _versions: PolicyVersions = field(default_factory=PolicyVersions)

    async def start(self, *, agent: str | None, model: str | None = None, caller: RunCaller = ANYONE) -> StepResult:
        """Begin a run of ``agent``; with ``model``, the policies scoped to that model rule what it records too."""
        now = datetime.now(UTC)
        names = None if caller.key is None else caller.key.names
        bound = PinnedPolicies.at_start(self.engine().enabled, agent=agent, key=names)
        run = RunRow(
            run_id=f"run_{uuid4().hex}",
            agent=agent,
            model=model,
            key=names,
            key_prefix=caller.prefix,
            status=OPEN,
            version=0,
            policies=[(policy.id, policy.version) for policy in bound.policies],
            size=0,
            counts=RunRecord().counts,
            created_at=now,
            updated_at=now,
        )
        recorder = self._recorder(run, StepKind.START, now)
        policies = bound.in_scope(run)
        outcome = started(policies)
        first = RunStep(seq=0, ts=now, kind=StepKind.START, decisions=_kept(recorder, outcome.made))
        async with self.database.write() as connection:
            await repository.create(connection, run, first)
        await self._log(recorder, outcome, started(PolicySet(policies.shadow)))
        return StepResult(run=run, policies=bound.policies, outcome=outcome, step=0, request_id=recorder.request_id)

    async def record_document(self, run_id: str, chunk: Chunk, *, caller: RunCaller = ANYONE) -> StepResult:
        """A document was retrieved. It is recorded whatever the policies say of it."""

        def tell(run: RunRow, _steps: Sequence[RunStep]) -> _Told:
            number = run.counts["documents"] + 1
            named = chunk if chunk.id else replace(chunk, id=f"document-{number}")
            return _Told(
                data={"document": document_json(named, run_id)},
                rule=lambda policies: document_recorded(policies, named, number),
                counts={"documents": 1},
                document=named,
            )

        return await self._take(run_id, StepKind.RETRIEVAL, tell, caller)

    async def record_grounding(
        self, run_id: str, reported: Mapping[str, Any], *, caller: RunCaller = ANYONE
    ) -> StepResult:
        """Scores, citations, unsupported claims and a confidence were found out."""

        def tell(_run: RunRow, _steps: Sequence[RunStep]) -> _Told:
            return _Told(
                data=reported,
                rule=lambda policies: grounding_recorded(policies, reported["grounding_scores"]),
                counts={name: len(reported[name]) for name in ("grounding_scores", "citations", "unsupported_claims")},
            )

        return await self._take(run_id, StepKind.GROUNDING, tell, caller)

    async def complete(self, run_id: str, result: Any, *, caller: RunCaller = ANYONE) -> StepResult:
        """The run is over: decide what needed all of it."""
        text = None if result is None else orjson.dumps(result, option=orjson.OPT_SORT_KEYS).decode()
        kept = result if self.settings.store_text is StoreText.FULL else stored(text, self.settings.store_text)

        def tell(_run: RunRow, steps: Sequence[RunStep]) -> _Told:
            recorded = RunRecord.of(steps)
            return _Told(data={"result": kept}, rule=lambda policies: completed(policies, recorded))

        return await self._take(run_id, StepKind.COMPLETE, tell, caller)

    async def get(self, run_id: str, *, caller: RunCaller = ANYONE) -> RunView:
        """What is known of a run."""
        async with self.database.read() as connection:
            run = await _found(connection, run_id, caller)
            steps = await repository.steps(connection, run_id)
            bound = await self._versions.of(connection, run)
        return RunView(run=run, policies=bound.policies, steps=steps)

    async def join(self, run_id: str | None, *, agent: str | None, key: GatewayKey | None) -> "JoinedRun | None":
        """The run that a governed request of ``agent`` belongs to. None for a name of the caller's own, which is only
        logged, and while the database is away: the request is then ruled by the policies in force.

        Raises RunError, and InvalidRequestError where the run is of another agent.
        """
        if run_id is None or _RUN_ID.fullmatch(run_id) is None:
            return None
        try:
            async with asyncio.timeout(_PATIENCE_S), self.database.read() as connection:
                run = await _found(connection, run_id, RunCaller(key=key), param="grounding.run_id")
                _check_open(run, param="grounding.run_id")
                bound = await self._versions.of(connection, run)
        except (DatabaseUnavailableError, TimeoutError) as error:
            _log.warning("run_unavailable", run_id=run_id, error=str(error) or "no answer in time")
            return None
        if agent is not None and agent != run.agent:
            told = "of no agent" if run.agent is None else f"of the agent {run.agent!r}"
            raise InvalidRequestError(f"grounding.agent: the run is {told}.", param="grounding.agent")
        return JoinedRun(runs=self, run_id=run_id, agent=run.agent, engine=bound.engine)

    async def add_call(self, run_id: str, record: RequestRecord) -> None:
        """A governed request that joined the run has ended: keep what it found."""
        data = call_data(record, run_id)
        decisions = [decision_to_dict(decision) for decision in record.stored(record.decisions)]
        async with self.database.write() as connection:
            run = await repository.find(connection, run_id, lock=True)
            if run is None or run.status != OPEN:
                raise RunError(f"The run {run_id} is over.", code="run_completed", status=HTTPStatus.CONFLICT)
            step = RunStep(seq=run.version + 1, ts=record.info.ts, kind=StepKind.CALL, data=data, decisions=decisions)
            # Which of its documents the run knows already, only all that it was told says.
            recorded = RunRecord.of([*await repository.steps(connection, run_id), step])
            await repository.append(connection, run, step, size=_size(step), counts=recorded.counts)

    # What all calls have in common.

    async def _take(self, run_id: str, kind: StepKind, tell: _Tell, caller: RunCaller) -> StepResult:
        now = datetime.now(UTC)
        ends = kind is StepKind.COMPLETE
        async with self.database.write() as connection:
            run = await _found(connection, run_id, caller, lock=True)
            bound = await self._versions.of(connection, run)
            if (sent := await _sent_before(connection, run, kind, caller.repeat)) is not None:
                outcome = StepOutcome.of(sent.decisions, bound.policies)
                return StepResult(run=run, policies=bound.policies, outcome=outcome, step=sent.seq, request_id=None)
            self._check_takes(run, kind)
            steps = await repository.steps(connection, run_id) if ends else ()
            told = tell(run, steps)
            policies = bound.in_scope(run)
            outcome, beside = told.rule(policies), told.rule(PolicySet(policies.shadow))
            recorder = self._recorder(run, kind, now)
            recorder.quotable = [
                text for data in (*(step.data for step in steps), told.data) for text in texts_of(data)
            ]
            made = _kept(recorder, outcome.made)
            step = RunStep(seq=run.version + 1, ts=now, kind=kind, data=told.data, decisions=made, key=caller.repeat)
            counts = {name: count + told.counts.get(name, 0) for name, count in run.counts.items()}
            status = COMPLETED if ends else OPEN
            run = await repository.append(connection, run, step, size=_size(step), counts=counts, status=status)
            await self._forget_texts(connection, run_id, steps)
        await self._log(recorder, outcome, beside, documents=() if told.document is None else (told.document,))
        return StepResult(
            run=run, policies=bound.policies, outcome=outcome, step=step.seq, request_id=recorder.request_id
        )

    def _check_takes(self, run: RunRow, kind: StepKind) -> None:
        """Raises RunError unless ``run`` takes a step more. What is full can still be completed."""
        _check_open(run, may_be_full=kind is StepKind.COMPLETE)
        if kind is StepKind.RETRIEVAL and run.counts["documents"] >= self.settings.max_documents:
            raise RunError(
                f"The run {run.run_id} is full: it takes {self.settings.max_documents} documents at most.",
                code="run_full",
                status=HTTPStatus.BAD_REQUEST,
            )

    async def _forget_texts(self, connection: AsyncConnection, run_id: str, steps: Sequence[RunStep]) -> None:
        """What was needed to decide of ``steps`` is kept no longer than the settings say."""
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
        self, recorder: RequestRecorder, outcome: StepOutcome, beside: StepOutcome, *, documents: Sequence[Chunk] = ()
    ) -> None:
        """``beside`` is what shadow policies would have decided."""
        recorder.retrieval = RetrievalOutcome(chunks=documents, decisions=outcome.made)
        if outcome.blocked_by is not None:
            recorder.block()
        record = recorder.record()
        event = replace(record.event(), shadow=record.stored(beside.made))
        await self.events.append(event)
        for observer in self.observers:
            observer(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRun:
    """The run that a governed request belongs to. ``engine`` has the policies that the run was begun under."""

    runs: RunService
    run_id: str
    agent: str | None
    engine: PolicyEngine

    async def claims(self) -> Sequence[Claim]:
        """The claims of the replies in it so far, in order; none while the database is away."""
        try:
            async with self.runs.database.read() as connection:
                steps = await repository.steps(connection, self.run_id)
        except DatabaseUnavailableError as error:
            _log.warning("run_unavailable", run_id=self.run_id, error=str(error))
            return ()
        return [verdict.claim for verdict in RunRecord.of(steps).claims]

    async def add(self, record: RequestRecord) -> None:
        """Keep what the request found. Its reply is the client's whatever happens here, so this never raises."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.runs.add_call(self.run_id, record)
        except (DatabaseUnavailableError, RunError, TimeoutError) as error:
            told = str(error) or "no answer in time"
            _log.error("run_call_lost", run_id=self.run_id, request_id=record.info.request_id, error=told)


async def _found(
    connection: AsyncConnection, run_id: str, caller: RunCaller, *, lock: bool = False, param: str = "run_id"
) -> RunRow:
    run = await repository.find(connection, run_id, lock=lock) if _RUN_ID.fullmatch(run_id) else None
    if run is None or run.key_prefix != caller.prefix:
        raise RunError(
            f"There is no run {run_id!r:.100}.", code="run_not_found", status=HTTPStatus.NOT_FOUND, param=param
        )
    return run


def _check_open(run: RunRow, *, may_be_full: bool = False, param: str = "run_id") -> None:
    """Raises RunError unless ``run`` takes more."""
    if run.status == COMPLETED:
        raise RunError(
            f"The run {run.run_id} is complete.", code="run_completed", status=HTTPStatus.CONFLICT, param=param
        )
    if not may_be_full and (run.version >= MOST_STEPS or run.size >= LARGEST_RUN):
        raise RunError(
            f"The run {run.run_id} is full: it takes {MOST_STEPS} calls and {LARGEST_RUN} bytes at most.",
            code="run_full",
            status=HTTPStatus.BAD_REQUEST,
            param=param,
        )


async def _sent_before(connection: AsyncConnection, run: RunRow, kind: StepKind, repeat: str | None) -> RunStep | None:
    found = None if repeat is None else await repository.sent_as(connection, run.run_id, repeat)
    if found is not None and found.kind != kind:
        raise InvalidRequestError(
            f"Idempotency-Key: {repeat!r:.100} was used for another call of this run.",
            param="Idempotency-Key",
            status=HTTPStatus.CONFLICT,
        )
    return found


def _kept(recorder: RequestRecorder, decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    return [decision_to_dict(each) for each in stored_decisions(decisions, recorder.quotable, recorder.store_text)]


def _size(step: RunStep) -> int:
    return len(orjson.dumps([step.data, step.decisions]))
