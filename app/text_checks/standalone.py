"""Text checks without a gateway. They need only the settings, and return the same results as ``POST
/v1/grounding/check``. Nothing is recorded."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Self

from app.config import load_config
from app.errors import GatewayError
from app.events.records import RecordedRequest
from app.judge_runtime.llm import llm_scores
from app.judge_runtime.offline import open_cross_encoder, open_llm
from app.judge_runtime.stack import JudgeStack, open_checker
from app.policy_admin.policy_document import PolicyDraft, StoredPolicy
from app.policy_admin.policy_rows import as_policy
from app.reply.checks.statement_checks import cited_support, consistency
from app.settings import Settings
from app.text_checks.presentation import check_to_dict
from app.text_checks.service import TextChecks
from judges.llm import LlmJudge
from judges.protocols import PairScorer
from policies.policy_selection import PolicyEngine
from policies.types import Policy


class StandaloneChecks:
    """Performs checks as the gateway does. A check can name a policy from the file in ``GROUNDLANE_CONFIG``.

    Use it as an async context manager. The first check loads the judge.
    """

    def __init__(self, checks: TextChecks, llm: LlmJudge) -> None:
        self._checks = checks
        self._llm = llm

    @classmethod
    def open(cls, settings: Settings, scorer: PairScorer | None = None) -> Self:
        """Build the checks from ``settings``. ``scorer`` replaces the judge in the settings. Raises SettingsError."""
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
            final_checks=(
                llm_scores(llm),
                consistency(checker, timeout_s=timeout_s),
                cited_support(timeout_s=timeout_s),
            ),
        )
        return cls(checks, llm)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._checks.checker.aclose()
        await self._llm.aclose()

    async def answer(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and JSON body that the gateway would return for ``body``."""
        try:
            return HTTPStatus.OK, check_to_dict(await self._checks.check(body))
        except GatewayError as error:
            return error.status, error.body()


def _policy(draft: PolicyDraft) -> Policy:
    now = datetime.now(UTC)
    return as_policy(StoredPolicy(id=draft.name, version=1, created_at=now, updated_at=now, **asdict(draft)))


class _NoLog:
    async def append(self, record: RecordedRequest, /) -> None:
        pass
