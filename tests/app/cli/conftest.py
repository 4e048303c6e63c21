from pathlib import Path

import pytest

from tests.support.command_line import Run, command
from tests.support.storage.database_templates import put_tables


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The URL of a database with all tables, which is set in the settings. No other setting and no ``.env`` is used."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'groundlane.db'}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", url)
    put_tables(tmp_path / "groundlane.db")
    return url


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command as a shell would."""
    return command(monkeypatch, capsys)
