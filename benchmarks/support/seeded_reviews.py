"""Adds the work of reviewers to fictitious traffic: sentences about which the judge, the LLM judge and people disagree,
feedback on replies, and labels."""

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import and_, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database
from app.db.tables import claim_labels, claims, feedback, requests
from app.events.llm_usage import llm_usage
from judges.llm_types import LlmCall

_REQUESTS = 3_000
"""The number of newest requests to consider. Reviewers have seen some of them."""
_EVERY = 12
"""The interval between the requests that are disputed or reviewed."""
_REVIEWERS = ("noor.haddad", "tomas.varga")
_JUDGE_MODEL = "gpt-4o-mini"


async def add_reviews(database: Database, *, seed: int = 24) -> None:
    """Add disputes to the newest requests. The verdicts and actions of the requests don't change, and neither do the
    statistics. Raises DatabaseUnavailableError."""
    dice, columns = random.Random(seed), requests.c
    newest = select(columns.request_id, columns.ts, columns.verdict, columns.extra)
    newest = newest.order_by(columns.ts.desc(), columns.request_id.desc()).limit(_REQUESTS)
    async with database.write() as connection:
        rows = (await connection.execute(newest)).all()
        for row in rows[_EVERY // 2 :: _EVERY]:
            await _mark(connection, dice, row, correct=row.verdict != "has_contradictions")
        for number, row in enumerate(rows[::_EVERY]):
            found = (await connection.execute(select(claims).where(_of(claims, row)).order_by(claims.c.seq))).all()
            if not found:
                continue
            # The newer half of these requests await review; the older half have been reviewed.
            if number * _EVERY < _REQUESTS // 2:
                await _dispute(connection, dice, number, row, found)
            else:
                await _label(connection, dice, row, found)


async def _dispute(
    connection: AsyncConnection, dice: random.Random, number: int, row: Any, found: Sequence[Any]
) -> None:
    """Add a dispute. The LLM judge finds support for a sentence that the judge found unverifiable, people disagree with
    the verdict on the reply, or both."""
    supported = [claim for claim in found if claim.label == "supported"]
    if number % 3 and supported:
        await _escalate(connection, dice, row, supported[0])
    if number % 3 != 1:
        await _mark(connection, dice, row, correct=row.verdict == "has_contradictions")


async def _mark(connection: AsyncConnection, dice: random.Random, row: Any, *, correct: bool) -> None:
    """Mark a reply as correct or incorrect, as a person would."""
    mark = {
        "id": f"fb_{UUID(int=dice.getrandbits(128)).hex}",
        "request_id": row.request_id,
        "about": "reply",
        "decision_id": None,
        "correct": correct,
        "note": "The handbook says so." if correct else "The handbook doesn't say that.",
        "created_at": row.ts + timedelta(minutes=dice.randint(1, 30)),
    }
    await connection.execute(insert(feedback), mark)


async def _escalate(connection: AsyncConnection, dice: random.Random, row: Any, claim: Any) -> None:
    score, confidence = round(dice.uniform(0.42, 0.68), 4), round(dice.uniform(0.85, 0.99), 4)
    verdict: Mapping[str, Any] = {
        **claim.extra.get("verdict", {}),
        "entailed": confidence,
        "escalated": True,
        "judge_score": score,
        "explanation": "The handbook says the same in other words.",
    }
    values = {"score": confidence, "confidence": confidence, "extra": {**claim.extra, "verdict": verdict}}
    await connection.execute(update(claims).where(_of(claims, row), claims.c.seq == claim.seq).values(**values))
    call = LlmCall(
        mode="claim",
        model=_JUDGE_MODEL,
        outcome="ok",
        prompt_tokens=dice.randint(300, 700),
        completion_tokens=dice.randint(30, 80),
        cost_usd=0.0001,
        latency_ms=dice.uniform(300, 900),
    )
    extra = {**row.extra, "llm": llm_usage([call])}
    await connection.execute(update(requests).where(_of(requests, row)).values(extra=extra))


async def _label(connection: AsyncConnection, dice: random.Random, row: Any, found: Sequence[Any]) -> None:
    """Add a reviewer's labels for the sentences of a reply. Most agree with the judge."""
    author = dice.choice(_REVIEWERS)
    for claim in found:
        verdict = claim.label if dice.random() < 0.9 else dice.choice(("supported", "unverifiable"))
        label = {"request_id": row.request_id, "seq": claim.seq, "verdict": verdict, "author": author}
        await connection.execute(insert(claim_labels), {**label, "created_at": row.ts + timedelta(hours=2)})


def _of(table: Any, row: Any) -> Any:
    return and_(table.c.request_id == row.request_id, table.c.ts == row.ts)
