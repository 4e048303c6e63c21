"""Only the owner can read the database and the journal, regardless of the umask and of who created the files."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from app.db.database import Database
from app.events.storage.journal import JournalFile

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def make_readable(*paths: Path) -> None:
    for path in paths:
        path.touch(0o666)


async def write(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(text("CREATE TABLE IF NOT EXISTS t (x INTEGER)"))
    await database.transact(lambda connection: connection.execute(text("INSERT INTO t VALUES (1)")))


@pytest.mark.parametrize("existing", [False, True])
async def test_database_files_are_private(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "groundlane.db"
    if existing:
        make_readable(path, Path(f"{path}-wal"), Path(f"{path}-shm"))
    database = Database(f"sqlite+aiosqlite:///{path}")
    await write(database)
    found = modes(tmp_path)
    await database.aclose()
    assert found == {"groundlane.db": 0o600, "groundlane.db-wal": 0o600, "groundlane.db-shm": 0o600}


@pytest.mark.parametrize("existing", [False, True])
def test_journal_is_private(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "groundlane.db.events"
    if existing:
        path.touch(0o666)
    journal = JournalFile.open(path, create=True)
    assert journal is not None
    assert modes(tmp_path) == {path.name: 0o600}


_READ_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM t").fetchone()
connection.close()
"""


async def test_second_connection_keeps_the_locks_of_the_process(tmp_path: Path) -> None:
    """They are gone as soon as it closes the file anywhere. The next process to close the database would then take
    itself for the last one and delete the log of changes that others still write."""
    path = tmp_path / "groundlane.db"
    database, other = (Database(f"sqlite+aiosqlite:///{path}") for _ in range(2))
    await write(database)
    await write(other)
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", _READ_AND_CLOSE, str(path)], check=True)
    left = modes(tmp_path)
    await database.aclose()
    await other.aclose()
    assert "groundlane.db-wal" in left
