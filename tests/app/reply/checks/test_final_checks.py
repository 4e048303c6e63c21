"""The final checks of a whole reply, and failing checks."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.reply.checks.final_checks import WholeReply, run_final_checks
from judges.call_recording import record_call
from judges.llm_types import LlmCall
from policies.policy_selection import PolicySet

REPLY = WholeReply(text="Rain.", claims=(), chunks=(), settings=PolicySet().reply_settings)


def test_all_checks_run_concurrently_and_their_findings_are_joined() -> None:
    async def run() -> dict[str, Any]:
        met = asyncio.Barrier(2)

        async def one(reply: WholeReply) -> Mapping[str, Any]:
            await met.wait()
            return {"text": reply.text}

        async def other(_reply: WholeReply) -> Mapping[str, Any]:
            await met.wait()
            return {"number": 2}

        return await asyncio.wait_for(run_final_checks([one, other], REPLY), 5)

    assert asyncio.run(run()) == {"text": "Rain.", "number": 2}


def test_failing_check_finds_nothing_and_does_not_affect_the_others() -> None:
    async def fails(_reply: WholeReply) -> Mapping[str, Any]:
        raise RuntimeError("a fault")

    async def works(_reply: WholeReply) -> Mapping[str, Any]:
        return {"number": 2}

    assert asyncio.run(run_final_checks([fails, works], REPLY)) == {"number": 2}


def test_calls_to_paid_judges_are_recorded_for_the_reply() -> None:
    calls: list[LlmCall] = []

    async def asks(_reply: WholeReply) -> Mapping[str, Any]:
        record_call(LlmCall(mode="judge", model="service", outcome="ok"))
        return {}

    asyncio.run(run_final_checks([asks, asks], replace(REPLY, record=calls.append)))
    asyncio.run(run_final_checks([asks], REPLY))
    assert [call.model for call in calls] == ["service", "service"]
