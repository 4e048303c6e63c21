"""Checks by a judge process on this machine, where the package ``groundlane`` is installed."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from groundlane._errors import GatewayTimeoutError, error_from_response
from groundlane._local.process import JudgeProcess
from groundlane._results import CheckResult, check_call
from groundlane._transport import DEFAULT_TIMEOUT_S


class SharedJudge:
    """The judge process that all checks of this program share. A forked process starts one of its own."""

    def __init__(self) -> None:
        self._starting = Lock()
        self._process: JudgeProcess | None = None

    @property
    def running(self) -> JudgeProcess | None:
        return self._process if self._process is not None and self._process.running else None

    def process(self) -> JudgeProcess:
        """Starts it the first time, and again if it has ended. Raises what ``JudgeProcess`` raises."""
        with self._starting:
            process = self.running or JudgeProcess({"service": "check"})
            self._process = process
            return process

    def forget(self) -> None:
        """After a fork: another thread of the parent may have held the lock."""
        self._starting = Lock()
        self._process = None


_shared = SharedJudge()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)


class LocalChecks:
    """``check`` of ``Groundlane`` and, as ``acheck``, of ``AsyncGroundlane``, without a gateway. ``timeout`` is in
    seconds, for each check. Raises what ``JudgeProcess`` raises."""

    def __init__(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        self._timeout = timeout
        _shared.process()

    def check(
        self,
        text: str,
        *,
        documents: Sequence[Mapping[str, Any] | str],
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CheckResult:
        """See ``Groundlane.check``; ``policy`` is one of the file that ``GROUNDLANE_CONFIG`` names."""
        answer = _shared.process().ask(_request(text, documents, policy, options))
        try:
            return _read(*answer.result(self._timeout))
        except TimeoutError:
            answer.cancel()
            raise self._late() from None

    async def acheck(
        self,
        text: str,
        *,
        documents: Sequence[Mapping[str, Any] | str],
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CheckResult:
        """``check`` for asynchronous code."""
        process = _shared.running
        if process is None:
            process = await asyncio.to_thread(_shared.process)
        answer = process.ask(_request(text, documents, policy, options))
        try:
            return _read(*await asyncio.wait_for(asyncio.wrap_future(answer), self._timeout))
        except TimeoutError:
            raise self._late() from None

    def close(self) -> None:
        """Does nothing: other checks share the judge process, which ends with the program."""

    def _late(self) -> GatewayTimeoutError:
        return GatewayTimeoutError(f"The judge process gave no answer within {self._timeout:g} s.")


def _request(
    text: str,
    documents: Sequence[Mapping[str, Any] | str],
    policy: str | None,
    options: Mapping[str, Any] | None,
) -> Mapping[str, Any]:
    return check_call(text, None, documents=documents, policy=policy, options=options).body or {}


def _read(status: int, body: Mapping[str, Any]) -> CheckResult:
    if status >= 400:
        raise error_from_response(status, body)
    return CheckResult.read(body)
