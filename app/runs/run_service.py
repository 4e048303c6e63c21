"""Manages runs: records the documents, reports and requests of an agent over several steps, and evaluates them
together.

Each step is committed when the call returns. Policy versions are pinned when a run starts, and apply to every step. If
a policy is created or changed after the start, the new version applies as well, but only to later steps.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import anyio
import orjson
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth import GatewayKey
from app.db.database import Database, DatabaseUnavailableError
from app.errors import EventLostError, InvalidRequestError, RunError
from app.events.records import EventLog, RecordedRequest
from app.events.redaction import stored
from app.events.request_record import RequestRecord
from app.events.serialization import plain
from app.runs import repository
from app.runs.decisions import StepOutcome, decide_completion, decide_document, decide_scores, decide_start
from app.runs.gateway_step import call_data
from app.runs.pinned_policies import PinnedPolicies, PolicyVersions
from app.runs.reported_names import hidden
from app.runs.repository import COMPLETED, OPEN, RunRow
from app.runs.result_score import Score, score_result, wants_texts
from app.runs.run_access import (
    ANYONE,
    RUN_ID,
    RunCaller,
    call_digest,
    check_open,
    find_run,
    key_reused,
    new_run_id,
    repeated_step,
)
from app.runs.step_log import StepLog, stored_json
from app.runs.steps import RunRecord, RunStep, StepKind, document_json, texts_of, with_texts
from app.settings import Settings, StoreText
from judges.concurrency import run as run_work
from judges.llm_types import LlmCall, LlmScore, ScoreRequest
from judges.types import Chunk, Claim
from policies.policy_selection import PolicyEngine, PolicySet
from policies.types import Aliases, Policy

_log = structlog.stdlib.get_logger(__name__)

_PATIENCE_S = 5.0
"""The maximum time that a gateway request waits while its run is read or stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with its policies and all steps."""

    run: RunRow
    policies: Sequence[Policy]
    steps: Sequence[RunStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of the step with number ``step``. ``request_id`` is the id of the step's event, or None if the call
    repeated an earlier one."""

    run: RunRow
    policies: Sequence[Policy]
    outcome: StepOutcome
    step: int
    request_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepInput:
    """The input for a step: its data, the number of items that it adds, the function that decides on it, and the LLM
    calls that were made for it."""

    data: Mapping[str, Any]
    decide: Callable[[PolicySet], StepOutcome]
    counts: Mapping[str, int] = field(default_factory=dict)
    document: Chunk | None = None
    calls: Sequence[LlmCall] = ()


_ReadInput = Callable[[RunRow, Sequence[RunStep], PolicySet], _StepInput]
"""A function that builds the input from the run so far and, for a completion, from all of its steps."""


async def _no_llm(request: ScoreRequest, _text: str, _documents: Sequence[Chunk]) -> LlmScore:
    return LlmScore(request=request, skipped="no_key", detail="no LLM is configured")


def _only_itself(model: str | None) -> Aliases:
    return model


