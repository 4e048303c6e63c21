"""Databases with all tables, as copies: to make the tables anew for each test takes longer than most tests."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from app.db.schema import upgrade


def put_tables(file: Path) -> None:
    """Make ``file`` an SQLite database with all tables and no row."""
    shutil.copyfile(_template(), file)


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="groundlane-tables-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "groundlane.db"
    upgrade(f"sqlite+aiosqlite:///{file}")
    return file
