"""A file-based verdict cache that several runs may share."""

import os
import sqlite3
import threading
from pathlib import Path

import orjson

from app.evaluation.cases.case_result import JudgedOutput

_BUSY_S = 30.0
_MAKE = "CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, judged BLOB NOT NULL) WITHOUT ROWID"


class CacheError(Exception):
    """The cache cannot be used. The message names its file."""


class VerdictCache:
    """An SQLite file with verdicts, keyed by the hash of each case. Several threads and processes may use it at the
    same time. Close it at the end. Every method raises CacheError if the file cannot be read or written.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise CacheError(f"{file}: {error}") from None
        try:
            # A system crash may lose the latest verdicts but never corrupts the file.
            self._run("PRAGMA journal_mode = WAL")
            self._run("PRAGMA synchronous = NORMAL")
            self._run(_MAKE)
        except CacheError:
            self.close()
            raise

    def get(self, key: str) -> JudgedOutput | None:
        """Return the verdicts stored under ``key``, or None if they are missing or unreadable."""
        rows = self._run("SELECT judged FROM verdicts WHERE key = ?", key)
        try:
            return JudgedOutput.of(orjson.loads(rows[0][0])) if rows else None
        except (KeyError, TypeError, ValueError):
            return None

    def put(self, key: str, judged: JudgedOutput) -> None:
        self._run("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", key, orjson.dumps(judged))

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _run(self, statement: str, *values: str | bytes) -> list[tuple[bytes]]:
        try:
            with self._lock:
                return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise CacheError(f"{self._file}: {error}") from None


def default_cache() -> Path:
    """Return the default path, which is in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "groundlane" / "evaluation.sqlite3"