@dataclass(slots=True, kw_only=True)
class RunService:
    """Manages the runs in a database. ``engine`` returns the policies in force, ``observers`` receive every event, and
    ``score`` asks an LLM to score a result. ``names_of`` returns the names of a model, including its names at the
    upstreams.

    All methods raise DatabaseUnavailableError. They raise RunError if the run does not exist, belongs to a different
    key, is complete, or is full.
    """

    database: Database
    settings: Settings
    engine: Callable[[], PolicyEngine]
    events: EventLog
    observers: Sequence[Callable[[RecordedRequest], None]] = ()
    score: Score = _no_llm
    names_of: Callable[[str | None], Aliases] = _only_itself
    _versions: PolicyVersions = field(default_factory=PolicyVersions)
    _step_log: StepLog = field(init=False)

    def __post_init__(self) -> None:
        self._step_log = StepLog(events=self.events, observers=self.observers, store_text=self.settings.store_text)

    async def start(self, *, agent: str | None, model: str | None = None, caller: RunCaller = ANYONE) -> StepResult:
        """Start a run of ``agent``. If ``model`` is given, policies that are scoped to this model also apply to the
        records of the run."""
        now = datetime.now(UTC)
        names = None if caller.key is None else caller.key.names
        pinned = PinnedPolicies.at_start(self.engine().enabled, agent=agent, key=names)
        run = RunRow(
            run_id=new_run_id(caller),
            agent=plain(agent),
            model=plain(model),
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
        recorder = self._step_log.recorder(run, StepKind.START, now)
        policies = pinned.in_scope(run, model=self.names_of(run.model))
        outcome = decide_start(policies)
        first = RunStep(
            seq=0,
            ts=now,
            kind=StepKind.START,
            data={"request_id": recorder.request_id},
            decisions=stored_json(outcome.made, self.settings.store_text),
            key=caller.repeat,
        )
        run = replace(run, action=outcome.action.value)
        async with self.database.write() as connection:
            if not await repository.create(self.database, connection, run, first):
                return await self._repeated_start(connection, run, caller)
        await self._step_log.append(recorder, outcome, decide_start(PolicySet(policies.shadow)))
        return StepResult(run=run, policies=pinned.policies, outcome=outcome, step=0, request_id=recorder.request_id)

    async def _repeated_start(self, connection: AsyncConnection, asked: RunRow, caller: RunCaller) -> StepResult:
        """Handle a call with the idempotency key of the call that started the run. Return the result of that call."""
        run = await find_run(connection, asked.run_id, caller)
        earlier = await repeated_step(connection, run, StepKind.START, caller)
        if earlier is None or (run.agent, run.model) != (asked.agent, asked.model):
            raise key_reused(caller.repeat)
        pinned = await self._versions.of(connection, run)
        return self._repetition(run, pinned, earlier)

    def _repetition(self, run: RunRow, pinned: PinnedPolicies, earlier: RunStep) -> StepResult:
        joined = pinned.joined(self.engine().enabled, agent=run.agent, key=run.key)
        outcome = StepOutcome.of(earlier.decisions, joined.policies)
        return StepResult(run=run, policies=pinned.policies, outcome=outcome, step=earlier.seq, request_id=None)

    async def record_document(self, run_id: str, chunk: Chunk, *, caller: RunCaller = ANYONE) -> StepResult:
        """Record a retrieved document. It is recorded even if a policy blocks it."""

        def read(run: RunRow, _steps: Sequence[RunStep], policies: PolicySet) -> _StepInput:
            number = run.counts["documents"] + 1
            named = chunk if chunk.id else replace(chunk, id=f"document-{number}")
            return _StepInput(
                data={"document": document_json(named, run_id, keep_text=wants_texts(policies))},
                decide=lambda policies: decide_document(policies, named, number),
                counts={"documents": 1},
                document=named,
            )

        return await self._add_step(run_id, StepKind.RETRIEVAL, read, caller)

    async def record_grounding(
        self, run_id: str, reported: Mapping[str, Any], *, caller: RunCaller = ANYONE
    ) -> StepResult:
        """Record reported scores, citations, unsupported claims and confidence."""
        full = self.settings.store_text is StoreText.FULL
        kept = reported if full else {**reported, "citations": [hidden(name) for name in reported["citations"]]}

        def read(_run: RunRow, _steps: Sequence[RunStep], _policies: PolicySet) -> _StepInput:
            return _StepInput(
                data=kept,
                decide=lambda policies: decide_scores(policies, reported["grounding_scores"]),
                counts={name: len(reported[name]) for name in ("grounding_scores", "citations", "unsupported_claims")},
            )

        return await self._add_step(run_id, StepKind.GROUNDING, read, caller)

    async def complete(self, run_id: str, result: Any, *, caller: RunCaller = ANYONE) -> StepResult:
        """Complete the run, and make the decisions that require the complete run. An LLM scores the result if a policy
        requires it.
        """
        scored, scores = await self._score_result(run_id, result, caller)
        calls = [call for score in scores for call in score.calls]
        text = None if result is None else orjson.dumps(result, option=orjson.OPT_SORT_KEYS).decode()
        kept = result if self.settings.store_text is StoreText.FULL else stored(text, self.settings.store_text)

        def read(_run: RunRow, steps: Sequence[RunStep], _policies: PolicySet) -> _StepInput:
            record = RunRecord.of(steps)
            return _StepInput(
                data={"result": kept}, decide=lambda policies: decide_completion(policies, record, scores), calls=calls
            )

        logged = False
        try:
            completed = await self._add_step(run_id, StepKind.COMPLETE, read, caller)
            logged = completed.request_id is not None
        except EventLostError:
            logged = True
            raise
        finally:
            if calls and not logged:
                with anyio.CancelScope(shield=True):
                    await self._step_log.append_unused(scored, calls)
        return completed

    async def _score_result(self, run_id: str, result: Any, caller: RunCaller) -> tuple[RunRow, Sequence[LlmScore]]:
        """Return the run, and the scores of the result that the run's policies require. No transaction is open during
        LLM calls."""
        async with self.database.read() as connection:
            run = await find_run(connection, run_id, caller)
            policies = (await self._policies_of(connection, run)).in_scope(run, model=self.names_of(run.model))
            if run.status != OPEN or not wants_texts(policies):
                return run, ()
            steps = await repository.steps(connection, run_id)
        return run, await score_result(policies, RunRecord.of(steps), result, self.score)

    async def get(self, run_id: str, *, caller: RunCaller = ANYONE) -> RunView:
        """Return a run with everything recorded in it."""
        async with self.database.read() as connection:
            run = await find_run(connection, run_id, caller)
            steps = await repository.steps(connection, run_id)
            pinned = await self._versions.of(connection, run)
        return RunView(run=run, policies=pinned.policies, steps=steps)

    async def join(self, run_id: str | None, *, agent: str | None, key: GatewayKey | None) -> "JoinedRun | None":
        """Return the run that a request by ``agent`` belongs to.

        Return None while the database is unavailable, or if ``run_id`` isn't the id of a run but a label that the
        caller chose, which is only logged. In both cases, the policies in force apply to the request. Raises RunError,
        and InvalidRequestError if the run belongs to a different agent.
        """
        if run_id is None or RUN_ID.fullmatch(run_id) is None:
            return None
        try:
            async with asyncio.timeout(_PATIENCE_S), self.database.read() as connection:
                run = await find_run(connection, run_id, RunCaller(key=key), param="grounding.run_id")
                check_open(run, param="grounding.run_id")
                pinned = await self._policies_of(connection, run)
        except (DatabaseUnavailableError, TimeoutError) as error:
            _log.warning("run_unavailable", run_id=run_id, error=str(error) or "the database did not respond in time")
            return None
        if agent is not None and agent != run.agent:
            owner = "no agent" if run.agent is None else f"the agent {run.agent!r}"
            raise InvalidRequestError(f"grounding.agent: the run belongs to {owner}.", param="grounding.agent")
        return JoinedRun(runs=self, run_id=run_id, agent=run.agent, engine=pinned.engine)

    async def add_call(self, run_id: str, record: RequestRecord) -> None:
        """Record a finished gateway request that joined the run."""
        decisions = stored_json(record.decisions, record.store_text)
        full = self.settings.store_text is StoreText.FULL
        async with self.database.write() as connection:
            run = await repository.find(connection, run_id, lock=True)
            if run is None or run.status != OPEN:
                raise RunError(f"The run {run_id} is complete.", code="run_completed", status=HTTPStatus.CONFLICT)
            keep_texts = wants_texts(
                (await self._policies_of(connection, run)).in_scope(run, model=self.names_of(run.model))
            )
            data = call_data(record, run_id, keep_texts=keep_texts, keep_markers=full)
            step = RunStep(seq=run.version + 1, ts=record.info.ts, kind=StepKind.CALL, data=data, decisions=decisions)
            # All steps are needed to determine which documents of the request the run already contains.
            run_record = RunRecord.of([*await repository.steps(connection, run_id), step])
            await repository.append(connection, run, step, size=_size(step), counts=run_record.counts)

    # Helpers that all calls use.

    async def _policies_of(self, connection: AsyncConnection, run: RunRow) -> PinnedPolicies:
        """Return the policies that currently apply to the run: those that it started with, and those that were created
        or changed since then."""
        pinned = await self._versions.of(connection, run)
        return pinned.joined(self.engine().enabled, agent=run.agent, key=run.key)

    async def _add_step(self, run_id: str, kind: StepKind, read: _ReadInput, caller: RunCaller) -> StepResult:
        now = datetime.now(UTC)
        ends = kind is StepKind.COMPLETE
        async with self.database.write() as connection:
            run = await find_run(connection, run_id, caller, lock=True)
            pinned = await self._versions.of(connection, run)
            if (earlier := await repeated_step(connection, run, kind, caller)) is not None:
                return self._repetition(run, pinned, earlier)
            self._check_accepts(run, kind)
            steps = await repository.steps(connection, run_id) if ends else ()
            joined = pinned.joined(self.engine().enabled, agent=run.agent, key=run.key)
            policies = joined.in_scope(run, model=self.names_of(run.model))
            given = read(run, steps, policies)
            # Searching text for instructions can take a long time, so it is done in a thread.
            outcome, shadow = [
                await run_work(not each.document_needs.reads_texts, given.decide, each)
                for each in (policies, PolicySet(policies.shadow))
            ]
            recorder = self._step_log.recorder(run, kind, now)
            made = stored_json(outcome.made, self.settings.store_text)
            data = {**given.data, "request_id": recorder.request_id}
            if (digest := call_digest(run_id, caller)) is not None:
                data["call_digest"] = digest
            step = RunStep(seq=run.version + 1, ts=now, kind=kind, data=data, decisions=made, key=caller.repeat)
            counts = {name: count + given.counts.get(name, 0) for name, count in run.counts.items()}
            status = COMPLETED if ends else OPEN
            run = await repository.append(connection, run, step, size=_size(step), counts=counts, status=status)
            await self._forget_texts(connection, run_id, steps)
        documents = () if given.document is None else (given.document,)
        await self._step_log.append(recorder, outcome, shadow, documents=documents, calls=given.calls)
        return StepResult(
            run=run, policies=pinned.policies, outcome=outcome, step=step.seq, request_id=recorder.request_id
        )

    def _check_accepts(self, run: RunRow, kind: StepKind) -> None:
        """Check that ``run`` accepts another step. A full run can still be completed. Raises RunError."""
        check_open(run, may_be_full=kind is StepKind.COMPLETE)
        if kind is StepKind.RETRIEVAL and run.counts["documents"] >= self.settings.max_documents:
            raise RunError(
                f"The run {run.run_id} is full: the maximum is {self.settings.max_documents} documents.",
                code="run_full",
                status=HTTPStatus.BAD_REQUEST,
            )

    async def _forget_texts(self, connection: AsyncConnection, run_id: str, steps: Sequence[RunStep]) -> None:
        """Remove from ``steps`` any text that must not be stored according to the settings. Call this after all
        decisions are made."""
        if self.settings.store_text is StoreText.FULL:
            return
        for step in steps:
            if texts_of(step.data):
                less = with_texts(step.data, lambda text: stored(text, self.settings.store_text))
                await repository.replace_data(connection, run_id, replace(step, data=less))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRun:
    """The run that a gateway request belongs to. ``engine`` contains the policies that apply to the run."""

    runs: RunService
    run_id: str
    agent: str | None
    engine: PolicyEngine

    async def claims(self) -> Sequence[Claim]:
        """Return the claims in the run's replies so far, in order, including claims that weren't judged. The result is
        empty while the database is unavailable."""
        try:
            async with self.runs.database.read() as connection:
                steps = await repository.steps(connection, self.run_id)
        except DatabaseUnavailableError as error:
            _log.warning("run_unavailable", run_id=self.run_id, error=str(error))
            return ()
        return RunRecord.of(steps).stated

    async def add(self, record: RequestRecord) -> None:
        """Record the request. The reply has already been sent, so errors are never raised."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.runs.add_call(self.run_id, record)
        except (DatabaseUnavailableError, RunError, TimeoutError) as error:
            reason = str(error) or "the database did not respond in time"
            _log.error("run_call_lost", run_id=self.run_id, request_id=record.info.request_id, error=reason)


def _size(step: RunStep) -> int:
    return len(orjson.dumps([step.data, step.decisions]))
