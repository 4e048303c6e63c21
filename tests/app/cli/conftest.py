from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from app.cli.main import main
from tests.support.database_templates import put_tables


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The URL of a database with all tables, which the settings name; no other setting and no ``.env`` plays a part."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'groundlane.db'}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", url)
    put_tables(tmp_path / "groundlane.db")
    return url


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command as a shell would."""

    def call(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["groundlane", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return call
