"""Links to traces, on SQLite and PostgreSQL."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert

from app.auth.share_links import ShareLinks
from app.db.database import Database
from app.db.tables import requests

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
HOUR = timedelta(hours=1)
REQUEST = {
    "request_id": "req_1",
    "ts": datetime(2026, 1, 1, tzinfo=UTC),
    "api": "chat",
    "stream": False,
    "status": "completed",
    "http_status": 200,
    "action": "allow",
    "verdict": "supported",
    "documents": 0,
    "sentences": 0,
    "usage_estimated": False,
    "total_ms": 1.0,
}


@pytest.mark.parametrize(("longest", "valid"), [(24, True), (1, True), (0, False)])
async def test_limit_applies_to_links_created_before_it(open_database: Open, longest: int, valid: bool) -> None:
    async with open_database() as database:
        async with database.write() as connection:
            await connection.execute(insert(requests), REQUEST)
        before = ShareLinks(database, b"key", longest=24 * HOUR)
        share = await before.create("req_1", 5 * HOUR)
        now = ShareLinks(database, b"key", longest=longest * HOUR)
        assert (await now.find(before.token(share)) == share) is valid
        assert await now.list("req_1") == ([share] if valid else [])
