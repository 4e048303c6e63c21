"""Grounding checks with a judge process on this machine. They need the package ``groundlane``."""

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
    """The judge process that all checks in this program share. A forked child process starts a new one."""

    def __init__(self) -> None:
        self._starting = Lock()
        self._process: JudgeProcess | None = None

    @property
    def running(self) -> JudgeProcess | None:
        return self._process if self._process is not None and self._process.running else None

    def process(self) -> JudgeProcess:
        """Return the running judge process. It is started if needed, and restarted if it has exited.

        Raises the errors of ``JudgeProcess``.
        """
        with self._starting:
            process = self.running or JudgeProcess({"service": "check"})
            self._process = process
            return process

    def forget(self) -> None:
        """Reset the state after a fork, because another thread of the parent may have been holding the lock."""
        self._starting = Lock()
        self._process = None


_shared = SharedJudge()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)


class LocalChecks:
    """Checks without a gateway. ``check`` and ``acheck`` correspond to ``check`` of the two clients.

    ``timeout`` is in seconds per check. Raises the errors of ``JudgeProcess``.
    """

    def __init__(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        self._timeout = timeout
        _shared.process()

    def check(
        self,
        text: str,
        *,
        documents: Sequence[Mapping[str, Any] | str],
        question: str | None = None,
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CheckResult:
        """See ``Groundlane.check``. ``policy`` names a policy in the file that ``GROUNDLANE_CONFIG`` points to."""
        answer = _shared.process().ask(_request(text, documents, question, policy, options))
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
        question: str | None = None,
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CheckResult:
        """Like ``check``, for asynchronous code."""
        process = _shared.running
        if process is None:
            process = await asyncio.to_thread(_shared.process)
        answer = process.ask(_request(text, documents, question, policy, options))
        try:
            return _read(*await asyncio.wait_for(asyncio.wrap_future(answer), self._timeout))
        except TimeoutError:
            raise self._late() from None

    def close(self) -> None:
        """Do nothing: the judge process is shared with other checks and exits with the program."""

    def _late(self) -> GatewayTimeoutError:
        return GatewayTimeoutError(f"The judge process did not respond within {self._timeout:g} s.")


def _request(
    text: str,
    documents: Sequence[Mapping[str, Any] | str],
    question: str | None,
    policy: str | None,
    options: Mapping[str, Any] | None,
) -> Mapping[str, Any]:
    call = check_call(text, None, documents=documents, question=question, policy=policy, options=options)
    return call.body or {}


def _read(status: int, body: Mapping[str, Any]) -> CheckResult:
    if status >= 400:
        raise error_from_response(status, body)
    return CheckResult.read(body)
