"""The command line: what it prints, what it exits with, and that trouble is one line on stderr."""

import json
import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog

from app.cli.main import main
from app.cli.serve import build_app


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of whoever runs the tests, and no ``.env``, plays a part."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'groundlane.db'}")


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["groundlane", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return call


def test_settings_are_listed_with_value_default_and_meaning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_HEARTBEAT_S", "3")
    result = run("settings")
    assert result.code == 0
    (line,) = [line for line in result.out.splitlines() if line.startswith("GROUNDLANE_HEARTBEAT_S")]
    assert line.split()[1:3] == ["3.0", "10.0"]
    assert line.endswith("Interval of comment lines while text is held")


def test_secrets_are_masked_in_the_list(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_ADMIN_TOKEN", "hunter2-hunter2-token")
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", "postgresql+asyncpg://app:hunter2@db/x")
    result = run("settings")
    assert "hunter2" not in result.out
    assert "postgresql+asyncpg://***@db/x" in result.out


@pytest.mark.parametrize("command", [("settings",), ("serve",), ("demo",), ("db", "upgrade")])
def test_a_bad_setting_stops_any_command_with_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GROUNDLANE_JUDGE_TIMEOUT_MS", "soon")
    result = run(*command)
    assert result.code == 2
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_JUDGE_TIMEOUT_MS: ")


@pytest.mark.parametrize("token", ["x", "fifteen-letters", "padded          "])
def test_a_short_admin_token_stops_the_start_with_one_line(
    monkeypatch: pytest.MonkeyPatch, run: Run, token: str
) -> None:
    monkeypatch.setenv("GROUNDLANE_ADMIN_TOKEN", token)
    result = run("serve")
    (line,) = result.err.splitlines()
    assert (result.code, line) == (
        2,
        "Error: GROUNDLANE_ADMIN_TOKEN: a token needs at least 16 characters, for example: openssl rand -hex 32",
    )


def test_an_invalid_secret_key_stops_the_start_with_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_SECRET_KEY", "hunter2")
    result = run("serve")
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_SECRET_KEY: not a Fernet key")
    assert "hunter2" not in result.err


def test_an_unknown_judge_stops_the_start_with_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_JUDGE", "oracle")
    result = run("serve")
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_JUDGE: judge 'oracle'")


def test_an_unsupported_database_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", "mysql://root@db/x")
    result = run("db", "upgrade")
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_DATABASE_URL: ")


def test_a_file_that_is_not_a_database_fails_with_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "groundlane.db").write_text("This is no database. " * 100)
    result = run("db", "upgrade")
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_DATABASE_URL: ")


def test_the_database_is_created_and_can_be_upgraded_again(run: Run, tmp_path: Path) -> None:
    assert run("db", "upgrade") == Result(0, "The database is up to date.\n", "")
    assert run("db", "upgrade").code == 0
    with sqlite3.connect(tmp_path / "groundlane.db") as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert {"policies", "requests", "decisions"} <= tables


def test_invalid_arguments_are_refused(run: Run) -> None:
    result = run("serve", "--port", "70000")
    assert result.code == 2
    assert "--port" in result.err


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    file = tmp_path / "manual.txt"
    file.write_text("The warranty covers 24 months from the date of purchase. The pump works at 9 bar.", "utf-8")
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "verdict"),
    [
        ("The warranty covers 24 months from the date of purchase.", 0, "supported"),
        ("The warranty covers 36 months from the date of purchase.", 1, "has_contradictions"),
        ("The machine is sold together with a burr grinder.", 1, "has_unverifiable"),
        ("Hello! How can I help you?", 0, "no_claims"),
    ],
)
def test_a_text_is_checked_against_files(
    run: Run, tmp_path: Path, manual: Path, text: str, code: int, verdict: str
) -> None:
    (tmp_path / "text.txt").write_text(text, "utf-8")
    result = run("check", str(tmp_path / "text.txt"), str(manual), "--json")
    assert result.code == code
    report = json.loads(result.out)
    assert report["verdict"] == verdict
    assert report["grounded"] is (code == 0)


@pytest.mark.slow
def test_a_checked_text_is_shown_sentence_by_sentence(run: Run, tmp_path: Path, manual: Path) -> None:
    (tmp_path / "text.txt").write_text("The pump works at 9 bar. The pump works at 15 bar.", "utf-8")
    result = run("check", str(tmp_path / "text.txt"), str(manual))
    assert result.code == 1
    words = result.out.split()
    assert words.count("supported") >= 2
    assert words.count("contradicted") >= 2
    assert "\x1b" not in result.out


def test_a_missing_file_or_a_binary_one_is_named(run: Run, tmp_path: Path, manual: Path) -> None:
    missing = run("check", str(tmp_path / "missing.txt"), str(manual))
    assert (missing.code, missing.err) == (2, f"Error: {tmp_path / 'missing.txt'}: No such file or directory\n")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    binary = run("check", str(tmp_path / "image.png"), str(manual))
    assert (binary.code, binary.err) == (2, f"Error: {tmp_path / 'image.png'}: not a UTF-8 text file\n")


def test_a_judge_that_cannot_be_loaded_is_an_error(run: Run, manual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 would say that the text is not grounded, which nobody found out."""
    monkeypatch.setenv("GROUNDLANE_JUDGE", "none")
    result = run("check", str(manual), str(manual))
    assert result.code == 2
    assert result.err.startswith("Error: GROUNDLANE_JUDGE: the judge cannot be loaded")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What uvicorn was asked to serve, and where the workers' numbers would have gone."""
    calls: list[dict[str, Any]] = []

    def run(app: str, **options: Any) -> None:
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        calls.append({"app": app, "metrics": folder and Path(folder).is_dir(), **options})

    monkeypatch.setattr("uvicorn.run", run)
    return calls


def test_serve_shows_the_new_token_once_and_passes_its_options_on(
    run: Run, served: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, logging_as_before: None
) -> None:
    monkeypatch.setenv("GROUNDLANE_SHUTDOWN_GRACE_S", "7.2")
    first, second = run("serve", "--host", "0.0.0.0", "--port", "9000"), run("serve")
    assert re.search(r"^Admin token \(shown only once, store it now\): \S{40,}$", first.err, re.MULTILINE)
    assert "Admin token" not in second.err
    options = served[0]
    assert (options["host"], options["port"], options["workers"]) == ("0.0.0.0", 9000, 1)
    assert options["timeout_graceful_shutdown"] == 8
    assert options["access_log"] is False
    assert options["metrics"] is None


def test_several_workers_share_a_folder_for_their_metrics(
    run: Run, served: list[dict[str, Any]], logging_as_before: None
) -> None:
    run("serve", "--workers", "3")
    assert (served[0]["workers"], served[0]["metrics"]) == (3, True)
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


def test_a_worker_builds_its_app_from_the_environment(logging_as_before: None) -> None:
    assert build_app().title == "Groundlane"


def test_check_with_an_unknown_judge_names_the_setting(run: Run, manual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_JUDGE", "oracle")
    result = run("check", str(manual), str(manual))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: GROUNDLANE_JUDGE: judge 'oracle'")


@pytest.mark.slow
def test_a_text_is_not_grounded_in_an_empty_source(run: Run, tmp_path: Path, manual: Path) -> None:
    (tmp_path / "empty.txt").write_text("", "utf-8")
    result = run("check", str(manual), str(tmp_path / "empty.txt"), "--json")
    assert result.code == 1
    report = json.loads(result.out)
    assert report["verdict"] == "no_sources"
    assert {claim["best_source"] for claim in report["claims"]} == {None}
