"""Checks without a server: what ``POST /v1/grounding/check`` answers, from the process that asks. No event is kept.

The integrations of the SDK use it where this package is installed beside them.
"""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from threading import Lock, Thread
from typing import Any

import structlog

from app.config import load_config
from app.errors import GatewayError
from app.events.records import RequestEvent
from app.judge_runtime.llm import llm_scores
from app.judge_runtime.offline import open_cross_encoder, open_llm
from app.judge_runtime.stack import JudgeStack, open_checker
from app.policy_admin.policy_document import PolicyDraft, StoredPolicy
from app.policy_admin.policy_rows import as_policy
from app.reply.statement_checks import cited_support, consistency
from app.settings import Settings, load_settings
from app.text_checks.presentation import shown_check
from app.text_checks.service import TextChecks
from judges.llm import LlmJudge
from judges.protocols import PairScorer
from policies.engine import PolicyEngine
from policies.types import Policy

_log = structlog.stdlib.get_logger(__name__)

Answer = tuple[int, dict[str, Any]]
"""A status of HTTP, and the body that goes with it."""


class InProcessChecks:
    """A judge with an event loop in a thread of its own, so that any thread and any other loop may ask it. Policies of
    the file that ``GROUNDLANE_CONFIG`` names go by their names. The judge is loaded by the first check.

    ``settings`` default to the environment's, ``scorer`` to the judge that they name. Raises SettingsError.
    """

    def __init__(self, settings: Settings | None = None, *, scorer: PairScorer | None = None) -> None:
        self._checks, self._llm = _open(settings or load_settings(), scorer)
        self._loop = asyncio.new_event_loop()
        Thread(target=self._serve, name="groundlane-checks", daemon=True).start()

    def ask(self, body: Mapping[str, Any]) -> "Future[Answer]":
        """What the gateway would answer to ``body``, decoded JSON. Cancelling it ends the check."""
        return asyncio.run_coroutine_threadsafe(self._answer(body), self._loop)

    def close(self) -> None:
        """Free the judge. Nothing may be asked any more."""
        asyncio.run_coroutine_threadsafe(self._aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _answer(self, body: Mapping[str, Any]) -> Answer:
        try:
            return HTTPStatus.OK, shown_check(await self._checks.check(body))
        except GatewayError as error:
            return error.status, error.body()
        except Exception:
            _log.exception("check_failed")
            failed = GatewayError("Something went wrong; the log says what.")
            return failed.status, failed.body()

    async def _aclose(self) -> None:
        await self._checks.checker.aclose()
        await self._llm.aclose()


def shared_checks() -> InProcessChecks:
    """Those of this process, made by the first call. A process that was forked from it has its own. Raises
    SettingsError."""
    with _making:
        made = _shared.get(os.getpid())
        if made is None:
            _shared.clear()  # a thread of the parent's is not here
            made = _shared[os.getpid()] = InProcessChecks()
        return made


_making = Lock()
_shared: dict[int, InProcessChecks] = {}


def _open(settings: Settings, scorer: PairScorer | None) -> tuple[TextChecks, LlmJudge]:
    llm = open_llm(settings)
    timeout_s = settings.judge_timeout_ms / 1e3
    judge = JudgeStack(settings, open_cross_encoder(settings) if scorer is None else scorer)
    checker = open_checker(settings, judge.scorer, llm, stands_in=scorer is not None)
    policies = load_config(settings).policies if settings.config else ()
    engine = PolicyEngine([_policy(draft) for draft in policies])
    checks = TextChecks(
        settings=settings,
        checker=checker,
        engine=lambda: engine,
        events=_NoLog(),
        final_checks=(llm_scores(llm), consistency(checker, timeout_s=timeout_s), cited_support(timeout_s=timeout_s)),
    )
    return checks, llm


def _policy(draft: PolicyDraft) -> Policy:
    now = datetime.now(UTC)
    return as_policy(StoredPolicy(id=draft.name, version=1, created_at=now, updated_at=now, **asdict(draft)))


class _NoLog:
    async def append(self, event: RequestEvent) -> None:
        pass
