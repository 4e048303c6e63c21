"""What is asked of a whole reply, and what of an answer that fails."""

import asyncio
from collections.abc import Mapping
from typing import Any

from app.reply.checks.final_checks import WholeReply, run_final_checks
from policies.engine import PolicySet

REPLY = WholeReply(text="Rain.", claims=(), chunks=(), settings=PolicySet().grounding_settings)


def test_all_are_asked_at_once_and_their_findings_joined() -> None:
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


def test_one_that_fails_finds_nothing_and_spoils_nothing() -> None:
    async def fails(_reply: WholeReply) -> Mapping[str, Any]:
        raise RuntimeError("a fault")

    async def works(_reply: WholeReply) -> Mapping[str, Any]:
        return {"number": 2}

    assert asyncio.run(run_final_checks([fails, works], REPLY)) == {"number": 2}
