"""Slow checks of the whole reply. They run concurrently at the end of the reply, before the policies decide."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from judges.call_recording import Recorder, recording
from judges.types import Chunk, Claim, ClaimVerdict
from judges.verdicts.citation_support import CitationChecker
from policies.policy_selection import ReplySettings
from policies.types import Citation

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeReply:
    """The whole reply of a choice: the text that the client receives, and the claims judged in it.

    - ``chunks``: the kept documents.
    - ``settings``: the combined settings of the policies in scope.
    - ``earlier``: the claims of earlier replies in the run, oldest first.
    - ``citations``: the citations in the text.
    - ``citation_checker``: creates a judge that compares claims with the documents that they cite, if there is one.
    - ``question``: the user's question.
    - ``record``: called with each call to a paid judge.
    """

    text: str
    claims: Sequence[ClaimVerdict]
    chunks: Sequence[Chunk]
    settings: ReplySettings
    earlier: Sequence[Claim] = ()
    citations: Sequence[Citation] = ()
    citation_checker: Callable[[], CitationChecker | None] | None = None
    record: Recorder | None = None
    question: str = ""


FinalCheck = Callable[[WholeReply], Awaitable[Mapping[str, Any]]]
"""A check of a whole reply. It returns fields of ``policies.types.PolicyInputs``, or none if no policy needs them. A
check must enforce its own deadline."""


async def run_final_checks(final_checks: Sequence[FinalCheck], reply: WholeReply) -> dict[str, Any]:
    """Return the combined findings of ``final_checks``. If a check fails, the error is logged and the check contributes
    no findings, so that the request doesn't fail."""
    with recording(*(() if reply.record is None else (reply.record,))):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_ask(check, reply)) for check in final_checks]
    return {name: value for task in tasks for name, value in task.result().items()}


async def _ask(check: FinalCheck, reply: WholeReply) -> Mapping[str, Any]:
    try:
        return await check(reply)
    except Exception:
        _log.exception("final_check_failed")
        return {}
