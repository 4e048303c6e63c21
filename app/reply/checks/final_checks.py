"""Checks of the whole reply that take time. They run at its end, all at once, before the policies decide."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from judges.types import Chunk, Claim, ClaimVerdict
from judges.verdicts.citation_support import CitationChecker
from policies.engine import GroundingSettings
from policies.types import Citation

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeReply:
    """The reply of a choice: its text as the client gets it, and the claims judged in it.

    ``chunks`` are the documents kept; ``settings`` say what the policies in scope check. ``earlier`` are claims of
    earlier replies of the run, the latest last. ``citations`` are those of the text, and ``citation_checker`` judges
    claims against the documents they cite, if a judge can.
    """

    text: str
    claims: Sequence[ClaimVerdict]
    chunks: Sequence[Chunk]
    settings: GroundingSettings
    earlier: Sequence[Claim] = ()
    citations: Sequence[Citation] = ()
    citation_checker: CitationChecker | None = None


FinalCheck = Callable[[WholeReply], Awaitable[Mapping[str, Any]]]
"""Returns fields of ``policies.types.PolicyInputs``; none if no policy needs them. Keeps its own deadline."""


async def run_final_checks(final_checks: Sequence[FinalCheck], reply: WholeReply) -> dict[str, Any]:
    """The combined findings of ``final_checks``. A check that fails is logged and finds nothing: it must not fail the
    request."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_ask(check, reply)) for check in final_checks]
    return {name: value for task in tasks for name, value in task.result().items()}


async def _ask(check: FinalCheck, reply: WholeReply) -> Mapping[str, Any]:
    try:
        return await check(reply)
    except Exception:
        _log.exception("final_check_failed")
        return {}
