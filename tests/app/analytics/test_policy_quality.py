"""How feedback on requests, replies and decisions counts for each policy."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from app.analytics.policy_quality import PolicyQuality, policy_quality
from app.db.database import Database
from app.db.tables import feedback
from app.events.feedback import FeedbackStore, Subject
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from policies.types import Action, Decision
from tests.app.conftest import EPOCH

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A decision of ``policy``."""

    policy: str
    flagged: bool
    shadow: bool = False
    category: str = "grounding"


@pytest.fixture
async def database(open_database: Callable[[], AbstractAsyncContextManager[Database]]) -> AsyncIterator[Database]:
    async with open_database() as database:
        yield database


@pytest.fixture
async def log(
    database: Database, event: Callable[..., RequestEvent], decision: Callable[..., Decision]
) -> Callable[..., object]:
    """Stores requests with these decisions, the enforced ones first."""

    async def stored(*requests: Sequence[Made]) -> None:
        rows = []
        for number, made in enumerate(requests):
            enforced, shadow = [
                tuple(
                    decision(
                        policy_id=one.policy,
                        policy_name=one.policy,
                        category=one.category,
                        action=Action.BLOCK if one.flagged else Action.ALLOW,
                    )
                    for one in made
                    if one.shadow is wanted
                )
                for wanted in (False, True)
            ]
            rows.append(event_rows(replace(event(number, decisions=enforced), shadow=shadow)))
        assert await store(database, rows) == []

    return stored


async def mark(
    database: Database, number: int, correct: bool, *, position: int | None = None, about: Subject = "decision"
) -> None:
    """Mark a request, or its decision at ``position``."""
    decision_id = None if position is None else f"req_{number:06d}.{position:05d}"
    await FeedbackStore(database).add(
        f"req_{number:06d}", about=about, decision_id=decision_id, correct=correct, note=None
    )


def counts(found: Sequence[PolicyQuality]) -> dict[str, tuple[int, int, int, int]]:
    return {
        one.policy_id: (one.true_positives, one.false_positives, one.true_negatives, one.false_negatives)
        for one in found
    }


async def test_request_feedback_is_compared_with_each_policy_evaluated(
    database: Database, log: Callable[..., object]
) -> None:
    """Of four requests: rightly flagged, wrongly flagged, rightly allowed, wrongly allowed."""
    await log(
        *(
            [
                Made(policy="p", flagged=flagged),
                Made(policy="q", flagged=False),
                Made(policy="beside", flagged=beside, shadow=True),
            ]
            for flagged, beside in ((True, True), (True, False), (False, True), (False, True))
        )
    )
    for number, correct in enumerate((True, False, True, False)):
        await mark(database, number, correct)
    expected = {
        "p": (1, 1, 1, 1),
        # It allowed a request that another policy rightly flagged, which proves nothing, and caused no false alarm.
        "q": (0, 0, 2, 1),
        # It would have flagged both bad requests and a good one.
        "beside": (2, 1, 1, 0),
    }
    found = await policy_quality(database)
    assert counts(found) == expected
    assert [(one.policy_name, one.shadow) for one in found] == [("beside", True), ("p", False), ("q", False)]
    assert counts(await policy_quality(database, policy_id="q")) == {"q": expected["q"]}
    assert await policy_quality(database, policy_id="unknown") == []
    # Only the last two requests.
    late = await policy_quality(database, since=EPOCH + timedelta(seconds=2))
    assert counts(late) == {"p": (0, 0, 1, 1), "q": (0, 0, 1, 1), "beside": (1, 1, 0, 0)}
    early = await policy_quality(database, until=EPOCH + timedelta(seconds=2))
    assert counts(early) == {"p": (1, 1, 0, 0), "q": (0, 0, 1, 0), "beside": (1, 0, 1, 0)}


async def test_decision_feedback_concerns_its_policy_and_the_last_one_counts(
    database: Database, log: Callable[..., object]
) -> None:
    """The first two decisions are by the policy that flagged the request."""
    await log([Made(policy="p", flagged=True), Made(policy="p", flagged=False), Made(policy="q", flagged=False)])
    assert await policy_quality(database) == []
    await mark(database, 0, True, position=1)
    assert counts(await policy_quality(database)) == {"p": (1, 0, 0, 0)}
    await mark(database, 0, False, position=0)
    assert counts(await policy_quality(database)) == {"p": (0, 1, 0, 0)}
    await mark(database, 0, False, position=2)
    assert counts(await policy_quality(database)) == {"p": (0, 1, 0, 0), "q": (0, 0, 0, 1)}
    # Feedback on the whole request doesn't overrule feedback on a decision.
    await mark(database, 0, True)
    assert counts(await policy_quality(database)) == {"p": (0, 1, 0, 0), "q": (0, 0, 0, 1)}


async def test_latest_mark_is_the_last_by_time_not_the_last_written(
    database: Database, log: Callable[..., object]
) -> None:
    await log([Made(policy="p", flagged=True)])
    await mark(database, 0, False)
    await mark(database, 0, True)
    assert counts(await policy_quality(database)) == {"p": (1, 0, 0, 0)}
    async with database.write() as connection:
        await connection.execute(update(feedback).where(feedback.c.correct).values(created_at=EPOCH))
    assert counts(await policy_quality(database)) == {"p": (0, 1, 0, 0)}


async def test_reply_feedback_concerns_policies_that_check_replies(
    database: Database, log: Callable[..., object]
) -> None:
    """Of four replies: incorrect and flagged, correct and flagged, correct and allowed, incorrect and allowed."""
    await log(
        *(
            [
                Made(policy="p", flagged=flagged),
                Made(policy="sources", flagged=False, category="retrieval"),
                Made(policy="lenient", flagged=False),
                Made(policy="beside", flagged=True, shadow=True),
            ]
            for flagged in (True, True, False, False)
        )
    )
    for number, correct in enumerate((False, True, True, False)):
        await mark(database, number, correct, about="reply")
    assert counts(await policy_quality(database)) == {
        "p": (1, 1, 1, 1),
        # A policy isn't blamed for a reply that another one caught, because it may check something else.
        "lenient": (0, 0, 2, 1),
        "beside": (2, 2, 0, 0),
    }


async def test_decision_feedback_takes_precedence_over_reply_feedback(
    database: Database, log: Callable[..., object]
) -> None:
    """The reply was correct, but lacked a required citation."""
    await log(
        [
            Made(policy="p", flagged=True),
            Made(policy="lenient", flagged=False),
            Made(policy="beside", flagged=True, shadow=True),
        ]
    )
    await mark(database, 0, True)
    await mark(database, 0, True, about="reply")
    assert counts(await policy_quality(database)) == {
        "p": (1, 0, 0, 0),
        "lenient": (0, 0, 1, 0),
        "beside": (1, 0, 0, 0),
    }
