"""Labels of claims decide whether replies are good, and calibration counts them before feedback and actions."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from app.analytics.labelled_replies import labelled_replies
from app.analytics.threshold_calibration import calibrate
from app.db.database import Database
from app.events.feedback import FeedbackStore
from app.events.filters import EventFilter
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from app.review.labels import ReviewStore, Verdict
from judges.types import Label

pytestmark = pytest.mark.anyio

JUDGED: dict[str, list[Label]] = {
    "req_000000": [Label.SUPPORTED, Label.SUPPORTED],
    "req_000001": [Label.SUPPORTED, Label.UNVERIFIABLE],
    "req_000002": [Label.SUPPORTED, Label.NOT_A_CLAIM],
    "req_000003": [Label.CONTRADICTED, Label.SUPPORTED],
}


@pytest.fixture
async def database(
    open_database: Callable[[], AbstractAsyncContextManager[Database]], event: Callable[..., RequestEvent]
) -> AsyncIterator[Database]:
    """Four requests with two claims each, as in JUDGED. The scores of the lowest claims are 0.2, 0.4, 0.6 and 0.8."""
    async with open_database() as database:
        rows = []
        for number, labels in enumerate(JUDGED.values()):
            made = event(number, documents=1, action="allow" if number != 3 else "block")
            score = 0.2 * (number + 1)
            claims = tuple(
                structs.replace(claim, label=label.value, score=score, text="A sentence.")
                for claim, label in zip(made.claims[:2], labels, strict=True)
            )
            rows.append(event_rows(replace(made, claims=claims)))
        assert await store(database, rows) == []
        yield database


async def label(database: Database, number: int, seq: int, verdict: Verdict) -> None:
    await ReviewStore(database).label(f"req_{number:06d}", seq, verdict)


@pytest.mark.parametrize(
    ("number", "labels", "grounded"),
    [
        (0, {}, None),
        (0, {0: "supported"}, True),
        (0, {0: "supported", 1: "unverifiable"}, False),
        (0, {1: "contradicted"}, False),
        (1, {0: "supported"}, None),  # Nobody has said anything about the claim that the judge found unverifiable.
        (1, {1: "supported"}, True),
        (2, {0: "supported"}, True),
        (3, {0: "supported"}, True),
        (3, {0: "contradicted"}, False),
    ],
)
async def test_reply_is_grounded_if_its_claims_are(
    database: Database, number: int, labels: dict[int, Verdict], grounded: bool | None
) -> None:
    for seq, verdict in labels.items():
        await label(database, number, seq, verdict)
    found = await labelled_replies(database, [*JUDGED, "req_999999"])
    assert found == ({} if grounded is None else {f"req_{number:06d}": grounded})


async def test_only_the_replies_asked_for_are_returned(database: Database) -> None:
    await label(database, 0, 0, "supported")
    assert await labelled_replies(database, ["req_000001"]) == {}


async def calibration(database: Database, **options: Any) -> dict[str, Any]:
    values = {"score": "lowest", "good": "allowed", "percentile": 5.0, **options}
    return await calibrate(database, EventFilter(), **values)


async def test_calibration_counts_labels_before_feedback_and_actions(database: Database) -> None:
    """The allowed runs 0 to 2 are good and the blocked run 3 is bad, until people say otherwise."""
    before = await calibration(database)
    assert (before["runs"], before["origins"]) == (
        {"good": 3, "bad": 1},
        {"labels": 0, "feedback": 0, "actions": 4},
    )
    feedback = FeedbackStore(database)
    for number in (0, 1):
        await feedback.add(f"req_{number:06d}", about="reply", decision_id=None, correct=False, note=None)
    await label(database, 0, 0, "supported")  # against the feedback
    await label(database, 3, 0, "supported")  # against the action
    found = await calibration(database)
    assert (found["runs"], found["origins"]) == (
        {"good": 3, "bad": 1},
        {"labels": 2, "feedback": 1, "actions": 1},
    )
    assert {name: found["totals"][name] for name in ("marked_good", "marked_bad")} == {
        "marked_good": 2,
        "marked_bad": 1,
    }
    below = found["thresholds"][50]
    assert (below["good"], below["bad"], below["marked_good"], below["marked_bad"]) == (1, 1, 1, 1)
    marked = await calibration(database, good="marked")
    assert (marked["runs"], marked["origins"]) == (
        {"good": 2, "bad": 1},
        {"labels": 2, "feedback": 1, "actions": 0},
    )
