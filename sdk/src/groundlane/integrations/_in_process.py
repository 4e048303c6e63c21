"""Checks by a judge in this process, where the package ``groundlane`` is installed beside this one."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from groundlane._errors import error_of
from groundlane._results import CheckResult, check_call


class InProcess:
    """``check`` of ``Groundlane`` and, as ``acheck``, of ``AsyncGroundlane``, without a gateway. One judge serves the
    process, by the settings of the environment.

    Raises ImportError where there is none to be had, ValueError for a setting that has a bad value.
    """

    def __init__(self) -> None:
        self._shared = _judge().shared_checks
        self._shared()

    def check(
        self,
        text: str,
        *,
        documents: Sequence[Mapping[str, Any] | str],
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CheckResult:
        """See ``Groundlane.check``; ``policy`` is one of the file that ``GROUNDLANE_CONFIG`` names."""
        return _read(*self._ask(text, documents, policy, options).result())

    async def acheck(
        self,
        text: str,
        *,
        documents: Sequence[Mapping[str, Any] | str],
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CheckResult:
        """``check`` for asynchronous code."""
        return _read(*await asyncio.wrap_future(self._ask(text, documents, policy, options)))

    def close(self) -> None:
        """The judge is the process's, and stays."""

    def _ask(self, text: str, documents: Any, policy: str | None, options: Mapping[str, Any] | None) -> Any:
        call = check_call(text, None, documents=documents, policy=policy, options=options)
        return self._shared().ask(call.body or {})


def _judge() -> Any:
    try:
        return import_module("app.text_checks.in_process")
    except ModuleNotFoundError as error:
        if error.name not in ("app", "app.text_checks.in_process"):
            raise
        found = "" if error.name == "app" else f"; {_place()} is in the way of its module 'app'"
        raise ImportError(f"in_process needs the package groundlane installed beside groundlane-sdk{found}") from None


def _place() -> str:
    """Where the ``app`` is that is not ours."""
    return str(getattr(import_module("app"), "__file__", None) or "another one")


def _read(status: int, body: Mapping[str, Any]) -> CheckResult:
    if status >= 400:
        raise error_of(status, body)
    return CheckResult.read(body)
