"""Copies databases with all tables, because creating the tables for each test takes longer than most tests."""

import atexit
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from app.db.schema import upgrade


def put_tables(file: Path) -> None:
    """Make ``file`` an SQLite database with all tables and no rows."""
    shutil.copyfile(_template(), file)


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="groundlane-tables-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "groundlane.db"
    # While a browser is open, its event loop runs in the tests' own thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(upgrade, f"sqlite+aiosqlite:///{file}").result()
    return file
