"""The queue of claims to label, and the labels."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from app.api.admin.export import dump
from app.auth.audit_log import acting_as
from app.db.database import Database
from app.errors import InvalidAdminRequestError, NotFoundError
from app.evaluation.cases.case_files import read_cases
from app.evaluation.judge_comparison.labels import is_supported
from app.events.feedback import FeedbackStore
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from app.events.storage.retention import prune
from app.review.labels import ReviewStore, disputes

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def database(
    open_database: Callable[[], AbstractAsyncContextManager[Database]], event: Event
) -> AsyncIterator[Database]:
    """Requests 0 to 4, each with one claim, whose scores are 0.1, 0.3, 0.5, 0.69 and 0.9."""
    async with open_database() as database:
        rows = []
        for number, score in enumerate((0.1, 0.3, 0.5, 0.69, 0.9)):
            made = event(number, agent="a" if number < 3 else "b", documents=1)
            claim = structs.replace(
                made.claims[0], label="supported", score=score, text=f"Sentence {number}.", extra={}
            )
            rows.append(event_rows(replace(made, claims=(claim,))))
        assert await store(database, rows) == []
        yield database


async def ids(database: Database, **asked: Any) -> list[str]:
    queued = await ReviewStore(database).queue(limit=10, **asked)
    return [item.request_id for item in queued.items]


async def test_least_certain_claims_follow_disputed_ones(database: Database) -> None:
    found = await ids(database)
    assert found[0] == "req_000003"
    assert found[-1] == "req_000000"
    feedback = FeedbackStore(database)
    await feedback.add("req_000000", about="reply", decision_id=None, correct=False, note=None)
    assert (await ids(database))[0] == "req_000000"
    queued = await ReviewStore(database).queue()
    assert (queued.waiting, queued.disputed, queued.items[0].why) == (5, 1, ["feedback"])
    assert set(await ids(database, agent="b")) == {"req_000003", "req_000004"}
    assert (await ids(database, skipped=[("req_000000", 0)]))[0] == "req_000003"


async def test_label_has_author_and_time_and_can_be_changed_or_removed(database: Database) -> None:
    review = ReviewStore(database)
    with acting_as("anna@example.com"):
        made = await review.label("req_000003", 0, "contradicted")
    assert made.author == "anna@example.com"
    assert datetime.now(UTC) - made.created_at < timedelta(minutes=5)
    assert "req_000003" not in await ids(database)
    await review.label("req_000003", 0, "supported")
    assert await review.counts() == {"supported": 1}
    await review.remove("req_000003", 0)
    assert (await ids(database))[0] == "req_000003"
    with pytest.raises(NotFoundError, match="has no label"):
        await review.remove("req_000003", 0)
    with pytest.raises(NotFoundError, match="has no claim 7"):
        await review.label("req_000003", 7, "supported")


async def test_export_is_a_labelled_evaluation_set(database: Database, tmp_path: Any) -> None:
    review = ReviewStore(database)
    await review.label("req_000001", 0, "unverifiable")
    await review.label("req_000004", 0, "supported")
    file = tmp_path / "labels.jsonl"
    file.write_bytes(b"".join([dump(row) + b"\n" async for row in review.exported()]))
    cases = list(read_cases(file))
    assert [(case.case_id, case.output, is_supported(case)) for case in cases] == [
        ("req_000001-0", "Sentence 1.", False),
        ("req_000004-0", "Sentence 4.", True),
    ]


async def test_claims_without_stored_text_are_not_reviewed(database: Database, event: Event) -> None:
    made = event(9, agent="hashed", documents=1)
    claims = tuple(structs.replace(claim, score=0.7, text="sha256:" + "0" * 64) for claim in made.claims)
    assert await store(database, [event_rows(replace(made, claims=claims))]) == []
    assert await ids(database, agent="hashed") == []
    with pytest.raises(InvalidAdminRequestError, match="not stored"):
        await ReviewStore(database).label("req_000009", 0, "supported")


async def test_labels_are_deleted_with_their_requests(database: Database) -> None:
    review = ReviewStore(database)
    await review.label("req_000001", 0, "supported")
    await prune(database, START + timedelta(days=1))
    assert await review.counts() == {}
    assert [row async for row in review.exported()] == []


@pytest.mark.parametrize(
    ("label", "verdict", "correct", "why"),
    [
        ("supported", {}, None, []),
        ("supported", {}, True, []),
        ("supported", {}, False, ["feedback"]),
        ("contradicted", {}, True, ["feedback"]),
        ("unverifiable", {}, True, []),
        ("supported", {"escalated": True, "judge_score": 0.5}, None, ["llm"]),
        ("contradicted", {"escalated": True, "judge_score": 0.5}, False, ["llm"]),
        ("supported", {"escalated": True, "judge_score": 0.0}, False, ["llm", "feedback"]),
        ("unverifiable", {"escalated": True, "judge_score": 0.5}, None, []),
        ("supported", {"escalated": True}, None, []),  # The judge had no verdict, so nobody disagrees with it.
    ],
)
def test_disputes_name_who_disagrees(label: str, verdict: dict[str, Any], correct: bool | None, why: list[str]) -> None:
    assert disputes(label, {"verdict": verdict}, correct) == why
