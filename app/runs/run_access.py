"""Checks whether a caller may use a run, and whether the run accepts more steps."""

import hashlib
import hmac
import re
from dataclasses import dataclass
from http import HTTPStatus
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth import GatewayKey
from app.errors import InvalidRequestError, RunError
from app.runs import repository
from app.runs.repository import COMPLETED, RunRow
from app.runs.steps import RunStep, StepKind

RUN_ID = re.compile(r"run_[0-9a-f]{32}")
MOST_STEPS = 10_000
LARGEST_RUN = 4 * 1024 * 1024
"""The maximum total size of a run's steps, in bytes of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCaller:
    """The caller of the runs API. ``key`` is its gateway key, and ``repeat`` is its ``Idempotency-Key``. Repeating a
    call with the same idempotency key changes nothing. ``body`` is the body of the call. A call with a different body
    is not a repetition."""

    key: GatewayKey | None = None
    repeat: str | None = None
    body: bytes = b""

    @property
    def prefix(self) -> str | None:
        return None if self.key is None else self.key.prefix


ANYONE = RunCaller()


def new_run_id(caller: RunCaller) -> str:
    """Return the id for a new run. If there is an ``Idempotency-Key``, the id depends only on it and on the gateway
    key. Two workers that receive the same call therefore can't start two runs."""
    if caller.repeat is None:
        return f"run_{uuid4().hex}"
    names = f"{caller.prefix or ''}\0{caller.repeat}"
    return f"run_{hashlib.blake2b(names.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"


async def find_run(
    connection: AsyncConnection, run_id: str, caller: RunCaller, *, lock: bool = False, param: str = "run_id"
) -> RunRow:
    run = await repository.find(connection, run_id, lock=lock) if RUN_ID.fullmatch(run_id) else None
    if run is None or run.key_prefix != caller.prefix:
        raise RunError(
            f"The run {run_id!r:.100} does not exist.", code="run_not_found", status=HTTPStatus.NOT_FOUND, param=param
        )
    return run


def check_open(run: RunRow, *, may_be_full: bool = False, param: str = "run_id") -> None:
    """Check that ``run`` accepts another step. Raises RunError."""
    if run.status == COMPLETED:
        raise RunError(
            f"The run {run.run_id} is complete.", code="run_completed", status=HTTPStatus.CONFLICT, param=param
        )
    if not may_be_full and (run.version >= MOST_STEPS or run.size >= LARGEST_RUN):
        raise RunError(
            f"The run {run.run_id} is full: the maximum is {MOST_STEPS} calls or {LARGEST_RUN} bytes.",
            code="run_full",
            status=HTTPStatus.BAD_REQUEST,
            param=param,
        )


def call_digest(run_id: str, caller: RunCaller) -> str | None:
    """Return a digest of a call's body, or None if the call has no idempotency key."""
    if caller.repeat is None:
        return None
    return hashlib.blake2b(caller.body, digest_size=16, key=run_id.encode()).hexdigest()


async def repeated_step(connection: AsyncConnection, run: RunRow, kind: StepKind, caller: RunCaller) -> RunStep | None:
    """Return the step that an earlier call with this idempotency key added to the run, or None if there is none. Raises
    InvalidRequestError if the earlier call was different."""
    repeat = caller.repeat
    found = None if repeat is None else await repository.step_with_key(connection, run.run_id, repeat)
    if found is None:
        return None
    # Steps that an earlier version stored have no digest.
    digest = str(call_digest(run.run_id, caller))
    if found.kind != kind or not hmac.compare_digest(str(found.data.get("call_digest", digest)), digest):
        raise key_reused(repeat)
    return found


def key_reused(repeat: str | None) -> InvalidRequestError:
    """Build the error for an idempotency key that was already used for a different call."""
    return InvalidRequestError(
        f"Idempotency-Key: {repeat!r:.100} was already used for a different call.",
        param="Idempotency-Key",
        status=HTTPStatus.CONFLICT,
    )
