"""Runs the command ``groundlane`` in this process, as a shell would."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import structlog

from app.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> Run:
    """Return a function that runs ``groundlane`` with ``words``, followed by the function's arguments."""

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr("sys.argv", ["groundlane", *words, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return run


@contextmanager
def logging_restored() -> Iterator[None]:
    """Restore the logging configuration, which some commands change."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
