"""Data for a dashboard: a few real requests, and any number of generated events."""

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.db.database import Database
from app.events.records import DocumentRow, RequestEvent, RequestRow
from app.events.storage.writer import EventWriter
from app.settings import EventDurability
from judges.types import Label
from policies.types import Action, Decision, Phase
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

AGENT = "hr-desk"
FINE = "Permanent staff receive 25 days of annual leave."
FALSE = "Permanent staff receive 40 days of annual leave."
OPEN = "Bicycles may be parked behind the canteen."
DOCUMENT = {"id": "hr-7", "text": FINE, "source": "hr.pdf", "relevance_score": 0.9, "age_days": 3}
_ACTIONS = (*["allow"] * 14, *["warn"] * 3, "drop", *["block"] * 2)
_VERDICTS = {
    "allow": "supported",
    "warn": "has_unverifiable",
    "drop": "has_contradictions",
    "block": "has_contradictions",
}


def play(gateway: Gateway) -> dict[str, str]:
    """Create policies for AGENT, and four requests that they apply to. Return the ids of the requests ``fine``,
    ``false``, ``open`` and ``stale``."""
    gateway.policy("grounding", {"contradiction_action": "block", "min_citations": 0}, scope={"agents": [AGENT]})
    gateway.policy("retrieval", {"max_source_age_days": 90}, scope={"agents": [AGENT]})
    gateway.judge.labels = {"40 days": Label.CONTRADICTED, "Bicycles": Label.UNVERIFIABLE}
    made = {
        "fine": ask(gateway, FINE),
        "false": ask(gateway, f"{FINE} {FALSE}"),
        "open": ask(gateway, f"{FINE} {OPEN}"),
        "stale": ask(gateway, FINE, documents=[{**DOCUMENT, "age_days": 400}]),
    }
    for request_id in made.values():
        gateway.trace(request_id)
    return made


def ask(gateway: Gateway, text: str, **fields: Any) -> str:
    """Send a question with DOCUMENT, and have the upstream answer ``text``. Return the id of the request."""
    gateway.upstream.script(answer(text, stream=fields.get("stream", False)))
    messages = [{"role": "user", "content": "How much leave?"}]
    body = {"model": "m", "messages": messages, "documents": [DOCUMENT], "grounding": {"agent": AGENT}, **fields}
    with gateway.call(body) as call:
        call.read_all()
        return call.request_id


def write(database: Path, events: Sequence[RequestEvent]) -> None:
    """Write events to an SQLite log, as a gateway does."""

    async def run() -> None:
        log = Database(f"sqlite+aiosqlite:///{database}")
        # The event is committed when this returns. Closing the writer would wait only for a limited time.
        writer = EventWriter(log, durability=EventDurability.SYNC, journal_path=database.with_name("seeding.events"))
        await writer.start()
        async with asyncio.TaskGroup() as group:
            for event in events:
                group.create_task(writer.append(event))
        assert writer.journaled == 0
        await writer.aclose()
        await log.aclose()

    # In a separate thread, because a browser driven from this thread runs an event loop here.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(run())).result()


def events(size: int, *, span: timedelta = timedelta(hours=20), seed: int = 7) -> list[RequestEvent]:
    """Return ``size`` requests of three agents and two models, spread evenly over ``span`` until now."""
    dice, now = random.Random(seed), datetime.now(UTC)
    made = []
    for at in range(size):
        action = dice.choice(_ACTIONS)
        made.append(
            event(
                f"req_seed_{seed}_{at:06d}",
                ts=now - span + span * at / size,
                agent=dice.choice(("hr-desk", "leaflet-desk", "research")),
                model=dice.choice(("gpt-4o-mini", "claude-sonnet")),
                action=action,
                verdict=_VERDICTS[action],
                trust_score=round(dice.uniform(0.9, 1) if action == "allow" else dice.uniform(0.2, 0.8), 3),
                upstream_ms=dice.lognormvariate(6.5, 0.4),
                judge_ms=dice.lognormvariate(3, 0.5),
            )
        )
    return made


def event(request_id: str, *, ts: datetime, action: str = "allow", **changes: Any) -> RequestEvent:
    """Return the event of a request with one document and a decision by the policy ``strict``."""
    upstream, judge = changes.pop("upstream_ms", 700.0), changes.pop("judge_ms", 20.0)
    values: dict[str, Any] = {
        "request_id": request_id, "ts": ts, "api": "chat", "model": "gpt-4o-mini", "resolved_model": None,
        "agent": "hr-desk", "run_id": None, "key_prefix": None, "stream": True, "status": "completed",
        "http_status": 200, "action": action, "verdict": "supported", "trust_score": 1.0, "documents": 1,
        "sentences": 2, "prompt_tokens": 120, "completion_tokens": 40, "usage_estimated": False,
        "upstream_ms": upstream, "judge_ms": judge, "total_ms": upstream + judge + 3, "finish_reason": "stop",
        "error": None,
    }  # fmt: skip
    blocked = action != "allow"
    decision = Decision(
        policy_id="pol_strict", policy_version=1, policy_name="strict", category="grounding",
        phase=Phase.AFTER_WORKFLOW, action=Action(action),
        reason="The reply contradicts hr.pdf" if blocked else "All claims are supported",
        reason_code="GROUNDING_CONTRADICTION" if blocked else None, metadata={}, latency_ms=0.2,
    )  # fmt: skip
    document = DocumentRow(
        position=0, document_id="hr-7", source="hr.pdf", collection="kb", relevance_score=0.9, age_days=3.0,
        title=None, url=None, kept=True, reason=None, text=FINE,
    )  # fmt: skip
    return RequestEvent(request=RequestRow(**values | changes), decisions=(decision,), claims=(), documents=(document,))
